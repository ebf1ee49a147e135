/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* States that a released version has saved load for ever and give its results bit for bit.
 *
 *   test_saved_states [DIRECTORY]        checks the fixtures of DIRECTORY, by default those of version 0.2.0
 *   test_saved_states write DIRECTORY    makes the fixtures of the library it is linked with
 *
 * A fixture is NAME.state, the bytes of qobs_observer_save, and a section of expected.txt: the results before and after
 * another batch and a merge. tests/fixtures/README.md describes the text, saved_cases.h the observers. */
#include "saved_cases.h"

#ifndef QOBS_FIXTURES_DIR
#define QOBS_FIXTURES_DIR "tests/fixtures/states-0.2.0"
#endif

static const char *directory = QOBS_FIXTURES_DIR;
static char *expected; /* the whole expected.txt */
static char *today;    /* that of version 0.2.0, for sections that an older version's lacks */

/* Version 0.1 called the family modelopt trt, and saved states in another format. They are saved again in today's
 * format. They give the results of version 0.2, except those in their own expected.txt. */
static bool is_old(void) { return strstr(directory, "states-0.1.") != NULL; }

/* The released versions have one fixture for each kind of state. */
static bool is_fixture(const struct saved_case *c) { return (c->options & (KIND | LATER)) == KIND; }

static void fixture_name(const struct saved_case *c, char name[96])
{
    static const char now[] = "modelopt.", then[] = "trt.";
    name_of(c, name);
    if (is_old() && strncmp(name, now, strlen(now)) == 0) {
        memmove(name + strlen(then), name + strlen(now), strlen(name + strlen(now)) + 1);
        memcpy(name, then, strlen(then));
    }
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static FILE *open_fixture(const char *folder, const char *name, const char *extension, const char *mode)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, extension);
    FILE *file = fopen(path, mode);
    if (!file)
        fail_msg("%s cannot be opened", path);
    return file;
}

/* Ends with a 0 that is not counted. */
static unsigned char *read_fixture(const char *folder, const char *name, const char *extension, size_t *size)
{
    FILE *file = open_fixture(folder, name, extension, "rb");
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = calloc(1, *size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static void write_fixture(const char *name, const char *extension, const void *bytes, size_t size)
{
    FILE *file = open_fixture(directory, name, extension, "wb");
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

struct text {
    char *start;
    size_t length, capacity;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format, ...)
{
    if (text->capacity - text->length < 512) {
        text->capacity = 2 * text->capacity + 4096;
        text->start = realloc(text->start, text->capacity);
        assert_non_null(text->start);
    }
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text->start + text->length, text->capacity - text->length, format, arguments);
    va_end(arguments);
    assert_true(n >= 0 && n < 512);
    text->length += (size_t)n;
}

/* FNV-1a. */
static uint64_t hash(uint64_t h, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (value >> 8 * i & 0xff)) * UINT64_C(0x100000001b3);
    return h;
}
#define HASH_START UINT64_C(0xcbf29ce484222325)

static uint64_t bits_at(const unsigned char *p, size_t size)
{
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (size) {
    case 1:
        return memcpy(&u8, p, 1), u8;
    case 2:
        return memcpy(&u16, p, 2), u16;
    case 4:
        return memcpy(&u32, p, 4), u32;
    default:
        return memcpy(&u64, p, 8), u64;
    }
}

/* The bits of every element, equal ones that follow each other as bits*count; of many elements a hash. */
static void put_elements(struct text *text, const unsigned char *data, size_t n, size_t size)
{
    enum { MOST = 128 };
    uint64_t h = HASH_START;
    for (size_t i = 0; n > MOST && i < n; i++)
        h = hash(h, bits_at(data + i * size, size), size);
    if (n > MOST) {
        put(text, " hash %016llx", (unsigned long long)h);
        return;
    }
    for (size_t i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && memcmp(data + i * size, data + (i + run) * size, size) == 0;)
            run++;
        put(text, " %0*llx", (int)(2 * size), (unsigned long long)bits_at(data + i * size, size));
        if (run > 1)
            put(text, "*%zu", run);
    }
}

/* A long fact that the section has already becomes "NAME as above". */
static void shorten(struct text *text, size_t start, const char *name)
{
    const size_t length = text->length - start;
    for (size_t i = 0; length > 60 && i + length <= start; i++)
        if (strchr(";\n", text->start[i + length]) && memcmp(text->start + i, text->start + start, length) == 0) {
            text->length = start;
            put(text, "; %s as above", name);
            return;
        }
}

/* Results that the released versions do not have. */
static bool is_later(const char *name) { return strcmp(name, "error_sums") == 0; }

static void put_result(struct text *text, const qobs_observer *o, size_t index)
{
    qobs_result r = {.struct_size = sizeof r};
    const size_t start = text->length;
    assert_ok(qobs_observer_result_info(o, index, &r, &error));
    if (is_later(r.name))
        return;
    put(text, "; %s %s [", r.name, qobs_dtype_name(r.dtype));
    for (int d = 0; d < r.ndim; d++)
        put(text, "%s%lld", d ? "," : "", (long long)r.shape[d]);
    put(text, "]");
    unsigned char *data = malloc(r.size + 1);
    assert_non_null(data);
    const int status = qobs_observer_read(o, r.name, data, r.size, &error);
    if (status == QOBS_OK)
        put_elements(text, data, r.size / qobs_dtype_size(r.dtype), qobs_dtype_size(r.dtype));
    else
        put(text, " status %d", status);
    free(data);
    shorten(text, start, r.name);
}

static void put_state(struct text *text, const qobs_observer *o)
{
    if (is_old())
        return;
    size_t size;
    unsigned char *bytes = saved_state(o, &size);
    uint64_t h = HASH_START;
    for (size_t i = 0; i < size; i++)
        h = hash(h, bytes[i], 1);
    put(text, "; state %zu %016llx", size, (unsigned long long)h);
    free(bytes);
}

/* Adds what can be read from an observer. */
static void put_facts(struct text *text, const qobs_observer *o)
{
    const qobs_counts c = counts_of(o);
    const uint64_t counts[] = {c.batches, c.elements, c.nan, c.inf, c.tokens, c.nonzero_tokens};
    put(text, "; counts");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        put(text, " %llu", (unsigned long long)counts[i]);
    qobs_search_report report = {.struct_size = sizeof report};
    if (qobs_observer_search_report(o, &report, &error) == QOBS_OK) {
        const double errors[] = {report.error_before, report.error};
        put(text, "; search %d %d %sweighted", (int)report.steps, (int)report.stop_step, report.weighted ? "" : "un");
        put_elements(text, (const unsigned char *)errors, 2, sizeof *errors);
    }
    for (size_t i = 0; i < qobs_observer_result_count(o); i++)
        put_result(text, o, i);
}

/* A line: what happened to an observer, what it saves, and what can be read from it. */
static void describe(struct text *text, const qobs_observer *o, const char *event, int status)
{
    put(text, "%s %d", event, status);
    put_state(text, o);
    if (status == QOBS_OK)
        put_facts(text, o);
    put(text, "\n");
}

/* ---- Observers --------------------------------------------------------------------------------------------------- */

static qobs_observer *load(const unsigned char *bytes, size_t size)
{
    qobs_observer *o = NULL;
    assert_ok(qobs_observer_load(&o, bytes, size, NULL, &error));
    return o;
}

/* An observer without data and with the settings of the state. Searches of version 0.1 are in float, which states of
 * today say with search_dtype. */
static qobs_observer *without_data(const struct saved_case *c, const unsigned char *bytes, size_t size)
{
    if (!is_old() || !strstr(c->preset, "mse"))
        return make_case(c);
    qobs_observer *o = load(bytes, size);
    qobs_observer_reset(o);
    return o;
}

/* The section of a case: the state as it is loaded, after one more batch, after a merge, and merged into an observer
 * without data. */
static struct text section_of(const struct saved_case *c, const unsigned char *bytes, size_t size)
{
    struct text text = {0};
    qobs_observer *continued = load(bytes, size), *merged = load(bytes, size);
    qobs_observer *empty = without_data(c, bytes, size), *other = without_data(c, bytes, size);
    describe(&text, continued, "loaded", QOBS_OK);
    int status = observe_batch(c, continued, BATCHES);
    describe(&text, continued, "observed", status);
    status = observe_batch(c, other, BATCHES);
    assert_int_equal(status, QOBS_OK);
    status = qobs_observer_merge(merged, (const qobs_observer *[]){other}, 1, &error);
    describe(&text, merged, "merged", status);
    status = qobs_observer_merge(empty, (const qobs_observer *[]){merged}, 1, &error);
    put(&text, "merged into an empty one %d", status);
    put_state(&text, empty);
    put(&text, "\n");
    qobs_observer_destroy(continued);
    qobs_observer_destroy(merged);
    qobs_observer_destroy(empty);
    qobs_observer_destroy(other);
    return text;
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

/* Removes the facts about saved bytes. */
static void remove_states(char *text)
{
    for (char *at = text; (at = strstr(at, "; state "));) {
        const char *next = at + 1 + strcspn(at + 1, ";\n");
        memmove(at, next, strlen(next) + 1);
    }
}

/* The section of a text and its length; NULL: it has none. */
static const char *find_section(const char *text, const char *name, size_t *length)
{
    char heading[128];
    snprintf(heading, sizeof heading, "\ncase %s\n", name);
    const char *start = strstr(text, heading);
    if (!start)
        return NULL;
    start += strlen(heading);
    const char *end = strstr(start, "\ncase ");
    *length = end ? (size_t)(end + 1 - start) : strlen(start);
    return start;
}

static const char *expected_section(const struct saved_case *c, size_t *length)
{
    char name[96];
    *length = 0;
    fixture_name(c, name);
    const char *section = find_section(expected, name, length);
    if (!section && is_old()) {
        name_of(c, name);
        section = find_section(today, name, length);
    }
    if (!section)
        fail_msg("expected.txt has no section %s", name);
    return section;
}

/* The first byte at which they differ; the length if they do not. */
static size_t first_difference(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t i = 0;
    while (i < a_length && i < b_length && a[i] == b[i])
        i++;
    return i < a_length ? i : b_length == a_length ? a_length : i;
}

static bool same(const char *a, size_t a_length, const char *b, size_t b_length)
{
    return a_length == b_length && first_difference(a, a_length, b, b_length) == a_length;
}

/* The fact that holds position `at`. */
static void print_fact(const char *what, const char *text, size_t length, size_t at)
{
    size_t begin = at < length ? at : length, end = begin;
    while (begin > 0 && !strchr(";\n", text[begin - 1]))
        begin--;
    while (end < length && !strchr(";\n", text[end]))
        end++;
    print_error("%s %.*s\n", what, (int)(end - begin), text + begin);
}

static void check_case(const struct saved_case *c)
{
    char name[96];
    size_t size, own_size, length;
    fixture_name(c, name);
    unsigned char *bytes = read_fixture(directory, name, "state", &size);
    qobs_observer *o = observed(c), *back = load(bytes, size);
    for (int again = 0; again < 2 && !is_old(); again++) {
        unsigned char *own = saved_state(again ? back : o, &own_size);
        if (own_size != size || memcmp(own, bytes, size) != 0)
            fail_msg("%s with %s: the %s state is not the fixture", name, qobs_isa_active(), again ? "loaded" : "new");
        free(own);
    }
    qobs_observer_destroy(o);
    qobs_observer_destroy(back);
    struct text got = section_of(c, bytes, size);
    const char *section = expected_section(c, &length);
    if (!same(got.start, got.length, section, length)) {
        const size_t at = first_difference(got.start, got.length, section, length);
        print_fact("got:     ", got.start, got.length, at);
        print_fact("expected:", section, length, at);
        fail_msg("%s with %s differs from the fixture", name, qobs_isa_active());
    }
    /* One changed bit is a difference. */
    for (size_t i = 0; i < got.length; i += got.length / 8) {
        got.start[i] ^= 1;
        assert_false(same(got.start, got.length, section, length));
        got.start[i] ^= 1;
    }
    free(got.start);
    free(bytes);
}

/* The reason why a case does not run here, or NULL. */
static const char *skip_reason(const struct saved_case *c)
{
#ifdef __riscv
    const bool signed_nan = false;
#else
    const bool signed_nan = true;
#endif
    return c->options & NAN_SIGN && !signed_nan ? "has a NaN with a sign, which RISC-V does not make" : NULL;
}

static void test_case(void **state)
{
    const struct saved_case *c = *state;
    for (size_t i = 0; select_isa(&i); i++)
        check_case(c);
    assert_ok(qobs_isa_select(NULL, &error));
}

/* Every section belongs to a case. */
static void test_sections(void **state)
{
    size_t sections = 0, own = 0, released = 0, length;
    for (size_t i = 0; i < CASES; i++) {
        char name[96];
        fixture_name(&cases[i], name);
        released += is_fixture(&cases[i]);
        own += is_fixture(&cases[i]) && find_section(expected, name, &length);
    }
    for (const char *at = expected; (at = strstr(at, "\ncase ")); at++)
        sections++;
    assert_int_equal(sections, own);
    assert_true(is_old() ? own > 0 && own < released : own == released);
}

/* The next release makes a fixture of every preset. */
static void test_presets(void **state)
{
    for (size_t i = 0; i < qobs_preset_count(); i++) {
        size_t k = 0;
        while (k < CASES && strcmp(cases[k].preset, qobs_preset_name(i)) != 0)
            k++;
        if (k == CASES)
            fail_msg("%s has no case", qobs_preset_name(i));
    }
}

static void test_write(void **state)
{
    struct text all = {0};
    put(&all, "Results of the states beside this file, made with version %s of the library\n", qobs_version());
    for (size_t i = 0; i < CASES; i++) {
        char name[96];
        size_t size;
        if (!(cases[i].options & (KIND | LATER)))
            continue;
        name_of(&cases[i], name);
        qobs_observer *o = observed(&cases[i]);
        unsigned char *bytes = saved_state(o, &size);
        write_fixture(name, "state", bytes, size);
        struct text section = section_of(&cases[i], bytes, size);
        put(&all, "case %s\n", name);
        for (size_t at = 0; at < section.length; at += 256)
            put(&all, "%.*s", (int)(section.length - at < 256 ? section.length - at : 256), section.start + at);
        free(section.start);
        free(bytes);
        qobs_observer_destroy(o);
    }
    write_fixture("expected", "txt", all.start, all.length);
    free(all.start);
}

int main(int argc, char **argv)
{
    const bool writes = argc == 3 && strcmp(argv[1], "write") == 0;
    if (argc > 3 || (argc == 3 && !writes)) {
        fprintf(stderr, "usage: test_saved_states [DIRECTORY | write DIRECTORY]\n");
        return 2;
    }
    const struct CMUnitTest writing[] = {cmocka_unit_test(test_presets), cmocka_unit_test(test_write)};
    if (argc > 1)
        directory = argv[argc - 1];
    if (writes)
        return cmocka_run_group_tests_name("writing", writing, NULL, NULL);
    size_t n = 0, size;
    struct CMUnitTest tests[CASES + 2];
    static char names[CASES][96];
    expected = (char *)read_fixture(directory, "expected", "txt", &size);
    today = (char *)read_fixture(QOBS_FIXTURES_DIR, "expected", "txt", &size);
    if (is_old()) {
        remove_states(expected);
        remove_states(today);
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_sections);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_presets);
    for (size_t i = 0; i < CASES; i++) {
        if (!is_fixture(&cases[i]))
            continue;
        fixture_name(&cases[i], names[i]);
        const char *reason = skip_reason(&cases[i]);
        if (reason)
            print_message("skipped: %s %s\n", names[i], reason);
        else
            tests[n++] = (struct CMUnitTest){names[i], test_case, NULL, NULL, (void *)(uintptr_t)&cases[i]};
    }
    const int failed = _cmocka_run_group_tests("saved states", tests, n, NULL, NULL);
    free(expected);
    free(today);
    return failed;
}
