/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The names of layers that share a global scale, against llm-compressor's resolution of its fused mappings (suite
 * fused_names: present names and the groups they make). */
#include "golden.h"
#include "model/fused.h"

enum { NAMES = 32, NAME = 96 };

static size_t index_of(const cJSON *present, const char *name)
{
    for (int i = 0; i < cJSON_GetArraySize(present); i++)
        if (strcmp(cJSON_GetArrayItem(present, i)->valuestring, name) == 0)
            return (size_t)i;
    fail_case("%s is not present", name);
    return 0;
}

static void test_names(void **state)
{
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(*state, "config"), *group, *name;
    const cJSON *present = cJSON_GetObjectItemCaseSensitive(config, "present");
    const size_t count = (size_t)cJSON_GetArraySize(present);
    char text[NAMES][NAME];
    const char *names[NAMES];
    size_t set[NAMES], expected[NAMES];
    struct fail f;
    assert_true(count <= NAMES);
    for (size_t i = 0; i < count; i++) {
        snprintf(text[i], NAME, "model.layers.7.%s.weight", cJSON_GetArrayItem(present, (int)i)->valuestring);
        names[i] = text[i];
        expected[i] = i;
    }
    cJSON_ArrayForEach(group, cJSON_GetObjectItemCaseSensitive(config, "groups"))
    {
        const size_t first = index_of(present, cJSON_GetArrayItem(group, 0)->valuestring);
        cJSON_ArrayForEach(name, group) expected[index_of(present, name->valuestring)] = first;
    }
    assert_int_equal(fused_sets(names, count, FUSED_VLLM, set, &f), 0);
    for (size_t i = 0; i < count; i++)
        if (set[i] != expected[i])
            fail_case("%s is in the set of %s, expected that of %s", text[i], text[set[i]], text[expected[i]]);
}

int main(void) { return run_suite("fused_names", "", 55, test_names) != 0; }
