/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_histogram against torch.histc: the golden suite torch_histc, on every instruction set. */
#include "golden.h"
#include "qobs/stateless.h"
#include "calls.h"

static double setting(const json_object *c, const char *key)
{
    const json_object *item = json_get(json_get(c, "config"), key);
    assert_true(json_is_number(item));
    return json_object_get_double(item);
}

static void test_case(void **state)
{
    const json_object *c = *state;
    const qobs_tensor value = tensor_named(json_text(json_at(json_get(c, "inputs"), 0)));
    const qobs_histogram_options bins = {.struct_size = sizeof bins,
                                         .count = (int64_t)setting(c, "bins"),
                                         .min = (float)setting(c, "min"),
                                         .max = (float)setting(c, "max")};
    const size_t n = (size_t)bins.count;
    uint64_t *counts = calloc(n, sizeof *counts);
    float *floats = calloc(n, sizeof *floats);
    assert_true(counts && floats);
    qobs_error error;
    const int status = call_histogram(NULL, &value, NULL, &bins, counts, NULL, NULL, NULL, NULL, &error);
    if (json_get(c, "error")) {
        assert_int_not_equal(status, QOBS_OK);
        assert_int_equal(error.status, status);
    } else {
        if (status != QOBS_OK)
            print_error("%s\n", error.message);
        assert_int_equal(status, QOBS_OK);
        const qobs_tensor expected = tensor_named(text_of(json_get(c, "expect"), "histogram"));
        assert_int_equal(expected.dtype, QOBS_F32);
        assert_int_equal(expected.ndim, 1);
        assert_int_equal(expected.shape[0], bins.count);
        for (size_t i = 0; i < n; i++) {
            floats[i] = (float)counts[i]; /* upstream counts in float, as far as it can: all are below 2^24 */
            assert_true(counts[i] < (UINT64_C(1) << 24));
            float e;
            memcpy(&e, (const unsigned char *)expected.data + i * sizeof e, sizeof e);
            if (!same_number((double)floats[i], (double)e))
                print_error("bin %zu: %g, expected %g\n", i, (double)floats[i], (double)e);
            assert_true(floats[i] == e);
        }
    }
    free(counts);
    free(floats);
}

int main(void)
{
    int failed = 0;
    for (size_t i = 0; i < qobs_isa_count(); i++)
        if (qobs_isa_usable(i)) {
            failed += qobs_isa_select(qobs_isa_name(i), NULL) != QOBS_OK;
            failed += run_suite("torch_histc", "", 51, test_case);
        }
    return failed != 0;
}
