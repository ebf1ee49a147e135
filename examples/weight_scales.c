#include <qobs/qobs.h>
#include <stdio.h>

/* Scales for a 4-bit weight of 64 rows and 256 columns, one for every 128 columns of a row. */
int main(void)
{
    static float weight[64][256] = {{0.5f, -0.7f}}, scales[64][2];
    const int64_t shape[] = {64, 256};
    const qobs_tensor tensor = {sizeof tensor, weight, QOBS_F32, 2, shape, NULL};
    const qobs_qparam_buffers out = {.struct_size = sizeof out, .scale = scales, .scale_size = sizeof scales};
    qobs_error error;

    if (qobs_qparams_from_tensor("llmc.memoryless_minmax num_bits=4 group_size=128", &tensor, &out, NULL, &error) !=
        QOBS_OK)
        fprintf(stderr, "qobs: %s\n", error.message);
    else
        printf("scales of the first row: %g %g\n", scales[0][0], scales[0][1]);
    return error.status != QOBS_OK;
}
