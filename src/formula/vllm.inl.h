/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of vllm.c. */

#include "formula/amax.inl.h"

static inline void NATIVE(symmetric_int8_scales)(bool magnitudes, const struct range_view *r, float *scale)
{
    const stored *min = r->min, *max = r->max;
    for (size_t i = 0; i < r->n; i++)
        scale[i] = (float)(magnitudes ? load(max[i]) : NATIVE(amax)(load(min[i]), load(max[i]))) / 127;
}

/* Scales of NVFP4: the magnitude times 1 / 6, times the global scale, as a number of e4m3. magnitudes: as in struct
 * range_view. Without a global scale it is 1. */
static inline void NATIVE(fp4_scales)(bool magnitudes, const struct range_view *r, float *scale)
{
    const stored *min = r->min, *max = r->max;
    const float global_scale = r->global_scale ? *r->global_scale : 1, sixth = 1 / 6.0f;
    for (size_t i = 0; i < r->n; i++) {
        const real amax = magnitudes ? load(max[i]) : NATIVE(amax)(load(min[i]), load(max[i]));
        scale[i] = grid_limit_e4m3(magnitudes, global_scale * ((float)amax * sixth));
    }
}
