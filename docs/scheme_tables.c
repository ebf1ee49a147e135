/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints what the tables of schemes and formats say, in blocks that scheme_tables.py puts into documents and into the
 * Python package. A line "@NAME" begins a block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schemes/dialects.h"
#include "schemes/quant_config.h"
#include "schemes/runtimes.h"

static void stop(const struct fail *f)
{
    fprintf(stderr, "%s\n", f->message);
    exit(1);
}

/* Returns the one group of a preset, finished as quantize does. */
static struct quant_config config_of(const struct scheme_preset *preset)
{
    struct quant_config config = {0};
    struct fail f;
    if (quant_config_add_scheme(&config, preset->name, NULL, 0, &f) != 0 ||
        quant_config_finish(&config, QOBS_COMPAT_VLLM, &f) != 0)
        stop(&f);
    return config;
}

/* Prints the cells of a scheme that README has, too. */
static void put_needs(const struct scheme_preset *preset)
{
    printf("| %s | %s | %.4g | %s | ", preset->name, preset->summary, scheme_preset_bits(preset),
           preset->inputs && preset->inputs->dynamic != QUANT_DYNAMIC ? "yes" : "no");
}

#define DEVICES "GPUs | CPUs with AVX-512 | CPUs with AVX2 | Arm CPUs"

/* Prints a cell for each kind of device. */
static void put_devices(unsigned devices)
{
    printf("%s | %s | %s | %s |",
           devices & DEVICE_GPU    ? "yes"
           : devices & DEVICE_SM90 ? "compute capability 9.0"
                                   : "no",
           devices & DEVICE_AVX512 ? "yes"
           : devices & DEVICE_AMX  ? "with AMX"
                                   : "no",
           devices & DEVICE_AVX2 ? "yes" : "no", devices & DEVICE_ARM ? "yes" : "no");
}

static void put_schemes(void)
{
    puts("@schemes\n| scheme | numbers | bits a weight | activations needed | format | " DEVICES " | experts | "
         "compressed-tensors |\n|---|---|---|---|---|---|---|---|---|---|---|");
    for (size_t i = 0; scheme_preset_at(i); i++) {
        struct quant_config config = config_of(scheme_preset_at(i));
        struct device_words words;
        const struct quant_group *group = &config.groups[0];
        const struct runtime_row *row = runtime_find(group);
        const char *version = runtime_compressed_tensors(group);
        put_needs(scheme_preset_at(i));
        printf("%s | ", quant_format_name(group->format));
        put_devices(row ? row->linear : 0);
        printf(" %s | %s%s |\n", row && row->experts ? devices_describe(row->experts, &words) : "no",
               version ? "from " : "all", version ? version : "");
        quant_config_free(&config);
    }
}

/* The schemes that most models are published in. */
static void put_common(void)
{
    static const char *const common[] = {"W4A16",       "W4A16_ASYM", "W8A8",     "FP8",
                                         "FP8_DYNAMIC", "NVFP4A16",   "MXFP4A16", "MXFP8A16"};
    puts("@common\n| scheme | numbers | bits a weight | activations needed | " DEVICES " |\n"
         "|---|---|---|---|---|---|---|---|");
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        const struct scheme_preset *preset = scheme_preset_find(common[i]);
        struct quant_config config = config_of(preset);
        const struct runtime_row *row = runtime_find(&config.groups[0]);
        put_needs(preset);
        put_devices(row ? row->linear : 0);
        putchar('\n');
        quant_config_free(&config);
    }
}

static void put_dtype(const char *name, enum file_dtype dtype)
{
    printf("`%s`%s%s", name, dtype ? " " : "", dtype ? dtype_name(dtype) : "");
}

static void put_codes(const struct quant_format_row *row)
{
    if (row->word)
        put_dtype(row->codes, row->word);
    else
        printf("`%s` %s%s%s", row->codes, row->code.ints ? "I8" : "", row->code.ints && row->code.floats ? " or " : "",
               row->code.floats ? "F8_E4M3" : "");
}

static void put_written(void)
{
    puts("@written\n| format | codes | groups | tensors of a module |\n|---|---|---|---|");
    for (int i = QUANT_FORMAT_NONE + 1; quant_format_row(i); i++) {
        const struct quant_format_row *row = quant_format_row(i);
        if (!row->name)
            continue;
        printf("| %s | %s%s%s | ", row->name, row->code.ints ? "integers" : "",
               row->code.ints && row->code.floats ? ", " : "", row->code.floats ? row->code.grid : "");
        if (row->group_size > 0)
            printf("%lld | ", (long long)row->group_size);
        else
            printf("any | ");
        put_codes(row);
        fputs(", ", stdout);
        put_dtype(row->scale, row->scale_dtype);
        if (row->code.ints)
            fputs(row->packs_zero_points ? ", `weight_zero_point` I32 if asymmetric"
                                         : ", `weight_zero_point` I8 if asymmetric",
                  stdout);
        if (row->has_shape)
            fputs(", `weight_shape` I64", stdout);
        if (row->global.name)
            printf(", `%s` F32", row->global.name);
        puts(" |");
    }
}

static void put_read(void)
{
    struct dtype_words words;
    puts("@read\n| format | groups | tensors of a module |\n|---|---|---|");
    for (int i = QUANT_FORMAT_NONE + 1; quant_format_row(i); i++) {
        const struct quant_format_row *row = quant_format_row(i);
        if (!row->read.title || !row->read.scales)
            continue;
        printf("| %s | ", row->read.title);
        if (row->group_size > 0)
            printf("%lld | ", (long long)row->group_size);
        else
            printf("any | ");
        put_codes(row);
        printf(", `%s` %s", row->scale, dtypes_describe(row->read.scales, &words));
        if (row->read.zero_points)
            printf(", `%s` %s", row->words ? row->words->zero_points : "weight_zero_point",
                   dtypes_describe(row->read.zero_points, &words));
        if (row->words && row->words->group_index)
            printf(", `%s` I32", row->words->group_index);
        if (row->has_shape)
            fputs(", `weight_shape`", stdout);
        if (row->global.name)
            printf(", `%s`, which %s", row->global.name, row->global.divides ? "divides" : "multiplies");
        puts(" |");
    }
}

/* Writes the tensors of a module in a format that a dialect stores. */
static void put_tensors(const struct quant_group *g)
{
    const struct quant_format_row *row = quant_format_row(g->stored);
    put_codes(row);
    printf(", `%s`", row->scale);
    if (row->words)
        printf(", `%s` I32", row->words->zero_points);
    if (row->words && row->words->group_index)
        printf(", `%s` I32", row->words->group_index);
    if (row->global.name)
        printf(", `%s` F32", row->global.name);
    if (row->modelopt.input_scale && g->has_inputs && g->inputs.dynamic != QUANT_DYNAMIC)
        printf(", `%s` F32", row->modelopt.input_scale);
}

/* Writes a row: a form of a dialect, and of integers their bits, without and with zero points. */
static void put_dialect(const struct dialect_row *d, const struct dialect_form *form, int bits, bool symmetric)
{
    struct fail f;
    struct device_words linear, experts;
    struct quant_config config = {0};
    if (quant_config_add_scheme(&config, form->preset ? form->preset : "W4A16", NULL, 0, &f) != 0)
        stop(&f);
    if (!form->preset) {
        config.groups->weights.num_bits = bits;
        config.groups->weights.symmetric = symmetric;
    }
    if (quant_config_finish(&config, QOBS_COMPAT_VLLM, &f) != 0 || dialect_apply(&config, d, &f) != 0)
        stop(&f);
    const struct runtime_row *runtime = runtime_find(config.groups);
    if (form->preset)
        printf("| %s | %s%s%s | ", d->name, form->preset, form->algorithm ? ": " : "",
               form->algorithm ? form->algorithm : "");
    else
        printf("| %s | int%d%s | ", d->name, bits, symmetric ? "" : " with zero points");
    put_tensors(config.groups);
    printf(" | %s | %s | %s%s |\n", runtime && runtime->linear ? devices_describe(runtime->linear, &linear) : "no",
           runtime && runtime->experts ? devices_describe(runtime->experts, &experts) : "no", d->needs ? "with " : "no",
           d->needs ? d->needs : "");
    quant_config_free(&config);
}

static void put_dialects(void)
{
    puts("@dialects\n| dialect | codes or scheme | tensors of a module | vLLM " RUNTIMES_VLLM
         ", linear layers | experts | transformers |\n|---|---|---|---|---|---|");
    for (size_t i = 0; dialect_at(i); i++)
        for (const struct dialect_form *form = dialect_at(i)->forms; form->stored; form++)
            for (int bits = form->preset ? 8 : 2; bits <= 8; bits++)
                for (int symmetric = 1; symmetric >= !!form->preset && (form->preset || form->bits >> bits & 1);
                     symmetric--)
                    put_dialect(dialect_at(i), form, bits, symmetric);
}

static void put_manual(void)
{
    puts("@manual");
    for (size_t i = 0; scheme_preset_at(i); i++)
        printf(".It %s\n%s; %.4g bits a weight\n", scheme_preset_at(i)->name, scheme_preset_at(i)->summary,
               scheme_preset_bits(scheme_preset_at(i)));
}

static void put_settings(const char *name, const struct quant_args *args)
{
    static const char *const dynamic[] = {
        [QUANT_STATIC] = "", [QUANT_DYNAMIC] = "\"\n    \" dynamic=true", [QUANT_LOCAL] = "\"\n    \" dynamic=local"};
    struct fail f;
    char text[512];
    if (quant_args_settings(args, text, sizeof text, &f) != 0)
        stop(&f);
    printf("    \"%s\": \"%s%s\",\n", name, text, dynamic[args->dynamic]);
}

static void put_names(unsigned devices)
{
    const char *space = "";
    for (int i = 0; device_name(i); i++)
        if (devices & 1u << i) {
            printf("%s%s", space, device_name(i));
            space = " ";
        }
}

static void put_python(void)
{
    puts("@python\n# The weights of each preset scheme, as settings of an observer.\nWEIGHTS = {");
    for (size_t i = 0; scheme_preset_at(i); i++)
        put_settings(scheme_preset_at(i)->name, scheme_preset_at(i)->weights);
    puts("}\n\n# The inputs of the schemes that store their scales.\nINPUTS = {");
    for (size_t i = 0; scheme_preset_at(i); i++)
        if (scheme_preset_at(i)->inputs && scheme_preset_at(i)->inputs->dynamic != QUANT_DYNAMIC)
            put_settings(scheme_preset_at(i)->name, scheme_preset_at(i)->inputs);
    puts("}\n\n# The devices for whose linear layers vLLM " RUNTIMES_VLLM
         " has kernels, and those for a model of experts.\nDEVICES = {");
    for (size_t i = 0; scheme_preset_at(i); i++) {
        struct quant_config config = config_of(scheme_preset_at(i));
        const struct runtime_row *row = runtime_find(&config.groups[0]);
        printf("    \"%s\": (\"", scheme_preset_at(i)->name);
        put_names(row ? row->linear : 0);
        printf("\", \"");
        put_names(row ? row->linear & row->experts : 0);
        puts("\"),");
        quant_config_free(&config);
    }
    puts("}");
}

int main(void)
{
    put_schemes();
    put_common();
    put_written();
    put_read();
    put_dialects();
    put_manual();
    put_python();
    return 0;
}
