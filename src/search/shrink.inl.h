/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bounds of shrunk ranges in one dtype; included by shrink.c. A product has the dtype's one rounding, as torch
 * multiplies a tensor by a Python number. */

static inline double NATIVE(bound_at)(const struct grid_params *p, int step, double bound)
{
    const real expanded = round_native((real)bound * (real)p->expand);
    return step < 0 ? expanded : round_native(expanded * (real)(1 - step / p->grid));
}

static void NATIVE(shrink_bounds)(const struct grid_params *p, const int32_t *step, size_t n, const unsigned char *from,
                                  unsigned char *to)
{
    stored x;
    for (size_t i = 0; i < n; i++) {
        memcpy(&x, from + i * sizeof x, sizeof x);
        if (step[i] >= 0 || p->expand != 1) /* others keep their bits */
            x = store((real)NATIVE(bound_at)(p, step[i], (double)load(x)));
        memcpy(to + i * sizeof x, &x, sizeof x);
    }
}
