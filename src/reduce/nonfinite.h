/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The treatment of NaN and infinite elements in a batch. */
#pragma once

enum nonfinite_mode {
    NONFINITE_REFUSE,
    NONFINITE_IGNORE,
    NONFINITE_PROPAGATE,
    NONFINITE_REFUSE_NAN /* histograms leave infinities out as upstream does, so PROPAGATE is the same for them */
};
