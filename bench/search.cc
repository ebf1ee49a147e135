// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// The search for the range with the least error: the kernel that sums errors, and qobs_search as a whole (range, candidates and all)
// over a weight. An item is an element under one candidate. Norm 6.5 is beyond the table: SLEEF's pow on every element, which is
// what the table saves the others.
#include <cstring>
#include <random>

#include "harness.h"

extern "C" {
#include "number/format.h"
#include "search/search_errors.h"
#include "qobs/format.h"
#include "qobs/stateless.h"
}

namespace {

// ---- The kernels -----------------------------------------------------------------------------------------------------------

// Up to QOBS_SEARCH_FEW elements: a batch of as many qparams as there are lanes. More: one qparam, or a block of it.
struct KernelKind {
    const char *name;
    const char *format;  // NULL: int4
    double norm;
    size_t n, candidates;
};
constexpr KernelKind kKinds[] = {
    {"int4-norm-1", nullptr, 1, 128, 20},       {"int4-norm-2", nullptr, 2, 128, 20},          {"int4-norm-2.4", nullptr, 2.4, 128, 20},
    {"int4-norm-3", nullptr, 3, 128, 20},       {"int4-norm-6.5", nullptr, 6.5, 128, 20},      {"fp8-norm-2", "fp8_e4m3", 2, 128, 20},
    {"fp8-norm-2.4", "fp8_e4m3", 2.4, 128, 20}, {"fp4-16-norm-2.4", "fp4_e2m1", 2.4, 16, 112}, {"int4-1024-norm-2", nullptr, 2, 1024, 20},
    {"int4-1024-norm-2.4", nullptr, 2.4, 1024, 20},
};

size_t Qparams(const KernelKind &kind) { return kind.n <= QOBS_SEARCH_FEW ? QOBS_SEARCH_LANES : 1; }

std::function<void()> Make(const kernel_table &table, const KernelKind &kind)
{
    const size_t qparams = Qparams(kind), elements = kind.n * qparams, count = kind.candidates * qparams;
    const Buffer x(elements * sizeof(float)), scale(count * sizeof(float)), inverse(count * sizeof(float)), shift(count * sizeof(float)),
        sum(count * sizeof(float));
    quantizer quantizer;
    if (kind.format)
        qobs_quantizer_for_format(&quantizer, qobs_format_find(kind.format));
    else
        qobs_quantizer_for_integers(&quantizer, -8, 7, false);
    auto norm = std::make_shared<search_norm>();
    qobs_error error;
    Check(qobs_search_norm(norm.get(), kind.norm, &error), error);
    std::mt19937 generator(1);
    std::uniform_real_distribution<float> uniform(-0.49f, 0.49f);
    for (size_t i = 0; i < elements; i++)
        x.As<float>()[i] = uniform(generator);
    for (size_t i = 0; i < count; i++) {
        const float p = 1 - static_cast<float>(i / qparams) / 200;
        scale.As<float>()[i] = p * 0.5f / static_cast<float>(quantizer.quant_max);
        qobs_search_candidate(kind.format == nullptr, scale.As<float>()[i], 0, &inverse.As<float>()[i], &shift.As<float>()[i]);
    }
    return [=, errors = table.search_errors, batch = table.search_batch, n = kind.n, candidates = kind.candidates] {
        const prefetch_ahead nothing = {nullptr, nullptr};
        const search_candidates all = {scale.As<float>(), inverse.As<float>(), shift.As<float>(), qparams};
        if (qparams > 1)
            batch(&quantizer, &norm->errors, false, x.As<float>(), nullptr, n, n, &all, candidates, nothing, sum.As<float>());
        else
            errors(&quantizer, &norm->errors, false, x.As<float>(), nullptr, n, &all, candidates, nothing, sum.As<float>());
    };
}

// ---- As a whole ------------------------------------------------------------------------------------------------------------

struct SearchKind {
    const char *name, *preset;
    std::string settings;
    int candidates;
};
const std::string kInt4 = "num_bits=4;strategy=group;group_size=128";
const SearchKind kSearches[] = {
    {"int4-group-128-norm-1", "llmc.memoryless_mse", kInt4 + ";norm=1", 20},
    {"int4-group-128-norm-2", "llmc.memoryless_mse", kInt4 + ";norm=2", 20},
    {"int4-group-128-norm-2.4", "llmc.memoryless_mse", kInt4 + ";norm=2.4", 20},
    {"int4-group-128-norm-2.7", "llmc.memoryless_mse", kInt4 + ";norm=2.7", 20},
    {"int4-group-128-norm-3", "llmc.memoryless_mse", kInt4 + ";norm=3", 20},
    {"int4-group-128-norm-6.5", "llmc.memoryless_mse", kInt4 + ";norm=6.5", 20},
    {"int4-asymmetric-group-128", "llmc.memoryless_mse", kInt4 + ";symmetric=false", 20},
    {"nvfp4-expanded", "llmc.nvfp4_expanded_mse", "num_bits=4;type=float;strategy=tensor_group;group_size=16", 111},
    {"mxfp4", "llmc.memoryless_mse", "num_bits=4;type=float;strategy=group;group_size=32;scale_dtype=uint8", 20},
    {"int8-channel", "llmc.memoryless_mse", "num_bits=8;strategy=channel", 20},
    {"fp8-tensor", "llmc.memoryless_mse", "num_bits=8;type=float;strategy=tensor", 20},
};

const SearchKind &Kind(const std::string &name)
{
    for (const SearchKind &kind : kSearches)
        if (name == kind.name)
            return kind;
    std::abort();
}

Case Search(const char *isa, const Dtype &dtype, const SearchKind &kind, size_t threads, int64_t rows = 4096)
{
    return SearchCase(isa, dtype, kind.preset, kind.settings, kind.candidates, threads, rows,
                      std::string("search-whole/") + isa + "/" + dtype.name + "/" + kind.name);
}

// Multiply-adds in pieces, and nothing else: as long as the shortest search of 4096x4096.
Case MultiplyAdds(size_t threads)
{
    constexpr size_t kPieces = 64, kPiece = 50'000'000;
    size_t done;
    Limits().multiply_add(kPiece, &done);
    return {"multiply-adds", 0, static_cast<double>(kPieces * done), [=] {
                const auto runtime = Threads(threads);
                return [=] {
                    const auto piece = [](void *, size_t) {
                        size_t n;
                        benchmark::DoNotOptimize(Limits().multiply_add(kPiece, &n));
                    };
                    const qobs_executor *executor = runtime->executor;
                    if (executor)
                        executor->parallel_for(executor->context, piece, nullptr, kPieces);
                    for (size_t i = 0; !executor && i < kPieces; i++)
                        piece(nullptr, i);
                };
            }, threads};
}

}  // namespace

Case SearchCase(const char *isa, const Dtype &dtype, const std::string &preset, const std::string &settings, int candidates,
                size_t threads, int64_t rows, const std::string &name)
{
    const double n = static_cast<double>(rows) * 4096;
    return {name, n * static_cast<double>(dtype.size), n * candidates, [=, &dtype] {
                const auto config = Config(preset, settings);
                const auto runtime = Threads(threads);
                const unsigned char *data = Gaussian(dtype, static_cast<size_t>(n) * dtype.size);
                const Buffer min(static_cast<size_t>(n) / 16 * dtype.size), max(static_cast<size_t>(n) / 16 * dtype.size);
                const size_t ranges = RangeCount(config.get(), dtype, {rows, 4096});
                return [=, &dtype] {
                    qobs_error error;
                    const int64_t shape[] = {rows, 4096};
                    const qobs_tensor value = {sizeof value, data, dtype.tensor, 2, shape, nullptr};
                    UseIsa(isa);
                    qobs_search_args args = {};
                    args.struct_size = sizeof args;
                    args.config = config.get();
                    args.value = &value;
                    args.min = min.Bytes();
                    args.max = max.Bytes();
                    args.size = ranges * dtype.size;
                    args.runtime = runtime.get();
                    Check(qobs_search(&args, &error), error);
                };
            }, threads};
}

std::vector<KernelCase> SearchCases()
{
    std::vector<KernelCase> cases;
    for (const KernelKind &kind : kKinds) {
        const bool plain = !kind.format && kind.norm != 1 && kind.norm != 3;
        cases.push_back({"search", kind.name, &kF32, "L1", static_cast<double>(kind.n * Qparams(kind) * sizeof(float)),
                         static_cast<double>(kind.n * Qparams(kind) * kind.candidates),
                         [plain](const kernel_table &table) { return plain || std::strncmp(table.isa, "plain", 5) != 0; },
                         [&kind](const kernel_table &table) { return Make(table, kind); }});
    }
    return cases;
}

void RegisterSearches()
{
    const char *best = Isas().back()->isa;
    for (const kernel_table *table : Isas())
        for (const SearchKind &kind : kSearches)
            for (const Dtype *dtype : {&kF32, &kBf16})
                Benchmark(Search(table->isa, *dtype, kind, 1, 128));
    for (const char *name : {"int4-group-128-norm-2", "int4-group-128-norm-2.4", "int4-group-128-norm-2.7"}) {
        const std::string rest = std::string("/") + name;
        SearchKind in_float = Kind(name);
        in_float.settings += ";search_dtype=float32";
        Pair("search-bf16-f32" + rest, Search(best, kBf16, in_float, 1), Search(best, kF32, Kind(name), 1), Unit::kItems);
        Pair("search-native-f32" + rest, Search(best, kBf16, Kind(name), 1), Search(best, kF32, Kind(name), 1), Unit::kItems);
    }
    for (const char *name : {"int4-group-128-norm-2", "int4-group-128-norm-2.4", "int8-channel", "fp8-tensor"})
        PairOfThreads(std::string("search-2-threads/") + name, Search(best, kF32, Kind(name), 2), Search(best, kF32, Kind(name), 1),
                      MultiplyAdds(2), MultiplyAdds(1), Unit::kItems);
    Pair("search-nvfp4-expanded-int4", Search(best, kF32, Kind("nvfp4-expanded"), 1),
         Search(best, kF32, Kind("int4-group-128-norm-2.4"), 1), Unit::kItems);
    // A norm with a table of powers beside one without.
    Pair("search-table-pow", Search(best, kF32, Kind("int4-group-128-norm-2.4"), 1, 256),
         Search(best, kF32, Kind("int4-group-128-norm-6.5"), 1, 256), Unit::kItems);
}
