/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints the kinds that the program gives modules, for scripts/architecture_table.py. Reads lines of model types
 * (config.json's own first; @ stands before a class), values of vocab_size, a module's name and the rows of its weight,
 * separated by tabs; lists are separated by commas. Prints the kind by the general rule, the kind by the table, a word
 * of letters, and the other names of the module. Letters, or - for each: k: vLLM keeps the module, w: transformers
 * needs its weight, s: splits it, j: joins it, t: ties it, p: has plain experts alone, e: the table has the experts, v:
 * vLLM lacks the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/architecture.h"

static const char *const kinds[MODULE_KINDS] = {
    [MODULE_LINEAR] = "linear",         [MODULE_HEAD] = "head",
    [MODULE_TABLE] = "table",           [MODULE_ROUTER] = "router",
    [MODULE_CONV1D] = "conv1d",         [MODULE_KEPT] = "kept",
    [MODULE_EXPERTS] = "experts",       [MODULE_STACKED_EXPERTS] = "experts",
    [MODULE_SINGLE_EXPERTS] = "experts"};

int main(void)
{
    static char line[1 << 16], alias[1 << 12];
    while (fgets(line, sizeof line, stdin)) {
        char *parts[4] = {line}, *save = NULL;
        for (int i = 1; i < 4; i++) {
            parts[i] = strchr(parts[i - 1], '\t');
            if (!parts[i])
                return 2;
            *parts[i]++ = '\0';
        }
        struct architectures general = {0}, found = {0};
        for (char *v = strtok_r(parts[1], ",", &save); v; v = strtok_r(NULL, ",", &save))
            if (general.vocabulary_count < MAX_VOCABULARIES)
                general.vocabularies[general.vocabulary_count++] = strtoll(v, NULL, 10);
        found = general;
        bool root = true;
        for (char *t = strtok_r(parts[0], ",", &save); t; t = strtok_r(NULL, ",", &save), root = false)
            architectures_add(&found, *t == '@' ? NULL : t, *t == '@' ? t + 1 : NULL, root);
        const char *name = parts[2];
        const size_t length = strlen(name);
        const int64_t rows = strtoll(parts[3], NULL, 10);
        const char letters[] = {architecture_list(&found, LIST_OF(vllm_keeps), name, length) ? 'k' : '-',
                                architecture_list(&found, LIST_OF(needs_weight), name, length) ? 'w' : '-',
                                architecture_list(&found, LIST_OF(splits), name, length) ? 's' : '-',
                                architecture_list(&found, LIST_OF(joins), name, length) ? 'j' : '-',
                                architecture_list(&found, LIST_OF(ties), name, length) ? 't' : '-',
                                architecture_plain_experts(&found) ? 'p' : '-',
                                architecture_kind_of_experts(&found, name, length) != MODULE_LINEAR ? 'e' : '-',
                                architecture_lacks_vllm(&found) ? 'v' : '-',
                                '\0'};
        printf("%s %s %s", kinds[architecture_kind(&general, name, length, rows)],
               kinds[architecture_kind(&found, name, length, rows)], letters);
        for (size_t i = 0; architecture_alias(&found, name, length, i, alias, sizeof alias); i++)
            printf(" %s", alias);
        printf("\n");
    }
    return 0;
}
