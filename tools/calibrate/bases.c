/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parses [BASE=]NAME and [BASE.]KEY=VALUE and creates the configurations. */
#include "bases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const base_names[BASES] = {"weight", "input", "output", "q", "k", "v"};

/* Returns the bases that a name stands for, one bit for each; 0: unknown name. */
static unsigned parse_base(const char *name, size_t length)
{
    for (int b = 0; b < BASES; b++)
        if (strlen(base_names[b]) == length && memcmp(base_names[b], name, length) == 0)
            return 1u << b;
    return length == 2 && memcmp(name, "kv", 2) == 0 ? 1u << BASE_K | 1u << BASE_V : 0;
}

static int unknown_base(const char *option, const char *name, size_t length)
{
    return print_error(EXIT_USAGE, "%s: '%.*s' is no base name; known are weight, input, output, q, k, v and kv",
                       option, (int)length, name);
}

int bases_preset(struct bases *bases, const char *argument)
{
    const char *equals = strchr(argument, '=');
    const size_t length = equals ? (size_t)(equals - argument) : 0;
    const unsigned mask = equals ? parse_base(argument, length) : 1u << BASE_WEIGHT;
    if (mask == 0)
        return unknown_base("--preset", argument, length);
    for (int b = 0; b < BASES; b++)
        if (mask & 1u << b) {
            bases->observers[b].preset = equals ? equals + 1 : argument;
            bases->observers[b].requested = true;
        }
    return EXIT_OK;
}

/* Returns the bases of an assignment. *rest is the assignment without its base, *length the length of that base. */
static unsigned assignment_bases(const char *assignment, const char **rest, size_t *length)
{
    *length = strcspn(assignment, ".=");
    const bool dotted = assignment[*length] == '.';
    *rest = dotted ? assignment + *length + 1 : assignment;
    return dotted ? parse_base(assignment, *length) : 1u << BASE_WEIGHT;
}

int bases_set(struct bases *bases, const char *argument)
{
    const char *rest, **grown = realloc(bases->assignments, (bases->count + 1) * sizeof *grown);
    size_t length;
    if (!grown)
        return print_error(EXIT_SYSTEM, "--set: no memory");
    bases->assignments = grown;
    const unsigned mask = assignment_bases(argument, &rest, &length);
    if (mask == 0)
        return unknown_base("--set", argument, length);
    if (strncmp(rest, "base_name=", 10) == 0)
        return print_error(EXIT_USAGE,
                           "--set: is '%s', but the base name is what stands before the setting: input.num_bits=8",
                           argument);
    for (int b = 0; b < BASES; b++)
        bases->observers[b].requested |= (mask & 1u << b) != 0;
    grown[bases->count++] = argument;
    return EXIT_OK;
}

static int make(struct bases *bases, enum base base, const char *preset, const char *settings, const char *user)
{
    struct base_observer *o = &bases->observers[base];
    qobs_error error;
    char about[32];
    o->preset = o->preset ? o->preset : preset;
    if (base != BASE_WEIGHT && strcmp(o->preset, "none") == 0)
        return EXIT_OK;
    snprintf(about, sizeof about, base == BASE_WEIGHT ? "--preset" : "--preset %s", base_names[base]);
    if (qobs_config_create(&o->config, o->preset, NULL, &error) != QOBS_OK)
        return print_preset_error(&error, about, o->preset);
    if (qobs_config_set(o->config, "base_name", base_names[base], &error) != QOBS_OK)
        return print_status_error(&error, about);
    if (qobs_config_set_all(o->config, settings, &error) != QOBS_OK)
        return print_error(EXIT_USAGE, "--preset: %s cannot serve %s: %s", o->preset, user, error.message);
    int code = EXIT_OK;
    for (size_t i = 0; code == EXIT_OK && i < bases->count; i++) {
        const char *rest;
        size_t length;
        if (assignment_bases(bases->assignments[i], &rest, &length) & 1u << base)
            code = set_option(o->config, rest);
    }
    if (code == EXIT_OK && qobs_config_check(o->config, &error) != QOBS_OK)
        code = base == BASE_WEIGHT ? print_status_error(&error, NULL) : print_status_error(&error, base_names[base]);
    o->needs = config_is(o->config, "dynamic", "true")    ? NEEDS_DYNAMIC
               : config_is(o->config, "dynamic", "local") ? NEEDS_GLOBAL_SCALE
                                                          : NEEDS_SCALES;
    o->zero_points = config_is(o->config, "symmetric", "false");
    o->global_scales = config_is(o->config, "strategy", "tensor_group");
    o->optimal = config_has(o->config, "signed_scale");
    o->hessian = config_has(o->config, "hessian_block_size");
    o->searches = o->optimal || config_has(o->config, "patience");
    o->uses_importance = config_has(o->config, "strict");
    return code;
}

int bases_make(struct bases *bases, const struct scheme *scheme)
{
    static const char running[] = "llmc.static_minmax", kv[] = "type=float num_bits=8 strategy=tensor";
    char user[64];
    snprintf(user, sizeof user, "scheme %s", scheme->name);
    int code = make(bases, BASE_WEIGHT, "llmc.memoryless_minmax", scheme->weights, user);
    if (code == EXIT_OK && (scheme->inputs || bases->observers[BASE_INPUT].requested))
        code = make(bases, BASE_INPUT, running, scheme->inputs ? scheme->inputs : "", user);
    if (code == EXIT_OK && bases->observers[BASE_OUTPUT].requested)
        code = make(bases, BASE_OUTPUT, running, "", "outputs");
    for (enum base b = BASE_Q; code == EXIT_OK && b <= BASE_V; b++)
        if (b != BASE_Q || bases->observers[b].requested)
            code = make(bases, b, running, kv, "e4m3 states");
    return code;
}

void bases_free(struct bases *bases)
{
    for (int b = 0; b < BASES; b++)
        qobs_config_destroy(bases->observers[b].config);
    free(bases->assignments);
    *bases = (struct bases){0};
}
