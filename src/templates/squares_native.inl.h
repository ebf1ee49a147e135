/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of squares.inl.h. */

#define element NATIVE(element)

static inline double NATIVE(square)(const element *x)
{
    const double value = (double)(float)load(*x);
    return value * value;
}

void ENTRY(NATIVE(qobs_squares_columns))(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, double *sum)
{
    const unsigned char *row = x;
    for (; rows >= SQUARES_UNROLLED_ROWS; rows -= SQUARES_UNROLLED_ROWS, row += SQUARES_UNROLLED_ROWS * row_stride) {
        const element *const
            r0 = (const element *)row,
            *const r1 = (const element *)(row + row_stride), *const r2 = (const element *)(row + 2 * row_stride),
            *const r3 = (const element *)(row + 3 * row_stride), *const r4 = (const element *)(row + 4 * row_stride),
            *const r5 = (const element *)(row + 5 * row_stride), *const r6 = (const element *)(row + 6 * row_stride),
            *const r7 = (const element *)(row + 7 * row_stride);
        NO_DEPENDENCE
        for (size_t j = 0; j < columns; j++) {
            double s = sum[j];
            s += NATIVE(square)(r0 + j);
            s += NATIVE(square)(r1 + j);
            s += NATIVE(square)(r2 + j);
            s += NATIVE(square)(r3 + j);
            s += NATIVE(square)(r4 + j);
            s += NATIVE(square)(r5 + j);
            s += NATIVE(square)(r6 + j);
            s += NATIVE(square)(r7 + j);
            sum[j] = s;
        }
    }
    for (; rows > 0; rows--, row += row_stride) {
        NO_DEPENDENCE
        for (size_t j = 0; j < columns; j++)
            sum[j] += NATIVE(square)((const element *)row + j);
    }
}

#undef element
