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

/* ---- Differences ------------------------------------------------------------------------------------------------- */

#define lanes NATIVE(lanes)

/* Half of the 16 sums: gcc prefers vectors of this size. They are loaded as vectors, because arrays of numbers would go
 * through memory. */
typedef real lanes __attribute__((vector_size(8 * sizeof(real))));

ALWAYS_INLINE void NATIVE(load_lanes)(lanes *to, const element *from)
{
#if MANTISSA_BITS == 23 || MANTISSA_BITS == 52
    memcpy(to, from, sizeof *to);
#else
    u16x8 halves;
    memcpy(&halves, from, sizeof halves);
    const u32x8 bits = __builtin_convertvector(halves, u32x8);
#if MANTISSA_BITS == 7
    *to = (lanes)(bits << 16);
#else /* as float_of_f16 */
    const u32x8 magnitude = (bits & 0x7fff) << 13, large = (u32x8)(magnitude >= 0x0f800000);
    const lanes number = (lanes)magnitude * 0x1p112f;
    *to = (lanes)((u32x8)number | (large & 0x38000000) | (bits & 0x8000) << 16);
#endif
#endif
}

/* A block of n elements. */
ALWAYS_INLINE void NATIVE(add_errors)(const element *x, const element *y, size_t n, double *sum)
{
    lanes errors[2] = {{0}}, energies[2] = {{0}};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t half = 0; half < 2; half++) {
            lanes value, other;
            NATIVE(load_lanes)(&value, x + i + 8 * half);
            NATIVE(load_lanes)(&other, y + i + 8 * half);
            errors[half] += (value - other) * (value - other);
            energies[half] += value * value;
        }
    for (size_t k = 0; i + k < n; k++) {
        const real value = load(x[i + k]), difference = value - load(y[i + k]);
        errors[k / 8][k % 8] += difference * difference;
        energies[k / 8][k % 8] += value * value;
    }
    for (size_t k = 0; k < 16; k++) {
        sum[0] += (double)errors[k / 8][k % 8];
        sum[1] += (double)energies[k / 8][k % 8];
    }
}

QOBS_SQUARED_ERRORS(ENTRY(NATIVE(qobs_squared_errors)))
{
    CLEARS_UPPER_HALVES
    const element *from = x, *other = y;
    for (; n > SQUARED_ERRORS_BLOCK; n -= SQUARED_ERRORS_BLOCK) {
        NATIVE(add_errors)(from, other, SQUARED_ERRORS_BLOCK, sum);
        from += SQUARED_ERRORS_BLOCK;
        other += SQUARED_ERRORS_BLOCK;
    }
    NATIVE(add_errors)(from, other, n, sum);
}

#undef lanes
#undef element
