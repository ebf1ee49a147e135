#include <qobs/qobs.h> /* Scales of a 4-bit weight, one for every 128 columns. */
#include <stdio.h>

int main(void)
{
    static float weight[64][256] = {{0.5f, -0.7f}}, scales[64][2];
    const qobs_tensor tensor = {sizeof tensor, weight, QOBS_F32, 2, (const int64_t[]){64, 256}, NULL};
    qobs_config *config = NULL;
    qobs_observer *observer = NULL;
    qobs_error error;
    if (qobs_config_create(&config, "llmc.memoryless_minmax", NULL, &error) || qobs_config_set(config, "num_bits", "4", &error) ||
        qobs_config_set(config, "group_size", "128", &error) || qobs_observer_create(&observer, config, NULL, &error) ||
        qobs_observer_observe(observer, &tensor, NULL, &error) ||
        qobs_observer_read(observer, "scale", scales, sizeof scales, &error))
        fprintf(stderr, "%s\n", error.message);
    printf("first scale: %g\n", scales[0][0]);
    qobs_observer_destroy(observer);
    qobs_config_destroy(config);
    return error.status != QOBS_OK;
}
