// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// qobs_minmax of 16 Mi elements through every granularity, on every usable instruction set, one thread, in one process.
// Names: <isa>/<dtype>/<granularity>. "tensor" is the contiguous one the others are held against.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "qobs/qobs.h"

namespace {

constexpr int64_t kSide = 4096;
constexpr size_t kElements = static_cast<size_t>(kSide) * kSide;

struct Granularity {
    const char *name, *settings;
    std::vector<int64_t> shape;
    enum { None, Spread, Runs } g_idx; // groups all over the row; of unequal sizes
};
const Granularity kGranularities[] = {
    {"tensor", "strategy=tensor", {kSide, kSide}, Granularity::None},
    {"channel", "strategy=channel", {kSide, kSide}, Granularity::None},
    {"group-128", "group_size=128", {kSide, kSide}, Granularity::None},
    {"group-32", "group_size=32", {kSide, kSide}, Granularity::None},
    {"group-16", "group_size=16", {kSide, kSide}, Granularity::None},
    {"block-128x128", "strategy=block;block_structure=[128, 128]", {kSide, kSide}, Granularity::None},
    {"head-128", "base_name=q;strategy=attn_head", {4, 32, 1024, 128}, Granularity::None},
    {"activation-group-128", "base_name=input;group_size=128", {4, 1024, kSide}, Granularity::None},
    {"token", "base_name=input;strategy=token;dynamic=true", {1, kSide, kSide}, Granularity::None},
    {"g_idx-128", "group_size=128", {kSide, kSide}, Granularity::Spread},
    {"g_idx-32", "group_size=32", {kSide, kSide}, Granularity::Spread},
    {"g_idx-128-ragged", "group_size=128;ragged=true", {kSide, kSide}, Granularity::Runs},
};

struct Dtype {
    const char *name;
    qobs_dtype dtype;
    size_t size;
};
constexpr Dtype kDtypes[] = {{"f32", QOBS_F32, 4}, {"bf16", QOBS_BF16, 2}};

void Check(int status, const qobs_error &error)
{
    if (status != QOBS_OK) {
        std::fprintf(stderr, "%s\n", error.message);
        std::exit(1);
    }
}

// Gaussian weights; a short stretch is drawn and repeated.
const unsigned char *Data(const Dtype &dtype)
{
    static unsigned char *made[2];
    unsigned char *&data = made[dtype.size == 2];
    if (data)
        return data;
    void *p = nullptr;
    if (posix_memalign(&p, 4096, kElements * dtype.size) != 0)
        std::abort();
    data = static_cast<unsigned char *>(p);
    std::mt19937 generator(1);
    std::normal_distribution<float> gauss(0.0f, 0.02f);
    constexpr size_t kDrawn = size_t{1} << 20;
    for (size_t i = 0; i < kElements; i++) {
        if (i >= kDrawn) {
            std::memcpy(data + i * dtype.size, data + (i - kDrawn) * dtype.size, dtype.size);
            continue;
        }
        const float f = gauss(generator);
        uint32_t bits;
        std::memcpy(&bits, &f, sizeof bits);
        const uint16_t high = static_cast<uint16_t>(bits >> 16);
        if (dtype.size == 4)
            std::memcpy(data + 4 * i, &bits, 4);
        else
            std::memcpy(data + 2 * i, &high, 2);
    }
    return data;
}

std::vector<int32_t> Index(const Granularity &granularity, int32_t group_size)
{
    std::vector<int32_t> g_idx(kSide);
    std::mt19937 generator(2);
    for (int32_t i = 0; i < kSide; i++)
        g_idx[static_cast<size_t>(i)] =
            granularity.g_idx == Granularity::Runs && i >= kSide / group_size ? static_cast<int32_t>(generator() % (kSide / group_size))
            : granularity.g_idx == Granularity::Runs ? i : i / group_size;
    std::shuffle(g_idx.begin(), g_idx.end(), generator);
    return g_idx;
}

void Minmax(benchmark::State &state, const char *isa, const Dtype &dtype, const Granularity &granularity)
{
    qobs_error error;
    qobs_config *config;
    Check(qobs_isa_limit(isa, &error), error);
    Check(qobs_config_create(&config, "llmc.memoryless_minmax", nullptr, &error), error);
    std::string settings = granularity.settings;
    int32_t group_size = 0;
    for (size_t at = 0; at < settings.size();) {
        const size_t end = std::min(settings.find(';', at), settings.size()), equals = settings.find('=', at);
        const std::string key = settings.substr(at, equals - at), value = settings.substr(equals + 1, end - equals - 1);
        Check(qobs_config_set(config, key.c_str(), value.c_str(), &error), error);
        if (key == "group_size")
            group_size = std::stoi(value);
        at = end + 1;
    }
    const qobs_tensor value = {sizeof value, Data(dtype), dtype.dtype, static_cast<int>(granularity.shape.size()),
                               granularity.shape.data(), nullptr};
    std::vector<int32_t> index;
    qobs_tensor g_idx = {sizeof g_idx, nullptr, QOBS_I32, 1, &kSide, nullptr};
    if (granularity.g_idx != Granularity::None) {
        index = Index(granularity, group_size);
        g_idx.data = index.data();
    }
    std::vector<unsigned char> min(kElements / 16 * dtype.size), max(min.size());
    for (auto _ : state)
        Check(qobs_minmax(config, &value, index.empty() ? nullptr : &g_idx, min.data(), max.data(), nullptr, nullptr, &error), error);
    state.SetBytesProcessed(static_cast<int64_t>(kElements * dtype.size) * state.iterations());
    qobs_config_destroy(config);
}

}  // namespace

int main(int argc, char **argv)
{
    for (size_t i = 0; i < qobs_isa_count(); i++) {
        if (!qobs_isa_usable(i))
            continue;
        for (const Dtype &dtype : kDtypes)
            for (const Granularity &granularity : kGranularities) {
                const std::string name = std::string(qobs_isa_name(i)) + "/" + dtype.name + "/" + granularity.name;
                benchmark::RegisterBenchmark(name.c_str(), Minmax, qobs_isa_name(i), dtype, granularity);
            }
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
