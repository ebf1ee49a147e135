// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// Fake-quantize and sums of squares: kernels that are arithmetic on every element.
#include <algorithm>

#include "harness.h"

extern "C" {
#include "number/format.h"
}

namespace {

using Call = std::function<void()>;
constexpr size_t kRun = 128, kColumns = 4096;

// int8 by compressed-tensors' arithmetic, a scale a group of 128, or scale and zero point a column. "aliased": of an element's address
// the low 12 bits are those of a result a cache line before it.
Call Quantize(const kernel_table &table, const Dtype &dtype, const std::string &layout, size_t bytes)
{
    const bool columns = layout == "columns";
    const size_t n = bytes / dtype.size, width = columns ? std::min(kColumns, n / 16) : kRun, rows = n / width;
    const unsigned char *data = Gaussian(dtype, bytes);
    const size_t reals = columns ? width : rows, real = dtype.size == 8 ? 8 : 4;
    const Buffer scale(reals * real), zero(reals * real);
    unsigned char *const out = Results(bytes + 64) + (layout == "group-128-aliased" ? 64 : 0);
    for (size_t i = 0; i < reals; i++)
        if (real == 8)
            scale.As<double>()[i] = 0x1p-10;
        else
            scale.As<float>()[i] = 0x1p-10f;
    quantizer quantizer;
    qobs_quantizer_for_integers(&quantizer, -128, 127, false);
    const auto stride = static_cast<ptrdiff_t>(width * dtype.size);
    const auto by_rows = table.fake_quantize_rows[dtype.kernel];
    const auto by_columns = table.fake_quantize_columns[dtype.kernel];
    return [=] {
        const qparam_pair qparams = {scale.Bytes(), columns ? zero.Bytes() : nullptr, columns ? zero.Bytes() : nullptr};
        if (columns)
            by_columns(&quantizer, data, stride, out, stride, rows, width, &qparams);
        else
            by_rows(&quantizer, data, stride, out, stride, rows, width, &qparams, 1);
    };
}

Call Squares(const kernel_table &table, const Dtype &dtype, size_t bytes)
{
    const size_t n = bytes / dtype.size, columns = std::min(kColumns, n / 16);
    const unsigned char *data = Gaussian(dtype, bytes);
    const Buffer sum(columns * sizeof(double));
    const auto kernel = table.squares_columns[dtype.kernel];
    return [=, size = dtype.size] { kernel(data, static_cast<ptrdiff_t>(columns * size), n / columns, columns, sum.As<double>()); };
}

}  // namespace

KernelCase QuantizeCase(const std::string &layout, const Dtype &dtype, const std::string &level, size_t bytes)
{
    return {"fake-quantize", layout, &dtype, level, static_cast<double>(2 * bytes),
            static_cast<double>(bytes / dtype.size), [](const kernel_table &) { return true; },
            [&dtype, layout, bytes](const kernel_table &table) { return Quantize(table, dtype, layout, bytes); }};
}

KernelCase SquaresCase(const Dtype &dtype, const std::string &level, size_t bytes)
{
    return {"squares", "columns", &dtype, level, static_cast<double>(bytes), static_cast<double>(bytes / dtype.size),
            [](const kernel_table &) { return true; },
            [&dtype, bytes](const kernel_table &table) { return Squares(table, dtype, bytes); }};
}

std::vector<KernelCase> QuantizeCases()
{
    std::vector<KernelCase> cases;
    for (const char *layout : {"group-128", "columns", "group-128-aliased"})
        for (const Dtype &dtype : NarrowDtypes())
            for (const Level &level : Levels())
                cases.push_back(QuantizeCase(layout, dtype, level.name, level.bytes / 2));  // as much is written
    return cases;
}

std::vector<KernelCase> SquaresCases()
{
    std::vector<KernelCase> cases;
    for (const Dtype &dtype : NarrowDtypes())
        for (const Level &level : Levels())
            cases.push_back(SquaresCase(dtype, level.name, level.bytes));
    return cases;
}
