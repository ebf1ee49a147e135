/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Writes small good inputs for every fuzz target into DIRECTORY/TARGET/: fuzz_seeds DIRECTORY */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "qobs/qobs.h"

static const char *top;

static void make_directory(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        perror(path);
        exit(1);
    }
}

static void write_seed(const char *target, const char *name, const void *bytes, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", top, target);
    make_directory(path);
    snprintf(path, sizeof path, "%s/%s/%s", top, target, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static void check(int status, const qobs_error *error)
{
    if (status != QOBS_OK) {
        fprintf(stderr, "seeds: %s\n", error->message);
        exit(1);
    }
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* `length` is the 8 or 2 bytes before the header. */
static void write_with_header(const char *target, const char *name, const char *magic, size_t magic_size,
                              size_t length_size, const char *header, size_t data)
{
    unsigned char file[1024] = {0};
    const size_t n = strlen(header);
    memcpy(file, magic, magic_size);
    file[magic_size] = (unsigned char)n;
    file[magic_size + 1] = (unsigned char)(n >> 8);
    memcpy(file + magic_size + length_size, header, n);
    write_seed(target, name, file, magic_size + length_size + n + data);
}

static void safetensors(const char *name, const char *header, size_t data)
{
    write_with_header("safetensors", name, "", 0, 8, header, data);
}

static void npy(const char *name, int major, const char *header, size_t data)
{
    const char magic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y', (char)major, 0};
    write_with_header("npy", name, magic, sizeof magic, major == 1 ? 2 : 4, header, data);
}

static void imatrix_seeds(void)
{
    static const char old[] = "\2\0\0\0"
                              "\1\0\0\0a\1\0\0\0\2\0\0\0\0\0\200\77\0\0\0\100"
                              "\1\0\0\0b\2\0\0\0\1\0\0\0\0\0\200\77";
    static const char gguf[] = "GGUF\3\0\0\0"
                               "\2\0\0\0\0\0\0\0"
                               "\3\0\0\0\0\0\0\0"
                               "\1\0\0\0\0\0\0\0t\10\0\0\0\1\0\0\0\0\0\0\0i"
                               "\21\0\0\0\0\0\0\0general.alignment\4\0\0\0\4\0\0\0"
                               "\1\0\0\0\0\0\0\0l\11\0\0\0\4\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0"
                               "\11\0\0\0\0\0\0\0a.in_sum2\1\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                               "\10\0\0\0\0\0\0\0a.counts\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0";
    char file[sizeof gguf + 15] = "";
    write_seed("imatrix", "old", old, sizeof old - 1);
    memcpy(file, gguf, sizeof gguf - 1); /* the floats behind it are 0 */
    write_seed("imatrix", "gguf", file, sizeof file);
    write_seed("gguf", "imatrix", file, sizeof file);
}

static void files(void)
{
    safetensors("empty", "{}", 0);
    safetensors(
        "two",
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}}",
        26);
    safetensors("escapes", "{\"a\\u00e9\\n\":{\"dtype\":\"I64\",\"shape\":[0,5],\"data_offsets\":[0,0]}} ", 0);
    safetensors("types",
                "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]},"
                "\"c\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[1,4],\"more\":[1e3,null,true]}}",
                4);
    npy("matrix", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n", 48);
    npy("fortran", 1, "{'descr': '<f2', 'fortran_order': True, 'shape': (2, 3, 4), }\n", 48);
    npy("scalar", 2, "{\"shape\": (), \"descr\": \"|u1\", \"fortran_order\": False}", 1);
    npy("vector", 3, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", 16);
    imatrix_seeds();
    static const char *const indices[] = {
        "{\"metadata\":{\"total_size\":17},\"weight_map\":{\"a\":\"101\",\"b\":\"101\",\"c\":\"102\"}}",
        "{\"weight_map\":{}}", "{\"weight_map\":{\"a\":\"./101\"}}",
        "{\"weight_map\":{\"a\":\"x/../101\",\"\\u0061\":\"/etc\"}}"};
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++)
        write_seed("shards", (char[]){(char)('0' + i), '\0'}, indices[i], strlen(indices[i]));
}

/* ---- Settings and states ----------------------------------------------------------------------------------------- */

/* The preset's name and every setting it has, a line each. */
static size_t describe(const qobs_config *config, const char *preset, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "%s\n", preset);
    for (size_t i = 0; i < qobs_config_key_count(config); i++) {
        char value[64];
        qobs_config_get(config, qobs_config_key(config, i), value, sizeof value, NULL);
        n += (size_t)snprintf(text + n, size - n, "%s=%s\n", qobs_config_key(config, i), value);
    }
    return n;
}

static void write_state(const qobs_observer *o, const char *preset, const char *suffix)
{
    qobs_error error;
    char name[96];
    const size_t size = qobs_observer_save_size(o);
    void *state = malloc(size);
    if (!state)
        exit(1);
    check(qobs_observer_save(o, state, size, &error), &error);
    snprintf(name, sizeof name, "%s%s", preset, suffix);
    write_seed("state", name, state, size);
    free(state);
}

/* Without data and with that of two batches. */
static void states(const qobs_config *config, const char *preset, const char *suffix)
{
    qobs_observer *o;
    qobs_error error;
    char with_data[64];
    static float data[256];
    /* The largest block has 256 elements, and groups of 16 cannot be made smaller. */
    const bool is_wide = strncmp(preset, "ggml.", 5) == 0 || strcmp(preset, "vllm.scaled_fp4_quant") == 0;
    const int64_t shape[] = {is_wide ? 1 : 4, is_wide ? 256 : 8};
    const qobs_tensor value = {.struct_size = sizeof value, .data = data, .dtype = QOBS_F32, .ndim = 2, .shape = shape};
    for (int i = 0; i < 256; i++)
        data[i] = (float)((i * 7) % 13 - 6) / 4;
    check(qobs_observer_create(&o, config, NULL, &error), &error);
    write_state(o, preset, suffix);
    qobs_observer_observe_importance(o, &value, &error); /* where there is one */
    check(qobs_observer_observe(o, &value, NULL, &error), &error);
    data[3] *= 2;
    qobs_observer_observe(o, &value, NULL, &error); /* some take one batch only */
    snprintf(with_data, sizeof with_data, "%s-data", suffix);
    write_state(o, preset, with_data);
    qobs_observer_destroy(o);
}

/* Small histograms: a state's bytes are what mutations have to work on. */
static void set_if_known(qobs_config *config, const char *key, const char *value)
{
    qobs_error error;
    const int status = qobs_config_set(config, key, value, &error);
    if (status != QOBS_OK && !strstr(error.message, "no setting"))
        check(status, &error);
}

static void settings(void)
{
    static const char *const llmc[][3] = {
        {"-channel", "strategy", "channel"}, {"-token", "dynamic", "true"}, {"-old", "version", "2025-09"}};
    for (size_t p = 0; p < qobs_preset_count(); p++) {
        const char *preset = qobs_preset_name(p);
        qobs_config *config;
        qobs_error error;
        char text[2048];
        check(qobs_config_create(&config, preset, NULL, &error), &error);
        write_seed("settings", preset, text, describe(config, preset, text, sizeof text));
        set_if_known(config, "bins", "8");
        /* The fewest bins that DistributionCalibrater takes are 512. */
        set_if_known(config, "num_bins", strstr(preset, "Distribution") ? "512" : "8");
        set_if_known(config, "start_bin", "2");
        set_if_known(config, "block_size", "4");
        if (strncmp(preset, "quark.", 6) == 0) {
            set_if_known(config, "ch_axis", "-1");
            set_if_known(config, "group_size", "4");
            if (strstr(preset, "PerBlockMX"))
                set_if_known(config, "scale_format", "e8m0");
        }
        if (strcmp(preset, "vllm.per_token_group_quant_fp8") == 0)
            set_if_known(config, "group_size", "4");
        if (strcmp(preset, "torch.FixedQParamsObserver") == 0) {
            set_if_known(config, "scale", "0.5");
            set_if_known(config, "zero_point", "3");
        }
        states(config, preset, "");
        if (strncmp(preset, "modelopt.", 9) == 0) {
            set_if_known(config, "block_size", "8");
            if (qobs_config_set(config, "hessian_block_size", "8", &error) == QOBS_OK)
                states(config, preset, "-hessian");
        }
        for (size_t i = 0; i < 3 && strncmp(preset, "llmc.", 5) == 0; i++) {
            qobs_config *other;
            check(qobs_config_create(&other, preset, NULL, &error), &error);
            check(qobs_config_set(other, "base_name", "weight", &error), &error);
            check(qobs_config_set(other, llmc[i][1], llmc[i][2], &error), &error);
            if (qobs_config_check(other, &error) == QOBS_OK)
                states(other, preset, llmc[i][0]);
            qobs_config_destroy(other);
        }
        qobs_config_destroy(config);
    }
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* Bytes that choose: any will do. */
static void choices(const char *target, size_t count)
{
    uint64_t state = 20261120;
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[160];
        char name[24];
        const size_t size = 16 + i % 10 * 16;
        for (size_t k = 0; k < size; k++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            bytes[k] = (unsigned char)(state >> 56);
        }
        snprintf(name, sizeof name, "%03zu", i);
        write_seed(target, name, bytes, size);
    }
}

/* ---- Schemes ----------------------------------------------------------------------------------------------------- */

/* The first byte says what the rest is. */
static void scheme_seeds(void)
{
    static const char config[] = "0{\"config_groups\":{\"g\":{\"targets\":[\"Linear\",\"re:.*q_proj\"],\"weights\":"
                                 "{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":128,"
                                 "\"symmetric\":false,\"observer\":\"mse\",\"observer_kwargs\":{\"grid\":20}}},"
                                 "\"NVFP4\":[\"re:.*v_proj\"]},\"ignore\":[\"lm_head\"],\"kv_cache_scheme\":"
                                 "{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\"}}";
    static const char recipe[] =
        "1default_stage:\n  default_modifiers:\n    QuantizationModifier:\n      targets: Linear\n"
        "      ignore: [lm_head, 're:.*gate']\n      scheme: W4A16\n";
    static const char groups[] =
        "1QuantizationModifier:\n  config_groups:\n    a:\n      targets: ['re:.*mlp.*']\n"
        "      weights: &w {num_bits: 8, type: float, strategy: block, block_structure: [128, 128]}\n"
        "      input_activations: {num_bits: 8, type: float, strategy: token, dynamic: true}\n";
    write_seed("schemes", "config", config, sizeof config - 1);
    write_seed("schemes", "recipe", recipe, sizeof recipe - 1);
    write_seed("schemes", "groups", groups, sizeof groups - 1);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_seeds DIRECTORY\n");
        return 2;
    }
    top = argv[1];
    make_directory(top);
    files();
    settings();
    scheme_seeds();
    choices("api", 300);
    choices("kernels", 200);
    return 0;
}
