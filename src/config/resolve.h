/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to the stages of an observer and to the numbers and codes of quantization. */
#pragma once

#include "config/config.h"
#include "stages/stages.h"

void qobs_stages_of(const qobs_config *config, struct stages *stages);

/* One resolver for each stage: the only places that look at presets and settings. */
void qobs_resolve_granularity(const qobs_config *config, struct granularity *granularity);
void qobs_resolve_reduction(const qobs_config *config, struct reduction *reduction);
void qobs_resolve_range(const qobs_config *config, struct range_rule *rule);
void qobs_resolve_bins(const qobs_config *config, struct bins_params *bins); /* also of presets without a histogram */
void qobs_resolve_formula(const qobs_config *config, struct formula *formula);
void qobs_resolve_traits(const qobs_config *config, struct observer_traits *traits);

/* Resolves a checked configuration to a rule of quantization to the numbers of `format`; NULL: to its own. `codes` says
 * that the numbers must have codes (resolve.c). */
struct quantize_rule;
int qobs_resolve_quantize(const qobs_config *config, const struct qobs_format *format, bool codes,
                          struct quantize_rule *rule, qobs_error *error);

/* Fails for presets whose codes are not those of a scheme. */
int qobs_require_scheme(const qobs_config *config, qobs_error *error);

/* The numbers of fake-quantize by an amax. False: the preset has none. */
struct amax_numbers;
bool qobs_resolve_amax_numbers(const qobs_config *config, struct amax_numbers *numbers);

/* True if batches are searched as llm-compressor does. */
static inline bool qobs_config_searches_grid(const qobs_config *config) { return config->preset->search != NULL; }

/* True if presets of the family find a range in a histogram of the caller in that way. */
bool qobs_config_has_finder(const qobs_config *config, enum range_finder finder);
