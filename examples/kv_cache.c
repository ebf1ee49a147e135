/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A cache of keys in fp8. While tokens arrive, every head of every token gets its own scale. Afterwards the largest
 * scale of each head is its static scale, and the largest of all is the one that a runtime with a single k_scale wants;
 * later tokens are quantized by them.
 *
 *     cc kv_cache.c $(pkg-config --cflags --libs qobs) -lm -o kv_cache */
#include <math.h>
#include <qobs/quantizer.h>
#include <stdio.h>

enum { TOKENS = 32, HEADS = 4, HEAD_DIM = 64 };

static const char *const config_text = "llmc.memoryless_minmax num_bits=8 type=float strategy=channel nonfinite=ignore";

/* The keys of one token; the scales of heads differ. */
static void make_keys(int token, float keys[HEADS][HEAD_DIM])
{
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < HEAD_DIM; i++)
            keys[h][i] = (float)((token * 7919 + h * 31 + i * 37) % 255 - 127) * (float)(h + 1) / 64;
}

static float worst_error(float keys[HEADS][HEAD_DIM], unsigned char codes[HEADS][HEAD_DIM], const float *scale)
{
    const qobs_format *e4m3 = qobs_format_find("fp8_e4m3");
    float worst = 0;
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < HEAD_DIM; i++)
            worst = fmaxf(worst, fabsf(qobs_format_decode(e4m3, codes[h][i]) * scale[h] - keys[h][i]) / scale[h]);
    return worst;
}

int main(void)
{
    static unsigned char cache[TOKENS][HEADS][HEAD_DIM];
    static float scales[TOKENS][HEADS], keys[HEADS][HEAD_DIM];
    float of_head[HEADS] = {0}, of_layer[HEADS], largest = 0, worst = 0;
    qobs_config *config = NULL;
    qobs_quantizer *of_tokens = NULL, *by_scales = NULL;
    qobs_error error;
    int bad = qobs_config_parse(&config, config_text, NULL, &error);
    qobs_quantizer_args args = {
        .struct_size = sizeof args, .config = config, .dtype = QOBS_F32, .columns = HEAD_DIM, .dynamic = 1};
    bad = bad || qobs_quantizer_create(&of_tokens, &args, &error);
    args.dynamic = 0;
    bad = bad || qobs_quantizer_create(&by_scales, &args, &error);

    qobs_quantizer_run_args run = {.struct_size = sizeof run,
                                   .rows = HEADS,
                                   .value = keys,
                                   .codes_size = sizeof cache[0],
                                   .scale_size = sizeof scales[0]};
    for (int t = 0; !bad && t < TOKENS; t++) { /* as they arrive */
        make_keys(t, keys);
        run.codes = cache[t];
        run.scale = scales[t];
        bad = qobs_quantizer_run(of_tokens, &run, &error);
        worst = fmaxf(worst, worst_error(keys, cache[t], scales[t]));
        for (int h = 0; h < HEADS; h++)
            of_head[h] = fmaxf(of_head[h], scales[t][h]);
    }
    for (int h = 0; h < HEADS; h++)
        largest = fmaxf(largest, of_head[h]);
    for (int h = 0; h < HEADS; h++)
        of_layer[h] = largest;
    make_keys(TOKENS, keys); /* a later token: by the scales of its heads, then by that of the layer */
    for (int single = 0; !bad && single < 2; single++) {
        run.codes = cache[0];
        run.scale = single ? of_layer : of_head;
        bad = qobs_quantizer_run(by_scales, &run, &error);
        worst = fmaxf(worst, worst_error(keys, cache[0], run.scale));
    }
    printf("%s: worst error %g scales, k_scale %g\n", bad ? error.message : "keys in fp8", (double)worst,
           (double)largest);
    qobs_quantizer_destroy(of_tokens);
    qobs_quantizer_destroy(by_scales);
    qobs_config_destroy(config);
    return !(worst > 0 && worst < 16.01f && largest > 0); /* numbers of e4m3 below 448 are 32 apart */
}
