/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Closes what width_begin.h opened. */
#undef WIDTH_CAT_
#undef WIDTH_CAT
#undef K
#undef BITS
#undef KEY
#undef MOST_POSITIVE
#undef MOST_NEGATIVE
#undef LANES
#undef WIDTH
