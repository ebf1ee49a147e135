// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// Histogram kernels of every usable instruction set beside a plain read loop over the same bytes, in one process.
// Names: read/<bytes> and <isa>/<dtype>/<distribution>/<bytes>.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "dispatch.h"
#include "read_loop.h"
#include "statistic/histogram.h"
}

namespace {

constexpr size_t kBins = 2048;
constexpr size_t kElements[] = {size_t{256} << 10, size_t{16} << 20};
constexpr size_t kMost = size_t{16} << 20;

struct Distribution {
    const char *name;
    float (*of)(float gauss, unsigned random);
};
constexpr Distribution kDistributions[] = {
    {"gaussian", [](float g, unsigned) { return g; }},
    {"99-percent-zeros", [](float g, unsigned r) { return r % 100 ? 0.0f : g; }},
    {"relu", [](float g, unsigned) { return g < 0 ? 0.0f : g; }},
    {"8-values", [](float, unsigned r) { return static_cast<float>(r % 8) - 4; }},
    {"heavy-tailed", [](float g, unsigned) { return std::exp(2 * g); }},
    {"constant", [](float, unsigned) { return 1.0f; }},
};

unsigned char *Allocate(size_t bytes)
{
    void *p = nullptr;
    if (posix_memalign(&p, 4096, bytes) != 0)
        std::abort();
    return static_cast<unsigned char *>(p);
}

// A short stretch is drawn and repeated.
unsigned char *Data(const Distribution &distribution, bool half, float *min, float *max)
{
    constexpr size_t kDrawn = size_t{1} << 20;
    const size_t size = half ? 2 : 4;
    unsigned char *data = Allocate(kMost * size);
    std::mt19937 generator(1);
    std::normal_distribution<float> gauss(0.0f, 1.0f);
    *min = std::numeric_limits<float>::infinity();
    *max = -*min;
    for (size_t i = 0; i < kDrawn; i++) {
        const float g = gauss(generator);
        float f = distribution.of(g, generator());
        uint32_t bits;
        std::memcpy(&bits, &f, sizeof bits);
        const uint16_t high = static_cast<uint16_t>(bits >> 16);
        if (half) {
            bits = static_cast<uint32_t>(high) << 16;
            std::memcpy(&f, &bits, sizeof f);
            std::memcpy(data + 2 * i, &high, 2);
        } else {
            std::memcpy(data + 4 * i, &bits, 4);
        }
        *min = std::fmin(*min, f);
        *max = std::fmax(*max, f);
    }
    for (size_t at = kDrawn * size; at < kMost * size; at += kDrawn * size)
        std::memcpy(data + at, data, kDrawn * size);
    return data;
}

void Read(benchmark::State &state, const unsigned char *data, size_t bytes)
{
    for (auto _ : state)
        benchmark::DoNotOptimize(read_loop(data, bytes));
    state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

void Histogram(benchmark::State &state, const qobs_kernels *table, qobs_kernel_dtype dtype, const unsigned char *data,
               const qobs_binning &binning, size_t n)
{
    std::vector<uint32_t> counters(QOBS_COUNTER_COPIES * qobs_counter_stride(kBins));
    qobs_seen seen = qobs_seen_nothing();
    for (auto _ : state) {
        std::fill(counters.begin(), counters.end(), 0u);
        table->histogram_rows[dtype](&binning, data, 0, 1, n, counters.data(), &seen);
        benchmark::ClobberMemory();
    }
    uint64_t counted = 0;
    for (const uint32_t counter : counters)
        counted += counter;
    if (counted != n)
        state.SkipWithError("not every element was counted");
    state.SetItemsProcessed(static_cast<int64_t>(n) * state.iterations());
    state.SetBytesProcessed(static_cast<int64_t>(n) * (dtype == QOBS_KERNEL_F32 ? 4 : 2) * state.iterations());
}

}  // namespace

int main(int argc, char **argv)
{
    bool read_registered = false;
    for (const Distribution &distribution : kDistributions)
        for (const bool half : {false, true}) {
            float min, max;
            const unsigned char *data = Data(distribution, half, &min, &max);
            const qobs_binning binning = qobs_binning_of(min, max, kBins, false, false);
            if (!read_registered)
                for (const size_t n : kElements)
                    benchmark::RegisterBenchmark(("read/" + std::to_string(4 * n)).c_str(), Read, data, 4 * n);
            read_registered = true;
            for (size_t t = 0; qobs_kernel_tables[t]; t++) {
                const qobs_kernels *table = qobs_kernel_tables[t];
                if (!table->usable())
                    continue;
                for (const size_t n : kElements) {
                    const std::string name = std::string(table->isa) + "/" + (half ? "bf16" : "f32") + "/" + distribution.name +
                                             "/" + std::to_string(n * (half ? 2 : 4));
                    benchmark::RegisterBenchmark(name.c_str(), Histogram, table, half ? QOBS_KERNEL_BF16 : QOBS_KERNEL_F32, data,
                                                 binning, n);
                }
            }
        }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
