/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of search_load.inl.h. */

QOBS_SEARCH_LOAD(ENTRY(NATIVE(qobs_search_load)))
{
    CLEARS_UPPER_HALVES
    const NATIVE(element) *const from = x;
    const real by = (real)factor;
    if (finite_only) {
        NO_DEPENDENCE
        for (size_t i = 0; i < n; i++) {
            const real value = load(from[i]);
            out[i] = value - value == 0 ? (float)(value * by) : 0;
        }
        return;
    }
    NO_DEPENDENCE
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(load(from[i]) * by);
}
