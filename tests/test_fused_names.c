/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The names of layers that share a global scale, against llm-compressor's resolution of its fused mappings (suite
 * fused_names: present names and the groups they make). */
#include "golden.h"
#include "model/fused.h"

enum { NAMES = 32, NAME = 96 };

static size_t index_of(const json_object *present, const char *name)
{
    for (size_t i = 0; i < json_count(present); i++)
        if (strcmp(json_text(json_at(present, i)), name) == 0)
            return i;
    fail_case("%s is not present", name);
    return 0;
}

static void test_names(void **state)
{
    const json_object *config = json_get(*state, "config");
    const json_object *present = json_get(config, "present");
    const size_t count = json_count(present);
    char text[NAMES][NAME];
    const char *names[NAMES];
    size_t set[NAMES], expected[NAMES];
    struct fail f;
    assert_true(count <= NAMES);
    for (size_t i = 0; i < count; i++) {
        snprintf(text[i], NAME, "model.layers.7.%s.weight", json_text(json_at(present, i)));
        names[i] = text[i];
        expected[i] = i;
    }
    json_each(group, json_get(config, "groups"))
    {
        const size_t first = index_of(present, json_text(json_at(group.value, 0)));
        json_each(name, group.value) expected[index_of(present, json_text(name.value))] = first;
    }
    for (int rules = FUSED_VLLM; rules <= FUSED_MAPPINGS; rules++) {
        if (rules == FUSED_LLM_COMPRESSOR)
            continue;
        assert_int_equal(fused_sets(names, count, (enum fused_rules)rules, NULL, set, &f), 0);
        for (size_t i = 0; i < count; i++)
            if (set[i] != expected[i])
                fail_case("rules %d: %s is in the set of %s, expected that of %s", rules, text[i], text[set[i]],
                          text[expected[i]]);
    }
}

int main(void) { return run_suite("fused_names", "", 55, test_names) != 0; }
