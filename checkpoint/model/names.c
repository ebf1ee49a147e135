/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names tell the kind of a tensor. */
#include "model/names.h"

#include <string.h>

bool is_one_of(const char *word, const char *words)
{
    const size_t length = strlen(word);
    for (const char *at = words; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (strncmp(at, word, length) == 0 && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

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
