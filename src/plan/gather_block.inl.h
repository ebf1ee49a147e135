/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of strips.c. */

static inline float NATIVE(at)(const unsigned char *x)
{
    stored element;
    memcpy(&element, x, sizeof element);
    return (float)load(element);
}

/* n elements of every qparam, `stride` bytes apart, to out[i] + to. */
static void NATIVE(read_run)(const struct strip *s, const unsigned char *x, int64_t stride, size_t n, size_t to,
                             float out[][STRIP_WORKSPACE])
{
    if (s->qparams > 1 && magnitude(s->between) < magnitude(stride)) {
        for (size_t j = 0; j < n; j++)
            for (int i = 0; i < s->qparams; i++)
                out[i][to + j] = NATIVE(at)(x + (int64_t)j * stride + i * s->between);
        return;
    }
    for (int i = 0; i < s->qparams; i++) {
        const unsigned char *from = x + i * s->between;
        if (stride == (int64_t)sizeof(stored)) /* said again, for the compiler to make vectors */
            for (size_t j = 0; j < n; j++)
                out[i][to + j] = NATIVE(at)(from + j * sizeof(stored));
        else
            for (size_t j = 0; j < n; j++)
                out[i][to + j] = NATIVE(at)(from + (int64_t)j * stride);
    }
}
