/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Dynamic quantization in a runtime: every token of an activation gets its own scale, in one pass. The program compares
 * what the codes stand for with the original values. */
#include <qobs/quantizer.h>
#include <stdio.h>

enum { TOKENS = 4, FEATURES = 512 };

int main(void)
{
    static float input[TOKENS * FEATURES];
    static signed char codes[TOKENS * FEATURES];
    float scale[TOKENS], worst = 0;
    qobs_config *config = NULL;
    qobs_quantizer *quantizer = NULL;
    qobs_error error;
    for (int i = 0; i < TOKENS * FEATURES; i++)
        input[i] = (float)(i * 37 % 255 - 127) * (float)(i / FEATURES + 1) / 16;

    int bad = qobs_config_parse(&config, "llmc.memoryless_minmax num_bits=8 strategy=channel", NULL, &error);
    const qobs_quantizer_args args = {
        .struct_size = sizeof args, .config = config, .dtype = QOBS_F32, .columns = FEATURES, .dynamic = 1};
    const qobs_quantizer_run_args run = {.struct_size = sizeof run,
                                         .rows = TOKENS, /* a scale a row */
                                         .value = input,
                                         .codes = codes,
                                         .codes_size = sizeof codes,
                                         .scale = scale,
                                         .scale_size = sizeof scale};
    bad = bad || qobs_quantizer_create(&quantizer, &args, &error) || qobs_quantizer_run(quantizer, &run, &error);
    for (int i = 0; !bad && i < TOKENS * FEATURES; i++) {
        const float steps = (float)codes[i] - input[i] / scale[i / FEATURES];
        worst = steps > worst ? steps : -steps > worst ? -steps : worst;
    }
    printf("%s: worst error %g scales\n", bad ? error.message : "every token", worst);
    qobs_quantizer_destroy(quantizer);
    qobs_config_destroy(config);
    return !(worst > 0 && worst < 0.5001f);
}
