// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// Min/max and absmax kernels of every usable instruction set beside a plain read loop over the same bytes, in one process.
// Names: read/<bytes> and <isa>/<dtype>/<layout>/<bytes>.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "dispatch.h"
#include "read_loop.h"
}

namespace {

struct Dtype {
    const char *name;
    qobs_kernel_dtype kernel;
    size_t size;
};
constexpr Dtype kDtypes[] = {{"f32", QOBS_KERNEL_F32, 4}, {"bf16", QOBS_KERNEL_BF16, 2}};

// A layout says how many elements a run has; 0: all in one run; columns: that many columns instead.
struct Layout {
    const char *name;
    size_t length;
    bool columns, absmax;
};
constexpr Layout kLayouts[] = {{"row", 0, false, false},
                               {"channel-4096", 4096, false, false},
                               {"group-128", 128, false, false},
                               {"group-32", 32, false, false},
                               {"columns-4096", 4096, true, false},
                               {"absmax-row", 0, false, true},
                               {"absmax-group-128", 128, false, true},
                               {"absmax-group-32", 32, false, true},
                               {"absmax-columns-4096", 4096, true, true}};

constexpr size_t kSizes[] = {size_t{512} << 10, size_t{16} << 20, size_t{32} << 20, size_t{64} << 20, size_t{256} << 20};
constexpr size_t kLargest = size_t{256} << 20;

unsigned char *Allocate(size_t bytes)
{
    void *p = nullptr;
    if (posix_memalign(&p, 4096, bytes) != 0)
        std::abort();
    return static_cast<unsigned char *>(p);
}

// Gaussian weights; a short stretch is drawn and repeated, as drawing all would take minutes.
const unsigned char *Data(const Dtype &dtype)
{
    static unsigned char *made[QOBS_KERNEL_DTYPES];
    unsigned char *&data = made[dtype.kernel];
    if (data)
        return data;
    data = Allocate(kLargest);
    std::mt19937 generator(1);
    std::normal_distribution<float> gauss(0.0f, 0.02f);
    constexpr size_t kDrawn = size_t{1} << 20;
    for (size_t i = 0; i < kDrawn; i++) {
        const float f = gauss(generator);
        uint32_t bits;
        std::memcpy(&bits, &f, sizeof bits);
        const uint16_t high = static_cast<uint16_t>(bits >> 16);
        if (dtype.size == 4)
            std::memcpy(data + 4 * i, &bits, 4);
        else
            std::memcpy(data + 2 * i, &high, 2);
    }
    const size_t stretch = kDrawn * dtype.size;
    for (size_t at = stretch; at < kLargest; at += stretch)
        std::memcpy(data + at, data, stretch);
    return data;
}

void Read(benchmark::State &state, size_t bytes)
{
    const unsigned char *data = Data(kDtypes[0]);
    for (auto _ : state)
        benchmark::DoNotOptimize(read_loop(data, bytes));
    state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

void Minmax(benchmark::State &state, const qobs_kernels *table, const Dtype &dtype, const Layout &layout, size_t bytes)
{
    const size_t n = bytes / dtype.size, length = layout.length ? layout.length : n, runs = n / length;
    const unsigned char *data = Data(dtype);
    // Started with the first element: any start will do, identities only count in the first iteration.
    const size_t outputs = layout.columns ? length : runs;
    std::vector<unsigned char> min(outputs * dtype.size), max(outputs * dtype.size);
    qobs_nonfinite nonfinite = {};
    const auto stride = static_cast<ptrdiff_t>(length * dtype.size);
    for (auto _ : state) {
        if (layout.absmax && layout.columns)
            table->absmax_columns[dtype.kernel](data, stride, runs, length, max.data(), &nonfinite);
        else if (layout.absmax)
            table->absmax_rows[dtype.kernel](data, stride, runs, length, max.data(), 1, &nonfinite);
        else if (layout.columns)
            table->minmax_columns[dtype.kernel](data, stride, runs, length, min.data(), max.data(), &nonfinite);
        else
            table->minmax_rows[dtype.kernel](data, stride, runs, length, min.data(), max.data(), 1, &nonfinite);
        benchmark::ClobberMemory();
    }
    if (nonfinite.nan || nonfinite.inf)
        state.SkipWithError("the data are not what they should be");
    state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

}  // namespace

int main(int argc, char **argv)
{
    for (const size_t bytes : kSizes)
        benchmark::RegisterBenchmark(("read/" + std::to_string(bytes)).c_str(), Read, bytes);
    for (size_t i = 0; qobs_kernel_tables[i]; i++) {
        const qobs_kernels *table = qobs_kernel_tables[i];
        if (!table->usable())
            continue;
        for (const Dtype &dtype : kDtypes)
            for (const Layout &layout : kLayouts)
                for (const size_t bytes : kSizes) {
                    const std::string name = std::string(table->isa) + "/" + dtype.name + "/" + layout.name + "/" +
                                             std::to_string(bytes);
                    benchmark::RegisterBenchmark(name.c_str(), Minmax, table, dtype, layout, bytes);
                }
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
