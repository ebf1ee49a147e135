/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "bases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const base_names[BASES] = {"weight", "input", "output", "q", "k", "v"};

/* A set of bases, a bit each. */
static unsigned parse_base(const char *name, size_t length)
{
    for (int b = 0; b < BASES; b++)
        if (strlen(base_names[b]) == length && memcmp(base_names[b], name, length) == 0)
            return 1u << b;
    return length == 2 && memcmp(name, "kv", 2) == 0 ? 1u << BASE_K | 1u << BASE_V : 0;
}

static int unknown_base(const char *option, const char *name, size_t length)
{
    return complain(EXIT_WRONG, "%s: '%.*s' is no base name; known are weight, input, output, q, k, v and kv", option,
                    (int)length, name);
}

int bases_preset(struct bases *bases, const char *given)
{
    const char *equals = strchr(given, '=');
    const size_t length = equals ? (size_t)(equals - given) : 0;
    const unsigned set = equals ? parse_base(given, length) : 1u << BASE_WEIGHT;
    if (set == 0)
        return unknown_base("--preset", given, length);
    for (int b = 0; b < BASES; b++)
        if (set & 1u << b) {
            bases->of[b].preset = equals ? equals + 1 : given;
            bases->of[b].asked = true;
        }
    return EXIT_OK;
}

/* Which bases an assignment is for; *rest is it without them. */
static unsigned assigned_to(const char *assignment, const char **rest, size_t *length)
{
    *length = strcspn(assignment, ".=");
    const bool dotted = assignment[*length] == '.';
    *rest = dotted ? assignment + *length + 1 : assignment;
    return dotted ? parse_base(assignment, *length) : 1u << BASE_WEIGHT;
}

int bases_set(struct bases *bases, const char *given)
{
    const char *rest, **grown = realloc(bases->assignments, (bases->count + 1) * sizeof *grown);
    size_t length;
    if (!grown)
        return complain(EXIT_TROUBLE, "--set: no memory");
    bases->assignments = grown;
    const unsigned set = assigned_to(given, &rest, &length);
    if (set == 0)
        return unknown_base("--set", given, length);
    if (strncmp(rest, "base_name=", 10) == 0)
        return complain(EXIT_WRONG, "--set: is '%s', but the base name is what stands before the setting: input.num_bits=8",
                        given);
    for (int b = 0; b < BASES; b++)
        bases->of[b].asked |= (set & 1u << b) != 0;
    grown[bases->count++] = given;
    return EXIT_OK;
}

/* Settings as a scheme has them: "key=value key=value". */
static int apply(qobs_config *config, const char *preset, const char *settings, const char *whose)
{
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", settings);
    for (char *setting; (setting = strtok_r(rest, " ", &rest));) {
        char *value = strchr(setting, '=');
        qobs_error error;
        *value++ = '\0';
        if (qobs_config_set(config, setting, value, &error) != QOBS_OK)
            return complain(EXIT_WRONG, "--preset: %s cannot serve %s: %s", preset, whose, error.message);
    }
    return EXIT_OK;
}

static int make(struct bases *bases, enum base base, const char *preset, const char *settings, const char *whose)
{
    struct base_observer *o = &bases->of[base];
    qobs_error error;
    char about[32];
    o->preset = o->preset ? o->preset : preset;
    if (base != BASE_WEIGHT && strcmp(o->preset, "none") == 0)
        return EXIT_OK;
    snprintf(about, sizeof about, "--preset%s%s", base == BASE_WEIGHT ? "" : " ", base == BASE_WEIGHT ? "" : base_names[base]);
    if (qobs_config_create(&o->config, o->preset, NULL, &error) != QOBS_OK)
        return complain_status(&error, about);
    if (qobs_config_set(o->config, "base_name", base_names[base], &error) != QOBS_OK)
        return complain_status(&error, about);
    int code = apply(o->config, o->preset, settings, whose);
    for (size_t i = 0; code == EXIT_OK && i < bases->count; i++) {
        const char *rest;
        size_t length;
        if (assigned_to(bases->assignments[i], &rest, &length) & 1u << base)
            code = set_option(o->config, rest);
    }
    if (code == EXIT_OK && qobs_config_check(o->config, &error) != QOBS_OK)
        code = base == BASE_WEIGHT ? complain_status(&error, NULL) : complain_status(&error, base_names[base]);
    o->needs = config_is(o->config, "dynamic", "true")    ? NEEDS_DYNAMIC
               : config_is(o->config, "dynamic", "local") ? NEEDS_GLOBAL_SCALE
                                                          : NEEDS_SCALES;
    o->zero_points = config_is(o->config, "symmetric", "false");
    o->global_scales = config_is(o->config, "strategy", "tensor_group");
    o->searches = config_has(o->config, "patience");
    o->weighs = config_has(o->config, "strict");
    return code;
}

int bases_make(struct bases *bases, const struct scheme *scheme)
{
    static const char running[] = "llmc.static_minmax", kv[] = "type=float num_bits=8 strategy=tensor";
    char whose[64];
    snprintf(whose, sizeof whose, "scheme %s", scheme->name);
    int code = make(bases, BASE_WEIGHT, "llmc.memoryless_minmax", scheme->weights, whose);
    if (code == EXIT_OK && (scheme->inputs || bases->of[BASE_INPUT].asked))
        code = make(bases, BASE_INPUT, running, scheme->inputs ? scheme->inputs : "", whose);
    if (code == EXIT_OK && bases->of[BASE_OUTPUT].asked)
        code = make(bases, BASE_OUTPUT, running, "", "outputs");
    for (enum base b = BASE_Q; code == EXIT_OK && b <= BASE_V; b++)
        if (b != BASE_Q || bases->of[b].asked)
            code = make(bases, b, running, kv, "e4m3 states");
    return code;
}

void bases_free(struct bases *bases)
{
    for (int b = 0; b < BASES; b++)
        qobs_config_destroy(bases->of[b].config);
    free(bases->assignments);
    *bases = (struct bases){0};
}
