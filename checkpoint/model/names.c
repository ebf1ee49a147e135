/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names tell the kind of a tensor. */
#include "model/names.h"

#include <ctype.h>
#include <string.h>

bool ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), tail = strlen(ending);
    return length >= tail && strcmp(text + length - tail, ending) == 0;
}

size_t module_length(const char *name)
{
    if (strcmp(name, "weight") == 0)
        return 0;
    return ends_with(name, ".weight") ? strlen(name) - strlen(".weight") : strlen(name);
}

/* Returns true if the component holds `word`, in any case. */
static bool holds(const char *component, size_t length, const char *word)
{
    const size_t size = strlen(word);
    for (size_t i = 0; i + size <= length; i++) {
        size_t k = 0;
        while (k < size && tolower((unsigned char)component[i + k]) == word[k])
            k++;
        if (k == size)
            return true;
    }
    return false;
}

static bool is(const char *component, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(component, word, length) == 0;
}

/* Layers that are computed as a matrix product but that vLLM keeps in the dtype of the model. */
static const char *const unquantized[] = {"lm_head", "output", "score", "classifier", "gate",
                                          "router",  "wg",     "wte",   "wpe",        "shared_expert_gate"};
static const char *const unquantized_words[] = {"embed", "norm", "conv", "rotary", "router"};

/* Returns the start of the last component of the name. */
static size_t last_component(const char *module, size_t length)
{
    size_t begin = length;
    while (begin > 0 && module[begin - 1] != '.')
        begin--;
    return begin;
}

bool is_embedding_name(const char *module, size_t length)
{
    const size_t begin = last_component(module, length), size = length - begin;
    const char *last = module + begin;
    return holds(last, size, "embed") || is(last, size, "wte") || is(last, size, "wpe");
}

bool is_linear_name(const char *module, size_t length)
{
    const size_t begin = last_component(module, length);
    const char *last = module + begin;
    const size_t size = length - begin;
    /* "output" is the last layer of models in Meta's format; other modules of that name are deeper. */
    for (size_t i = 0; i < sizeof unquantized / sizeof *unquantized; i++)
        if (is(last, size, unquantized[i]) && (begin == 0 || strcmp(unquantized[i], "output") != 0))
            return false;
    for (size_t i = 0; i < sizeof unquantized_words / sizeof *unquantized_words; i++)
        if (holds(last, size, unquantized_words[i]))
            return false;
    return size > 0;
}
