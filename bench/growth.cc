// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// How cost grows with elements, threads, bins, candidates and the length of groups. The report fits exponents to the times.
#include "harness.h"

namespace {

void Register(const std::string &variable, const std::string &work, size_t value, Case c)
{
    c.name = "growth/" + variable + "/" + work + "/" + std::to_string(value);
    Benchmark(c);
}

Case Search(const char *isa, int64_t rows, size_t threads = 1, const std::string &more = "group_size=128", int candidates = 20)
{
    return SearchCase(isa, kF32, "llmc.memoryless_mse", "num_bits=4;norm=2.4;" + more, candidates, threads, rows, "");
}

constexpr size_t kMebi = size_t{1} << 20;

}  // namespace

void RegisterGrowth()
{
    const kernel_table *best = Isas().back();
    for (size_t n = size_t{1} << 10; n <= size_t{1} << 28; n *= 2) {
        const size_t bytes = n * sizeof(float);
        Register("elements", "limit-read", n, ReadLoop(kF32, bytes));
        for (const kernel_table *table : Isas()) {
            if (table != best && n > size_t{1} << 26)
                continue;
            const auto work = [table](const std::string &name) { return name + "/" + table->isa; };
            for (const char *layout : {"row", "group-128", "columns"})
                Register("elements", work(std::string("minmax-") + layout), n, MinmaxCase(layout, kF32, "", bytes).Of(table));
            Register("elements", work("histogram"), n, HistogramCase("gaussian", kF32, "", bytes).Of(table));
            Register("elements", work("squares"), n, SquaresCase(kF32, "", bytes).Of(table));
            if (n <= size_t{1} << 27)  // reads and writes
                Register("elements", work("fake-quantize"), n, QuantizeCase("group-128", kF32, "", bytes).Of(table));
            if (n >= 4096 && n <= (table == best ? size_t{1} << 25 : size_t{1} << 20))
                Register("elements", work("search"), n, Search(table->isa, static_cast<int64_t>(n / 4096)));
        }
    }
    for (size_t threads = 1; threads <= 2; threads++) {
        // Both by the wall clock.
        Case minmax = GranularityCase(best->isa, kF32, "group_size=128", {8192, 4096}, threads, ""), search = Search(best->isa, 1024, threads);
        minmax.threads = search.threads = 2;
        Register("threads", "minmax", threads, minmax);
        Register("threads", "search", threads, search);
    }
    for (size_t bins = 64; bins <= 8192; bins *= 2)
        for (const char *distribution : {"gaussian", "99-percent-zeros"})
            Register("bins", std::string("histogram-") + distribution, bins,
                     HistogramCase(distribution, kF32, "", 4 * kMebi, bins).Of(best));
    for (const int candidates : {5, 10, 20, 50, 100, 200})
        Register("candidates", "search", static_cast<size_t>(candidates),
                 Search(best->isa, 128, 1,
                        "group_size=128;grid=200;patience=1000;maxshrink=" + std::to_string(candidates / 200.0), candidates));
    for (size_t group = 16; group <= 4096; group *= 2) {
        const std::string settings = "group_size=" + std::to_string(group);
        Register("group", "minmax", group, GranularityCase(best->isa, kF32, settings, {512, 4096}, 1, ""));
        Register("group", "search", group, Search(best->isa, 128, 1, settings));
    }
}
