// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// Minimum and maximum, and the largest magnitude: every layout that plans make of kernel calls. Heads of 128 are runs of 128 tokens each.
#include <algorithm>
#include <numeric>
#include <random>
#include <cstdlib>

#include "harness.h"

extern "C" {
#include "measure/reduce.h"
}

namespace {

struct Layout {
    const char *name;
    enum { kRuns, kBlocks, kColumns, kIndexed } kind;
    size_t length;  // of a run; 0: all in one
};
constexpr Layout kLayouts[] = {
    {"row", Layout::kRuns, 0},           {"channel-4096", Layout::kRuns, 4096}, {"group-128", Layout::kRuns, 128},
    {"group-32", Layout::kRuns, 32},     {"block-128x128", Layout::kBlocks, 128}, {"head-128", Layout::kRuns, 16384},
    {"columns", Layout::kColumns, 4096}, {"g_idx-128", Layout::kIndexed, 4096},
};

using Call = std::function<void()>;

// 128 x 128: what plans make of them.
Call Blocks(const kernel_table &table, const Dtype &dtype, const unsigned char *data, size_t n)
{
    const auto side = int64_t{128}, all = static_cast<int64_t>(n), columns = std::min<int64_t>(4096, all / side), across = columns / side;
    const auto size = static_cast<int64_t>(dtype.size);
    const struct loops loops = {data, nullptr, 0, 4,
                              {{all / columns / side, side * columns * size, 0, across}, {side, columns * size, 0, 0},
                                 {across, side * size, 0, 1}, {side, size, 0, 0}}};
    const Buffer min(n / side / side * dtype.size), max(n / side / side * dtype.size);
    const Buffer scratch(qobs_minmax_scratch(&loops, dtype.size, false));
    return [=, &table, &dtype] {
        nonfinite_count nonfinite = {};
        qobs_minmax_loops(&loops, &table, dtype.kernel, dtype.size, scratch.Bytes(), min.Bytes(), max.Bytes(), &nonfinite);
        benchmark::DoNotOptimize(nonfinite);
    };
}

Call Indexed(const kernel_table &table, const Dtype &dtype, const unsigned char *data, size_t n)
{
    const size_t columns = std::min<size_t>(4096, n / 4), groups = columns / 128 ? columns / 128 : 1, rows = n / columns;
    auto group = std::make_shared<std::vector<uint32_t>>(columns);
    for (size_t j = 0; j < columns; j++)
        (*group)[j] = static_cast<uint32_t>(j % groups);
    std::shuffle(group->begin(), group->end(), std::mt19937(2));
    const Buffer min(rows * groups * dtype.size), max(rows * groups * dtype.size), scratch(QOBS_INDEXED_SCRATCH(groups));
    const auto kernel = table.minmax_indexed[dtype.kernel];
    return [=, size = dtype.size] {
        nonfinite_count nonfinite = {};
        kernel(data, static_cast<ptrdiff_t>(columns * size), rows, columns, group->data(), groups, min.Bytes(), max.Bytes(),
               scratch.Bytes(), &nonfinite);
        benchmark::DoNotOptimize(nonfinite);
    };
}

// Elements of a run or a row. Rows of a matrix are shorter if it is small, because it would have one row else.
size_t LengthOf(const Layout &layout, size_t n)
{
    if (layout.length == 0)
        return n;
    return std::min(layout.length, layout.kind != Layout::kColumns ? n : n / (stepped ? 64 : 16));
}

Call Make(const kernel_table &table, const Dtype &dtype, const Layout &layout, size_t bytes)
{
    const size_t n = bytes / dtype.size;
    const unsigned char *data = Gaussian(dtype, bytes);
    if (layout.kind == Layout::kBlocks)
        return Blocks(table, dtype, data, n);
    if (layout.kind == Layout::kIndexed)
        return Indexed(table, dtype, data, n);
    const bool columns = layout.kind == Layout::kColumns;
    const size_t length = LengthOf(layout, n), runs = n / length, outputs = columns ? length : runs;
    const Buffer min(outputs * dtype.size), max(outputs * dtype.size);
    const auto stride = static_cast<ptrdiff_t>(length * dtype.size);
    const auto by_rows = table.minmax_rows[dtype.kernel];
    const auto by_columns = table.minmax_columns[dtype.kernel];
    return [=] {
        nonfinite_count nonfinite = {};
        if (columns)
            by_columns(data, stride, runs, length, min.Bytes(), max.Bytes(), &nonfinite);
        else
            by_rows(data, stride, runs, length, min.Bytes(), max.Bytes(), 1, &nonfinite);
        benchmark::DoNotOptimize(nonfinite);
    };
}

Call MakeAbsmax(const kernel_table &table, const Dtype &dtype, const Layout &layout, size_t bytes)
{
    const size_t n = bytes / dtype.size, length = LengthOf(layout, n), runs = n / length;
    const bool columns = layout.kind == Layout::kColumns;
    const unsigned char *data = Gaussian(dtype, bytes);
    const Buffer absmax((columns ? length : runs) * dtype.size);
    const auto stride = static_cast<ptrdiff_t>(length * dtype.size);
    const auto by_rows = table.absmax_rows[dtype.kernel];
    const auto by_columns = table.absmax_columns[dtype.kernel];
    return [=] {
        nonfinite_count nonfinite = {};
        if (columns)
            by_columns(data, stride, runs, length, absmax.Bytes(), &nonfinite);
        else
            by_rows(data, stride, runs, length, absmax.Bytes(), 1, &nonfinite);
        benchmark::DoNotOptimize(nonfinite);
    };
}

}  // namespace

KernelCase MinmaxCase(const std::string &layout, const Dtype &dtype, const std::string &level, size_t bytes)
{
    const Layout *found = std::find_if(std::begin(kLayouts), std::end(kLayouts), [&](const Layout &l) { return layout == l.name; });
    if (found == std::end(kLayouts))
        std::abort();
    return {"minmax", layout, &dtype, level, static_cast<double>(bytes), static_cast<double>(bytes / dtype.size),
            [](const kernel_table &) { return true; },
            [&dtype, found, bytes](const kernel_table &table) { return Make(table, dtype, *found, bytes); }};
}

std::vector<KernelCase> MinmaxCases()
{
    std::vector<KernelCase> cases;
    for (const Layout &layout : kLayouts)
        for (const Dtype &dtype : kDtypes) {
            for (const Level &level : Levels())
                if (layout.kind != Layout::kBlocks || level.bytes >= layout.length * layout.length * dtype.size)  // else there is none
                    cases.push_back(MinmaxCase(layout.name, dtype, level.name, level.bytes));
            cases.push_back(MinmaxCase(layout.name, dtype, "4096x4096", size_t{4096} * 4096 * dtype.size));
        }
    return cases;
}

std::vector<KernelCase> AbsmaxCases()
{
    std::vector<KernelCase> cases;
    for (const Layout &layout : kLayouts)
        for (const Dtype &dtype : kDtypes)
            for (const Level &level : Levels())
                if (layout.kind == Layout::kRuns || layout.kind == Layout::kColumns)
                    cases.push_back({"absmax", layout.name, &dtype, level.name, static_cast<double>(level.bytes),
                                     static_cast<double>(level.bytes / dtype.size), [](const kernel_table &) { return true; },
                                     [&](const kernel_table &table) { return MakeAbsmax(table, dtype, layout, level.bytes); }});
    return cases;
}
