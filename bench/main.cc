// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// bench-qobs: every kernel of every instruction set that runs here, on every dtype, layout and size, beside plain C and beside what a core
// can do at best. Everything is enumerated from the tables of the library; names say what is measured:
//   limit/...                                  the read loop, counter updates, multiply-adds
//   <family>/<table>/<dtype>/<variant>/<size>  kernels; tables are instruction sets, plain-haswell and plain-native
//   granularity/, search-whole/, codes/, dynamic/, observer/, small/   the public functions
//   growth/<variable>/<work>/<value>           how cost grows
//   pair/...                                   two things in turns and the ratio of their speeds
// --huge-pages: data in pages of 2 MB. There is less noise, as it does not matter where pages lie, and reading is faster.
// --isa=NAME: the widest instruction set to use (the best). --step: for operations.py, which counts instructions.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "harness.h"

namespace {

void RegisterLimits()
{
    for (const Level &level : Levels()) {
        Case c = ReadLoop(kF32, level.bytes);
        c.name = "limit/read/" + level.name;
        Benchmark(c);
    }
    Benchmark({"limit/count", 0, 4096, [] {
                   const Buffer counters(2048 * sizeof(uint32_t)), index(4096 * sizeof(uint32_t));
                   for (uint32_t i = 0; i < 4096; i++)
                       index.As<uint32_t>()[i] = i * 7 % 2048;  // none soon again
                   return [=] { Limits().count(counters.As<uint32_t>(), index.As<uint32_t>(), 4096); };
               }});
    size_t done;
    Limits().multiply_add(100000, &done);
    Benchmark({"limit/multiply-add", 0, static_cast<double>(done), [] {
                   return [] {
                       size_t n;
                       benchmark::DoNotOptimize(Limits().multiply_add(100000, &n));
                   };
               }});
}

// Kernels of all families on all tables, and the pairs the targets are about.
void RegisterKernels()
{
    const kernel_table *avx2 = TableNamed("avx2"), *avx512 = TableNamed("avx512"), *haswell = TableNamed("plain-haswell");
    for (const auto &cases : {MinmaxCases(), AbsmaxCases(), HistogramCases(), QuantizeCases(), SquaresCases(), SearchCases()})
        for (const KernelCase &c : cases) {
            for (const auto &tables : {Isas(), PlainTables()})
                for (const kernel_table *table : tables)
                    if (c.has(*table) && c.level != "4096x4096")  // that is for the pairs
                        Benchmark(c.Of(table));
            if (avx2 && avx512)
                Pair("avx512-avx2/" + c.family + "/" + c.Rest(), c.Of(avx512), c.Of(avx2), Unit::kItems);
            if (avx2 && haswell && c.has(*haswell) && (c.level == "L1" || c.level == "L2" || c.level == "L3"))
                Pair("avx2-plain/" + c.family + "/" + c.Rest(), c.Of(avx2), c.Of(haswell), Unit::kItems);
            const bool common = c.dtype == &kF32 || c.dtype == &kBf16;
            if (common && c.family == "minmax" && c.level != "L1") {
                // Twice, so that nothing of it is in a cache.
                const size_t bytes = std::min(static_cast<size_t>(c.bytes) * (c.level == "memory" ? 2 : 1), kMostBytes);
                PairWithLimit("minmax-limit/" + c.Rest(),
                              MinmaxCase(c.variant, *c.dtype, c.level, bytes).Of(Isas().back()),
                              "minmax/" + std::string(c.dtype->name) + "/" + c.variant, {c.dtype, bytes, 0});
            }
        }
    const kernel_table *best = Isas().back();
    for (const char *distribution : {"gaussian", "99-percent-zeros"}) {
        const KernelCase f32 = HistogramCase(distribution, kF32, "16M", size_t{64} << 20),
                         bf16 = HistogramCase(distribution, kBf16, "16M", size_t{32} << 20);
        Pair("histogram-read/f32/" + f32.variant, f32.Of(best), ReadLoop(kF32, size_t{64} << 20), Unit::kBytes);
        Pair("histogram-bf16-f32/" + f32.variant, bf16.Of(best), f32.Of(best), Unit::kItems);
    }
}

}  // namespace

int main(int argc, char **argv)
{
    const auto take = [](const std::string &argument) {
        if (argument == "--huge-pages")
            huge_pages = true;
        else if (argument == "--step")
            stepped = true;
        else if (argument.rfind("--isa=", 0) == 0)
            widest_isa = argument.substr(6);
        else
            return false;
        return true;
    };
    argc = static_cast<int>(std::remove_if(argv + 1, argv + argc, take) - argv);
    if (!widest_isa.empty() && (Isas().empty() || widest_isa != Isas().back()->isa)) {
        std::fprintf(stderr, "--isa: %s does not run here\n", widest_isa.c_str());
        return 1;
    }
    RegisterLimits();
    RegisterKernels();
    RegisterGranularities();
    RegisterSearches();
    RegisterCodes();
    RegisterDynamic();
    RegisterObservers();
    RegisterSmall();
    RegisterGrowth();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 1;
    benchmark::AddCustomContext("isa", Isas().back()->isa);
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
