/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable blocks of GGUF types; contract and limits in templates/superblock.inl.h. */
#include <math.h>

#include "scalar/simd.h"

#define TOGETHER 2
#define CANDIDATES 4

DEEP_INLINE f32v f32v_sqrt(f32v a) { return (f32v){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }

struct f32v_table8 {
    float entry[8];
};

DEEP_INLINE struct f32v_table8 f32v_table8(const float entry[8])
{
    struct f32v_table8 t;
    memcpy(t.entry, entry, sizeof t.entry);
    return t;
}

#define f32v_pick8(t, index) pick8(&(t), index)
DEEP_INLINE f32v pick8(const struct f32v_table8 *t, u32v index)
{
    return (f32v){t->entry[index[0] & 7], t->entry[index[1] & 7], t->entry[index[2] & 7], t->entry[index[3] & 7]};
}

#include "templates/superblock.inl.h"
