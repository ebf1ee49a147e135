/* Scales of a 4-bit weight, one for every 128 columns. */
#include <qobs/qobs.h>
#include <stdio.h>

int main(void)
{
    static float weight[64][256], scales[64][2];
    for (int i = 0; i < 64 * 256; i++)
        weight[i / 256][i % 256] = (float)(i * 37 % 101) / 50 - 1;
    const qobs_tensor tensor = {sizeof tensor, weight, QOBS_F32, 2, (const int64_t[]){64, 256}, NULL};
    qobs_config *config;
    qobs_observer *observer;
    qobs_error error;
    if (qobs_config_create(&config, "llmc.memoryless_minmax", NULL, &error) || qobs_config_set(config, "num_bits", "4", &error) ||
        qobs_config_set(config, "group_size", "128", &error) || qobs_observer_create(&observer, config, NULL, &error) ||
        qobs_observer_observe(observer, &tensor, NULL, &error) ||
        qobs_observer_read(observer, "scale", scales, sizeof scales, &error))
        return fprintf(stderr, "%s\n", error.message), 1;
    printf("first scale: %g\n", scales[0][0]);
}
