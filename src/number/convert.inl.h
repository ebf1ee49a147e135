/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of convert.c. */

static void NATIVE(store_doubles)(stored *array, size_t first, size_t n, const double *values)
{
    for (size_t i = 0; i < n; i++)
        array[first + i] = store((real)values[i]);
}
