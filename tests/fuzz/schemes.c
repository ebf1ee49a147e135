/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any bytes as a quantization_config (first byte even) or as a recipe (odd): refused with a message, or completed,
 * printed and read again, and its patterns compiled and matched. */
#include "file.h"
#include "files/json.h"
#include "schemes/match.h"
#include "schemes/quant_config.h"

volatile unsigned touched;

/* Returns false if a pattern is none, of the targets or of what is ignored; a run stops there. */
static bool match_names(const struct quant_config *config)
{
    static const char *const names[] = {"lm_head", "model.layers.10.self_attn.q_proj", ""};
    struct quant_matchers m = {0};
    struct fail f = {.message = ""};
    const bool compiled = quant_matchers_create(&m, config, &f) == 0;
    must(compiled || f.message[0] != '\0');
    for (size_t g = 0; compiled && g < config->group_count; g++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const ptrdiff_t found = matcher_find(m.groups[g], names[i], strlen(names[i]));
            must(found >= -1 && found < (ptrdiff_t)config->groups[g].target_count);
        }
    quant_matchers_free(&m);
    return compiled;
}

/* The printed scheme is read again and prints the same. */
static void check_again(const struct quant_config *config)
{
    struct quant_config again = {0};
    struct fail f = {.message = ""};
    json_object *json = quant_config_json(config, NULL), *parsed, *other;
    must(json != NULL);
    char *text = json_print(json, JSON_SORTED);
    must(text && json_parse(&parsed, "config", "text", text, strlen(text), &f) == 0);
    if (quant_config_parse(&again, parsed, "config", &f) == 0) {
        other = quant_config_json(&again, parsed);
        must(other != NULL);
        json_object_put(other);
    } else {
        must(f.message[0] != '\0');
    }
    quant_config_free(&again);
    json_object_put(parsed);
    json_object_put(json);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct quant_config config = {0};
    struct fail f = {.message = ""};
    if (size == 0)
        return 0;
    file_fill(100, data + 1, size - 1);
    int result = *data % 2 ? quant_config_read_recipe(&config, "/proc/self/fd/100", &f)
                           : quant_config_read(&config, "/proc/self/fd/100", &f);
    must(result == 0 || f.message[0] != '\0');
    if (result == 0) {
        result = quant_config_finish(&config, (qobs_compat)(*data / 2 % (QOBS_COMPAT_NEXT + 1)), &f);
        must(result == 0 || f.message[0] != '\0');
    }
    if (result == 0 && match_names(&config))
        check_again(&config);
    quant_config_free(&config);
    return 0;
}
