/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The reading loops of block_reader.c for one dtype. */

static inline float NATIVE(at)(const unsigned char *x)
{
    stored element;
    memcpy(&element, x, sizeof element);
    return (float)load(element);
}

/* Reads n elements of every qparam i, `stride` bytes apart, to out[i] + to. */
static void NATIVE(read_run)(const struct qparam_block *s, const unsigned char *x, int64_t stride, size_t n, size_t to,
                             float out[][BLOCK_ELEMENTS])
{
    if (s->qparams > 1 && magnitude(s->between) < magnitude(stride)) {
        for (size_t j = 0; j < n; j++)
            for (int i = 0; i < s->qparams; i++)
                out[i][to + j] = NATIVE(at)(x + (int64_t)j * stride + i * s->between);
        return;
    }
    for (int i = 0; i < s->qparams; i++) {
        const unsigned char *from = x + i * s->between;
        if (stride == (int64_t)sizeof(stored)) /* a constant stride lets the compiler vectorise */
            for (size_t j = 0; j < n; j++)
                out[i][to + j] = NATIVE(at)(from + j * sizeof(stored));
        else
            for (size_t j = 0; j < n; j++)
                out[i][to + j] = NATIVE(at)(from + (int64_t)j * stride);
    }
}
