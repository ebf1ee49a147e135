/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Dynamic quantization in a runtime: every token of an activation gets its own scale, without an observer. The
 * program compares the quantized values with the original ones. */
#include <qobs/qobs.h>
#include <qobs/stateless.h>
#include <stdio.h>

enum { TOKENS = 4, FEATURES = 512 };

int main(void)
{
    static float input[TOKENS][FEATURES], output[TOKENS][FEATURES];
    float min[TOKENS], max[TOKENS], scale[TOKENS];
    const int64_t shape[] = {TOKENS, FEATURES}, scales[] = {TOKENS, 1};
    const qobs_tensor tensor = {sizeof tensor, input, QOBS_F32, 2, shape, NULL};
    const qobs_tensor scale_tensor = {sizeof scale_tensor, scale, QOBS_F32, 2, scales, NULL};
    qobs_config *config = NULL;
    qobs_error error;
    for (int t = 0; t < TOKENS; t++)
        for (int f = 0; f < FEATURES; f++)
            input[t][f] = (float)((f * 37 + t * 11) % 255 - 127) * (float)(t + 1) / 16;

    if (qobs_config_create(&config, "llmc.memoryless_minmax", NULL, &error) != QOBS_OK ||
        qobs_config_set(config, "strategy", "channel", &error) != QOBS_OK || /* one scale for each row */
        qobs_minmax(config, &tensor, NULL, min, max, NULL, NULL, &error) != QOBS_OK ||
        qobs_calculate_qparams(config, QOBS_F32, TOKENS, min, max, NULL, scale, NULL, &error) != QOBS_OK ||
        qobs_fake_quantize(config, NULL, &tensor, NULL, &scale_tensor, NULL, NULL, output, NULL, NULL, &error) !=
            QOBS_OK)
        fprintf(stderr, "%s\n", error.message);

    int bad = error.status != QOBS_OK;
    for (int t = 0; t < TOKENS && !bad; t++) {
        float worst = 0;
        for (int f = 0; f < FEATURES; f++) {
            const float difference = output[t][f] - input[t][f], magnitude = difference < 0 ? -difference : difference;
            worst = magnitude > worst ? magnitude : worst;
        }
        printf("token %d: %g to %g, scale %g, worst error %g\n", t, min[t], max[t], scale[t], worst);
        bad = !(worst > 0 && worst <= scale[t] * 0.5f * 1.001f);
    }
    qobs_config_destroy(config);
    return bad;
}
