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
    static float input[TOKENS * FEATURES], output[TOKENS * FEATURES];
    float min[TOKENS], max[TOKENS], scale[TOKENS], worst = 0;
    const int64_t shape[] = {TOKENS, FEATURES}, scales[] = {TOKENS, 1};
    const qobs_tensor tensor = {sizeof tensor, input, QOBS_F32, 2, shape, NULL};
    const qobs_tensor scale_tensor = {sizeof scale_tensor, scale, QOBS_F32, 2, scales, NULL};
    qobs_minmax_args range = {
        .struct_size = sizeof range, .value = &tensor, .min = min, .max = max, .size = sizeof min};
    qobs_calculate_args formula = {.struct_size = sizeof formula, .dtype = QOBS_F32, .count = TOKENS};
    qobs_fake_quantize_args quantize = {.struct_size = sizeof quantize, .value = &tensor, .scale = &scale_tensor};
    qobs_config *config = NULL;
    qobs_error error;
    for (int i = 0; i < TOKENS * FEATURES; i++)
        input[i] = (float)(i * 37 % 255 - 127) * (float)(i / FEATURES + 1) / 16;

    int bad = qobs_config_parse(&config, "llmc.memoryless_minmax strategy=channel", NULL, &error); /* a scale a row */
    range.config = formula.config = quantize.config = config;
    formula.min = min, formula.max = max, formula.size = sizeof min;
    formula.scale = scale, formula.scale_size = sizeof scale;
    quantize.out = output, quantize.out_size = sizeof output;
    bad = bad || qobs_minmax(&range, &error) || qobs_calculate_qparams(&formula, &error) ||
          qobs_fake_quantize(&quantize, &error);
    for (int i = 0; !bad && i < TOKENS * FEATURES; i++) {
        const float steps = (output[i] - input[i]) / scale[i / FEATURES];
        worst = steps > worst ? steps : -steps > worst ? -steps : worst;
    }
    printf("%s: worst error %g scales\n", bad ? error.message : "every token", worst);
    qobs_config_destroy(config);
    return !(worst > 0 && worst < 0.5001f);
}
