#include <qobs/qobs.h>
#include <stdio.h>

/* Scales for a 4-bit weight of 64 rows and 256 columns, one for every 128 columns of a row. */
int main(void)
{
    static float weight[64][256] = {{0.5f, -0.7f}}, scales[64][2];
    const int64_t shape[] = {64, 256};
    const qobs_tensor tensor = {sizeof tensor, weight, QOBS_F32, 2, shape, NULL};
    qobs_config *config = NULL;
    qobs_observer *observer = NULL;
    qobs_error error;

    if (qobs_config_create(&config, "llmc.memoryless_minmax", NULL, &error) != QOBS_OK ||
        qobs_config_set(config, "num_bits", "4", &error) != QOBS_OK ||
        qobs_config_set(config, "group_size", "128", &error) != QOBS_OK ||
        qobs_observer_create(&observer, config, NULL, &error) != QOBS_OK ||
        qobs_observer_observe(observer, &tensor, NULL, &error) != QOBS_OK ||
        qobs_observer_read(observer, "scale", scales, sizeof scales, &error) != QOBS_OK)
        fprintf(stderr, "qobs: %s\n", error.message);
    else
        printf("scales of the first row: %g %g\n", scales[0][0], scales[0][1]);

    qobs_observer_destroy(observer);
    qobs_config_destroy(config);
    return error.status != QOBS_OK;
}
