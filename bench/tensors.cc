// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// The public functions: minimum and maximum by every granularity beside the contiguous one, observers as a whole (reset, observe, read
// scale and zero point), and what a small input costs.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "harness.h"
#include "qobs/stateless.h"

namespace {

constexpr int64_t kSide = 4096;

struct Granularity {
    const char *name, *settings;
    std::vector<int64_t> shape;
    enum { kNone, kSpread, kRagged } g_idx;  // groups all over the row; of unequal sizes
};
const Granularity kGranularities[] = {
    {"tensor", "strategy=tensor", {kSide, kSide}, Granularity::kNone},
    {"channel", "strategy=channel", {kSide, kSide}, Granularity::kNone},
    {"group-128", "group_size=128", {kSide, kSide}, Granularity::kNone},
    {"group-32", "group_size=32", {kSide, kSide}, Granularity::kNone},
    {"group-16", "group_size=16", {kSide, kSide}, Granularity::kNone},
    {"block-128x128", "strategy=block;block_structure=[128, 128]", {kSide, kSide}, Granularity::kNone},
    {"head-128", "base_name=q;strategy=attn_head", {4, 32, 1024, 128}, Granularity::kNone},
    {"activation-group-128", "base_name=input;group_size=128", {4, 1024, kSide}, Granularity::kNone},
    {"token", "base_name=input;strategy=token;dynamic=true", {1, kSide, kSide}, Granularity::kNone},
    {"g_idx-128", "group_size=128", {kSide, kSide}, Granularity::kSpread},
    {"g_idx-32", "group_size=32", {kSide, kSide}, Granularity::kSpread},
    {"g_idx-128-ragged", "group_size=128;ragged=true", {kSide, kSide}, Granularity::kRagged},
};

std::vector<int32_t> Index(const Granularity &granularity)
{
    const int32_t groups = granularity.settings == std::string("group_size=32") ? kSide / 32 : kSide / 128;
    std::vector<int32_t> g_idx(kSide);
    std::mt19937 generator(2);
    for (int32_t i = 0; i < kSide; i++)
        g_idx[static_cast<size_t>(i)] = granularity.g_idx == Granularity::kSpread || i < groups
                                            ? i % groups
                                            : static_cast<int32_t>(generator() % static_cast<unsigned>(groups));
    std::shuffle(g_idx.begin(), g_idx.end(), generator);
    return g_idx;
}

Case Minmax(const char *isa, const Dtype &dtype, const std::string &settings, const std::vector<int64_t> &shape,
            const std::vector<int32_t> &g_idx, size_t threads, const std::string &name)
{
    const int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
    const size_t bytes = static_cast<size_t>(n) * dtype.size;
    return {name, static_cast<double>(bytes), static_cast<double>(n), [=, &dtype] {
                const auto config = Config("llmc.memoryless_minmax", settings);
                const auto runtime = Threads(threads);
                const unsigned char *data = Gaussian(dtype, bytes);
                const Buffer min(bytes / 16), max(bytes / 16);
                const size_t ranges = RangeCount(config.get(), dtype, shape);
                return [=, &dtype] {
                    qobs_error error;
                    const qobs_tensor value = {sizeof value, data, dtype.tensor, static_cast<int>(shape.size()), shape.data(), nullptr};
                    const int64_t columns = static_cast<int64_t>(g_idx.size());
                    const qobs_tensor index = {sizeof index, g_idx.data(), QOBS_I32, 1, &columns, nullptr};
                    UseIsa(isa);
                    qobs_minmax_args args = {};
                    args.struct_size = sizeof args;
                    args.config = config.get();
                    args.value = &value;
                    args.g_idx = columns ? &index : nullptr;
                    args.min = min.Bytes();
                    args.max = max.Bytes();
                    args.size = ranges * dtype.size;
                    args.runtime = runtime.get();
                    Check(qobs_minmax(&args, &error), error);
                };
            }, threads};
}

// ---- Observers -------------------------------------------------------------------------------------------------------------

// Settings that presets need beside their defaults.
std::string SettingsOf(const std::string &preset)
{
    if (preset == "llmc.nvfp4_expanded_mse")
        return "num_bits=4;type=float;strategy=tensor_group;group_size=16";
    if (preset.compare(0, 5, "llmc.") == 0)
        return "num_bits=4;group_size=128";
    if (preset == "torch.FixedQParamsObserver")
        return "scale=0.1;zero_point=0";
    if (preset.compare(0, 16, "quark.PerChannel") == 0)
        return "ch_axis=0";
    if (preset.compare(0, 14, "quark.PerBlock") == 0)
        return preset == "quark.PerBlockBFPObserver" ? "ch_axis=1;group_size=32"
                                                     : "ch_axis=1;group_size=32;scale_format=e8m0;scale_calculation_mode=even";
    if (preset == "quark.PerGroupMinMaxObserver")
        return "group_size=128;qscheme=per_group;ch_axis=1";
    return "";
}

// One scale and one zero point, or what stands for them; observers that look at no data have none.
void ReadResults(const qobs_observer *observer, const Buffer &workspace, size_t size)
{
    qobs_error error;
    for (const char *name : {"scale", "zero_point", "amax"}) {
        qobs_result result = {};
        result.struct_size = sizeof result;
        if (qobs_observer_result_find(observer, name, &result, &error) == QOBS_OK && result.size <= size)
            Check(qobs_observer_read(observer, name, workspace.Bytes(), result.size, &error), error);
    }
}

Case Observe(const char *isa, const Dtype &dtype, const std::string &preset)
{
    constexpr int64_t kRows = 64, kColumns = 4096;
    const size_t bytes = static_cast<size_t>(kRows * kColumns) * dtype.size;
    return {std::string("observer/") + isa + "/" + dtype.name + "/" + preset, static_cast<double>(bytes),
            static_cast<double>(kRows * kColumns), [=, &dtype] {
                qobs_error error;
                UseIsa(isa);
                const auto config = Config(preset, SettingsOf(preset));
                qobs_observer *created;
                Check(qobs_observer_create(&created, config.get(), nullptr, &error), error);
                const std::shared_ptr<qobs_observer> observer(created, qobs_observer_destroy);
                const unsigned char *data = Gaussian(dtype, bytes);
                const Buffer workspace(bytes);
                return [=, &dtype] {
                    qobs_error e;
                    const int64_t shape[] = {kRows, kColumns};
                    const qobs_tensor value = {sizeof value, data, dtype.tensor, 2, shape, nullptr};
                    qobs_observer_reset(observer.get());
                    Check(qobs_observer_observe(observer.get(), &value, nullptr, &e), e);
                    ReadResults(observer.get(), workspace, bytes);
                };
            }};
}

}  // namespace

Case GranularityCase(const char *isa, const Dtype &dtype, const std::string &settings, const std::vector<int64_t> &shape, size_t threads,
                     const std::string &name)
{
    return Minmax(isa, dtype, settings, shape, {}, threads, name);
}

void RegisterGranularities()
{
    const char *best = Isas().back()->isa;
    const auto of = [](const char *isa, const Dtype &dtype, const Granularity &g) {
        return Minmax(isa, dtype, g.settings, g.shape, g.g_idx == Granularity::kNone ? std::vector<int32_t>() : Index(g), 1,
                      std::string("granularity/") + isa + "/" + dtype.name + "/" + g.name);
    };
    for (const kernel_table *table : Isas())
        for (const Dtype *dtype : {&kF32, &kBf16})
            for (const Granularity &g : kGranularities)
                Benchmark(of(table->isa, *dtype, g));
    for (const Dtype *dtype : {&kF32, &kBf16})
        for (const Granularity &g : kGranularities)
            if (g.name != std::string("tensor"))
                Pair(std::string("granularity-contiguous/") + dtype->name + "/" + g.name, of(best, *dtype, g),
                     of(best, *dtype, kGranularities[0]), Unit::kBytes);
}

void RegisterObservers()
{
    for (const Dtype *dtype : {&kF32, &kBf16})
        for (size_t i = 0; i < qobs_preset_count(); i++)
            Benchmark(Observe(Isas().back()->isa, *dtype, qobs_preset_name(i)));
    // The range with the least divergence, of 2048 bins.
    Benchmark({"observer-range/entropy-2048", 2048 * 4, 2048, [] {
                   const auto config = Config("modelopt.HistogramCalibrator", "");
                   const Buffer counts(2048 * sizeof(float)), edges(2049 * sizeof(float));
                   for (int i = 0; i < 2049; i++) {
                       edges.As<float>()[i] = static_cast<float>(i) / 512;
                       if (i < 2048)
                           counts.As<float>()[i] = std::floor(1e6f * std::exp(-0.5f * edges.As<float>()[i] * edges.As<float>()[i]));
                   }
                   return [=] {
                       qobs_error error;
                       const int64_t bins = 2048, all = 2049;
                       const qobs_tensor histogram = {sizeof histogram, counts.Bytes(), QOBS_F32, 1, &bins, nullptr};
                       const qobs_tensor bin_edges = {sizeof bin_edges, edges.Bytes(), QOBS_F32, 1, &all, nullptr};
                       qobs_range_args args = {};
                       args.struct_size = sizeof args;
                       args.config = config.get();
                       args.histogram = &histogram;
                       args.bin_edges = &bin_edges;
                       args.stride = 1;
                       args.start_bin = 128;
                       qobs_range range = {};
                       range.struct_size = sizeof range;
                       Check(qobs_range_by_entropy(&args, &range, &error), error);
                       benchmark::DoNotOptimize(range.max);
                   };
               }});
}

void RegisterSmall()
{
    for (const kernel_table *table : Isas())
        for (const Dtype *dtype : {&kF32, &kBf16}) {
            const std::string rest = std::string("/") + table->isa + "/" + dtype->name;
            // Written out: a Case costs some tens of nanoseconds itself.
            benchmark::RegisterBenchmark(("small/qobs_minmax-64" + rest).c_str(), [table, dtype](benchmark::State &state) {
                UseIsa(table->isa);
                const auto config = Config("llmc.memoryless_minmax", "strategy=tensor");
                const int64_t shape[] = {64};
                const qobs_tensor value = {sizeof value, Gaussian(*dtype, 64 * dtype->size), dtype->tensor, 1, shape, nullptr};
                float min, max;
                qobs_error error;
                qobs_minmax_args args = {};
                args.struct_size = sizeof args;
                args.config = config.get();
                args.value = &value;
                args.min = &min;
                args.max = &max;
                args.size = dtype->size;
                for (auto _ : state) {
                    if (qobs_minmax(&args, &error) != QOBS_OK)
                        state.SkipWithError(error.message);
                    benchmark::ClobberMemory();
                }
                benchmark::DoNotOptimize(max);
            });
            benchmark::RegisterBenchmark(("small/kernel-64" + rest).c_str(), [table, dtype](benchmark::State &state) {
                const unsigned char *data = Gaussian(*dtype, 64 * dtype->size);
                unsigned char min[8] = {0}, max[8] = {0};
                nonfinite_count nonfinite = {};
                for (auto _ : state) {
                    table->minmax_rows[dtype->kernel](data, 0, 1, 64, min, max, 0, &nonfinite);
                    benchmark::ClobberMemory();
                }
                benchmark::DoNotOptimize(nonfinite);
            });
        }
}
