/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The presets, the settings of a preset among the rows of its family, the words that families share, and defaults. */
#include "config/families.h"

#include <string.h>

/* A new stage needs no header: its row declares it. */
#define PRESET(name, family, feature, granularity, reduction, accumulator, range, formula, search, summary)            \
    extern const struct granularity_ops qobs_granularity_##granularity;                                                \
    extern const struct reduction_ops qobs_reduction_##reduction;                                                      \
    extern const struct accumulator_ops qobs_accumulate_##accumulator;                                                 \
    extern const struct range_ops qobs_range_##range;
#include "stages/preset_rows.h"
#undef PRESET

#if QOBS_HAS(llmc) && QOBS_HAS(searches)
static const struct search_defaults mse = {
    .settings = {.maxshrink = 0.20, .grid = 100, .norm = 2.4, .expand = 1, .patience = 5, .chunk_size = 5}};
static const struct search_defaults imatrix_mse = {
    .settings = {.maxshrink = 0.95, .grid = 20, .norm = 3, .expand = 1, .patience = 5},
    .importance = true,
    .since_2026 = true};
#define NVFP4_EXPANDED                                                                                                 \
    .settings =                                                                                                        \
        {.maxshrink = 1 - 0.8 / 1.8, .grid = 200, .norm = 2.4, .expand = 1.8, .patience = 1000, .chunk_size = 5},      \
    .since_2026 = true
static const struct search_defaults nvfp4_expanded_mse = {NVFP4_EXPANDED};
static const struct search_defaults nvfp4_expanded_imatrix = {NVFP4_EXPANDED, .importance = true};
#endif

#define PRESET(name, family, feature, granularity, reduction, accumulator, range, formula, search, summary)            \
    QOBS_IF(QOBS_HAS(family),                                                                                          \
            QOBS_IF(QOBS_HAS(feature),                                                                                 \
                    {name, &qobs_family_##family, &qobs_granularity_##granularity, &qobs_reduction_##reduction,        \
                     &qobs_accumulate_##accumulator, &qobs_range_##range, FORMULA_##formula, search, summary}, ))
static const struct preset presets[] = {
#include "stages/preset_rows.h"
};
#undef PRESET

/* All of them, for messages. */
#define PRESET(name, family, feature, ...) {name, QOBS_HAS(family), QOBS_HAS(feature) ? NULL : #feature},
static const struct {
    const char *name;
    bool has_family;
    const char *missing; /* feature */
} known[] = {
#include "stages/preset_rows.h"
};
#undef PRESET

enum { COUNT = sizeof presets / sizeof *presets };

/* True if `name` is the preset's own name after `prefix`, which stands for that of its family. */
static bool is_after(const char *prefix, const char *name, const struct preset *preset)
{
    const size_t length = prefix ? strlen(prefix) : 0;
    return length > 0 && strncmp(name, prefix, length) == 0 &&
           strcmp(strchr(preset->name, '.') + 1, name + length) == 0;
}

static bool is_name_of(const struct preset *preset, const char *name, int *version)
{
    *version = VERSION_CURRENT;
    if (strcmp(preset->name, name) == 0 || is_after(preset->ops->old_prefix, name, preset))
        return true;
    for (int v = 0; v < VERSIONS && preset->ops->releases; v++)
        if (is_after(preset->ops->releases[v].prefix, name, preset)) {
            *version = v;
            return true;
        }
    return false;
}

bool qobs_config_defaults_of(const char *name, struct qobs_config *config)
{
    int version;
    for (size_t i = 0; i < COUNT; i++)
        if (is_name_of(&presets[i], name, &version)) {
            *config = qobs_config_defaults(&presets[i]);
            if (version != VERSION_CURRENT) /* a name of llm-compressor */
                config->scheme.version = version;
            return true;
        }
    return false;
}

int qobs_preset_left_out(const char *name, qobs_error *error)
{
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++) {
        const int family = (int)strcspn(known[i].name, ".");
        if (strcmp(name, known[i].name) != 0)
            continue;
        return qobs_fail(error, QOBS_ERROR_UNSUPPORTED, "preset: %s is left out of this build; -D%s=%.*s brings it",
                         name, known[i].has_family ? "features" : "families",
                         known[i].has_family ? (int)strlen(known[i].missing) : family,
                         known[i].has_family ? known[i].missing : known[i].name);
    }
    return QOBS_OK;
}

size_t qobs_preset_count(void) { return COUNT; }

const char *qobs_preset_name(size_t index) { return index < COUNT ? presets[index].name : NULL; }

const char *qobs_preset_summary(size_t index) { return index < COUNT ? presets[index].summary : NULL; }

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

const struct word qobs_switch_words[] = {{"true", true}, {"false", false}, {0}};
const struct word qobs_nonfinite_modes[] = {
    {"refuse", NONFINITE_REFUSE}, {"ignore", NONFINITE_IGNORE}, {"propagate", NONFINITE_PROPAGATE}, {0}};
const struct word qobs_histogram_nonfinite_modes[] = {{"refuse", NONFINITE_REFUSE},
                                                      {"refuse_nan", NONFINITE_REFUSE_NAN},
                                                      {"ignore", NONFINITE_IGNORE},
                                                      {"propagate", NONFINITE_PROPAGATE},
                                                      {0}};

int qobs_settings_check(const struct qobs_config *config, qobs_error *error)
{
    const struct preset *preset = config->preset;
    if (preset->ops->check)
        RETURN_IF_FAILED(preset->ops->check(config, error));
    if (!config->is_dynamic || !preset->accumulator->averages || config->averaging_constant == 1)
        return QOBS_OK;
    return qobs_invalid(error, "is_dynamic: %s allows it only with averaging_constant 1, not %g", preset->name,
                        config->averaging_constant);
}

bool qobs_setting_is_saved(const struct setting *s, const struct qobs_config *config)
{
    return !s->added || *(const bool *)((const unsigned char *)config + s->set);
}

void qobs_config_set_unsaved(struct qobs_config *config)
{
    if (config->preset->search)
        config->scheme.search.dtype = SEARCH_FLOAT32; /* the only arithmetic of states without this setting */
}

/* The first row from *row on that the preset has; NULL: there is none. */
static const struct setting *next_of(const struct preset *preset, size_t *row)
{
    for (; *row < preset->ops->setting_count; ++*row) {
        const struct setting *s = &preset->ops->settings[*row];
        if (!s->only || s->only(preset))
            return s;
    }
    return NULL;
}

const struct setting *qobs_setting_at(const struct preset *preset, size_t index)
{
    const struct setting *s;
    for (size_t row = 0; (s = next_of(preset, &row)) && index > 0; index--)
        row++;
    return s;
}

const struct setting *qobs_setting_find(const struct preset *preset, const char *key)
{
    const struct setting *s;
    for (size_t row = 0; (s = next_of(preset, &row)) && strcmp(s->key, key) != 0;)
        row++;
    return s;
}

enum { OWNERS = 3 };

/* Writes the first presets that have a setting: those of the family, or of others if they are few. */
static void list_owners(const struct preset *preset, const char *key, char *owners, size_t size)
{
    size_t of_family = 0, of_all = 0, listed = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const bool has = qobs_setting_find(&presets[i], key);
        of_family += has && presets[i].ops == preset->ops;
        of_all += has;
    }
    const size_t count = of_family > 0 ? of_family : of_all <= OWNERS ? of_all : 0;
    for (size_t i = 0; i < COUNT && listed < count && listed < OWNERS; i++)
        if ((of_family == 0 || presets[i].ops == preset->ops) && qobs_setting_find(&presets[i], key)) {
            qobs_list_word(owners, size, presets[i].name);
            listed++;
        }
    if (listed < count)
        qobs_list_word(owners, size, "...");
}

int qobs_setting_require(const struct preset *preset, const char *key, const struct setting **setting,
                         qobs_error *error)
{
    *setting = qobs_setting_find(preset, key);
    if (*setting)
        return QOBS_OK;
    char known[220] = "", owners[160] = "";
    const struct setting *s;
    list_owners(preset, key, owners, sizeof owners);
    if (*owners)
        return qobs_invalid(error, "%s: '%s' is no setting of it; it belongs to %s", preset->name, key, owners);
    for (size_t row = 0; (s = next_of(preset, &row)); row++)
        qobs_list_word(known, sizeof known, s->key);
    return qobs_invalid(error, "%s: '%s' is no setting; known are %s", preset->name, key, known);
}

struct qobs_config qobs_config_defaults(const struct preset *preset)
{
    struct qobs_config config = {
        .preset = preset,
        .averaging_constant = 0.01,
        .symmetric = true,
        .eps = 0x1p-23,
        .nonfinite = qobs_preset_has_torch_histogram(preset) ? NONFINITE_REFUSE_NAN : NONFINITE_REFUSE,
        .histogram =
            {.bins = 2048, .num_bins = 2048, .upsample_rate = 16, .percentile = 99.99, .stride = 1, .start_bin = 128},
    };
    preset->ops->set_defaults(&config);
    return config;
}
