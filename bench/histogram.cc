// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// Histograms of 2048 bins of data of several distributions.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <tuple>

#include "harness.h"

extern "C" {
#include "number/number.h"
#include "histogram/binning.h"
}

namespace {

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

struct Data {
    unsigned char *bytes;
    size_t filled;
    float min, max;
};

// A short stretch is drawn and repeated, page by page as tensors lie.
const Data &Drawn(const Distribution &distribution, const Dtype &dtype, size_t bytes)
{
    static std::map<std::tuple<const char *, const char *>, Data> made;
    Data &data = made[{distribution.name, dtype.name}];
    constexpr size_t kMost = kMostBytes;
    if (bytes > kMost)
        std::abort();
    const size_t stretch = dtype.size << 20;
    if (!data.bytes) {
        data.bytes = Pages(kMost);
        std::mt19937 generator(1);
        std::normal_distribution<float> gauss(0.0f, 1.0f);
        data.min = INFINITY, data.max = -INFINITY;
        for (size_t i = 0; i < stretch / dtype.size; i++) {
            const float g = gauss(generator), f = distribution.of(g, static_cast<unsigned>(generator()));
            const double d = static_cast<double>(f);
            const uint16_t half = dtype.kernel == QOBS_KERNEL_F16 ? f16_of_float(f) : bf16_of_float(f);
            const float rounded = dtype.size > 2                     ? f
                                  : dtype.kernel == QOBS_KERNEL_F16 ? float_of_f16(half)
                                                                    : float_of_bf16(half);
            const void *from = dtype.size == 8 ? static_cast<const void *>(&d) : dtype.size == 4 ? static_cast<const void *>(&f) : &half;
            std::memcpy(&data.bytes[i * dtype.size], from, dtype.size);
            data.min = std::fmin(data.min, rounded);
            data.max = std::fmax(data.max, rounded);
        }
        data.filled = stretch;
    }
    for (; data.filled < bytes; data.filled += stretch)
        std::memcpy(data.bytes + data.filled, data.bytes, stretch);
    return data;
}

std::function<void()> Make(const kernel_table &table, const Distribution &distribution, const Dtype &dtype, size_t bytes, size_t bins)
{
    const Data &data = Drawn(distribution, dtype, bytes);
    const binning binning = qobs_binning_of(data.min, data.max, bins, false, false);
    const Buffer counters(QOBS_COUNTER_COPIES * qobs_counter_stride(bins) * sizeof(uint32_t));
    const auto kernel = table.histogram_rows[dtype.kernel];
    const size_t n = bytes / dtype.size;
    auto counted = std::make_shared<uint64_t>(0);
    return [=, &data] {
        extrema seen = qobs_extrema_of_nothing();
        // Counters are 32 bits: they start anew before they overflow.
        if ((*counted += n) >= uint64_t{1} << 31) {
            std::memset(counters.Bytes(), 0, QOBS_COUNTER_COPIES * qobs_counter_stride(bins) * sizeof(uint32_t));
            *counted = n;
        }
        kernel(&binning, data.bytes, 0, 1, n, counters.As<uint32_t>(), &seen);
        benchmark::DoNotOptimize(seen);
    };
}

}  // namespace

KernelCase HistogramCase(const std::string &distribution, const Dtype &dtype, const std::string &level, size_t bytes, size_t bins)
{
    const Distribution *found = std::find_if(std::begin(kDistributions), std::end(kDistributions),
                                             [&](const Distribution &d) { return distribution == d.name; });
    if (found == std::end(kDistributions))
        std::abort();
    return {"histogram", distribution, &dtype, level, static_cast<double>(bytes), static_cast<double>(bytes / dtype.size),
            [](const kernel_table &) { return true; },
            [&dtype, found, bytes, bins](const kernel_table &table) { return Make(table, *found, dtype, bytes, bins); }};
}

std::vector<KernelCase> HistogramCases()
{
    std::vector<KernelCase> cases;
    for (const Distribution &distribution : kDistributions)
        for (const Dtype &dtype : NarrowDtypes())
            for (const Level &level : Levels())
                cases.push_back(HistogramCase(distribution.name, dtype, level.name, level.name == "memory" ? level.bytes / 2 : level.bytes));
    return cases;
}
