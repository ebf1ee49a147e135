// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// The search for the range with the least error over a weight of 4096 x 4096, as qobs_search does it (range, candidates and all), on
// every usable instruction set. Names: search/<isa>/<dtype>/<case>/<threads>. One item is an element under one candidate. Norm 6.5 is
// beyond the table: SLEEF's pow on every element, which is what the table saves the others.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "dispatch.h"
#include "qobs/qobs.h"
}

namespace {

constexpr int64_t kSide = 4096;

struct Case {
    const char *name, *preset;
    std::vector<std::pair<const char *, const char *>> settings;
    int candidates;
};

const std::vector<std::pair<const char *, const char *>> kInt4 = {{"num_bits", "4"}, {"strategy", "group"}, {"group_size", "128"}};

Case Int4(const char *name, const char *norm)
{
    Case c = {name, "llmc.memoryless_mse", kInt4, 20};
    c.settings.emplace_back("norm", norm);
    return c;
}

const Case kCases[] = {
    Int4("int4-group-128-norm-1", "1"),
    Int4("int4-group-128-norm-2", "2"),
    Int4("int4-group-128-norm-2.4", "2.4"),
    Int4("int4-group-128-norm-2.7", "2.7"),
    Int4("int4-group-128-norm-3", "3"),
    Int4("int4-group-128-norm-6.5", "6.5"),
    {"nvfp4-expanded", "llmc.nvfp4_expanded_mse", {{"num_bits", "4"}, {"type", "float"}, {"strategy", "tensor_group"},
                                                   {"group_size", "16"}}, 111},
    {"mxfp4", "llmc.memoryless_mse", {{"num_bits", "4"}, {"type", "float"}, {"strategy", "group"}, {"group_size", "32"},
                                      {"scale_dtype", "uint8"}}, 20},
    {"int4-asymmetric-group-128", "llmc.memoryless_mse", {{"num_bits", "4"}, {"strategy", "group"}, {"group_size", "128"},
                                                          {"symmetric", "false"}}, 20},
    {"int8-channel", "llmc.memoryless_mse", {{"num_bits", "8"}, {"strategy", "channel"}}, 20},
    {"fp8-tensor", "llmc.memoryless_mse", {{"num_bits", "8"}, {"type", "float"}, {"strategy", "tensor"}}, 20},
};

// Gaussian weights in f32, and their upper halves as bf16.
struct Data {
    std::vector<float> f32;
    std::vector<uint16_t> bf16;
};

const Data &Weights()
{
    static Data data;
    if (!data.f32.empty())
        return data;
    std::mt19937 generator(1);
    std::normal_distribution<float> gauss(0.0f, 0.02f);
    data.f32.resize(kSide * kSide);
    data.bf16.resize(kSide * kSide);
    for (size_t i = 0; i < data.f32.size(); i++) {
        uint32_t bits;
        data.f32[i] = gauss(generator);
        std::memcpy(&bits, &data.f32[i], sizeof bits);
        data.bf16[i] = static_cast<uint16_t>(bits >> 16);
    }
    return data;
}

void Check(int status, const qobs_error &error)
{
    if (status == QOBS_OK)
        return;
    std::fprintf(stderr, "bench-search: %s\n", error.message);
    std::exit(1);
}

// Threads are started for each call: some tens of microseconds beside tens of milliseconds.
void ParallelFor(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t i = next++; i < count; i = next++)
            task(argument, i);
    };
    std::vector<std::thread> threads;
    for (size_t i = 1; i < *static_cast<size_t *>(context); i++)
        threads.emplace_back(work);
    work();
    for (std::thread &t : threads)
        t.join();
}

void Search(benchmark::State &state, const char *isa, qobs_dtype dtype, const Case &c, size_t threads)
{
    qobs_error error;
    qobs_config *config;
    Check(qobs_isa_limit(isa, &error), error);
    Check(qobs_config_create(&config, c.preset, nullptr, &error), error);
    for (const auto &setting : c.settings)
        Check(qobs_config_set(config, setting.first, setting.second, &error), error);
    const int64_t shape[] = {kSide, kSide};
    qobs_tensor value = {};
    value.struct_size = sizeof value;
    value.data = dtype == QOBS_F32 ? static_cast<const void *>(Weights().f32.data()) : Weights().bf16.data();
    value.dtype = dtype;
    value.ndim = 2;
    value.shape = shape;
    qobs_executor executor = {};
    executor.struct_size = sizeof executor;
    executor.threads = threads;
    executor.parallel_for = ParallelFor;
    executor.context = &threads;
    qobs_runtime runtime = {};
    runtime.struct_size = sizeof runtime;
    runtime.executor = threads > 1 ? &executor : nullptr;
    std::vector<float> min(kSide * kSide / 16), max(min.size());  // room for the smallest groups
    for (auto _ : state)
        Check(qobs_search(config, &value, nullptr, nullptr, nullptr, min.data(), max.data(), nullptr, nullptr, nullptr, &runtime,
                          &error),
              error);
    qobs_config_destroy(config);
    state.SetItemsProcessed(kSide * kSide * c.candidates * state.iterations());
}

}  // namespace

int main(int argc, char **argv)
{
    for (size_t i = 0; i < qobs_isa_count(); i++) {
        if (!qobs_isa_usable(i))
            continue;
        const char *isa = qobs_isa_name(i);
        for (const Case &c : kCases)
            for (const qobs_dtype dtype : {QOBS_F32, QOBS_BF16})
                for (const size_t threads : {size_t{1}, size_t{2}})
                    benchmark::RegisterBenchmark((std::string("search/") + isa + (dtype == QOBS_F32 ? "/f32/" : "/bf16/") +
                                                  c.name + "/" + std::to_string(threads))
                                                     .c_str(),
                                                 Search, isa, dtype, c, threads)
                        ->Unit(benchmark::kMillisecond)
                        ->UseRealTime();
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
