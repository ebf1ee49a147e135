/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */
#include <qobs/qobs.h>
#include <stdio.h>

/* The scale of one tensor. */
int main(void)
{
    const float weight[2][4] = {{1, 2, 3, 4}, {-7, 6, 5, 4}};
    float scale = 0;
    const int64_t shape[] = {2, 4};
    const qobs_tensor tensor = {sizeof tensor, weight, QOBS_F32, 2, shape, NULL};
    const qobs_qparam_buffers out = {.struct_size = sizeof out, .scale = &scale, .scale_size = sizeof scale};
    qobs_error error;
    const int bad = qobs_qparams_from_tensor("llmc.memoryless_minmax num_bits=8", &tensor, &out, NULL, &error);
    printf("%s: %g\n", bad ? error.message : "scale", scale);
    return bad || !(scale > 0.05f && scale < 0.06f);
}
