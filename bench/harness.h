// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// The parts of all benchmarks: data, sizes, instruction sets, and two ways to measure. A *benchmark* measures one
// thing; bytes_per_second, items_per_second and the counter `bytes` (what a call reads) describe it. A *pair* measures
// two in turns, so that whatever else the machine does disturbs both, and gives the counter `ratio` of their speeds, a
// median of rounds.
#ifndef QOBS_BENCH_HARNESS_H
#define QOBS_BENCH_HARNESS_H

#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "kernels/dispatch.h"
#include "limits.h"
#include "plain.h"
#include "qobs/qobs.h"
#include "qobs/stateless.h"
}

struct Dtype {
    const char *name;
    kernel_dtype kernel;
    qobs_dtype tensor;
    size_t size;
};
extern const Dtype kDtypes[QOBS_KERNEL_DTYPES];
// The dtypes of slots in which all tables have the scalar kernel for F64.
const std::vector<Dtype> &NarrowDtypes();
extern const Dtype &kF32, &kBf16;

// A level of memory and the bytes of data that stay in it: half of a cache of this CPU, or four times the last one, but
// at most kMostBytes.
struct Level {
    std::string name;
    size_t bytes;
};
constexpr size_t kMostBytes = size_t{1} << 30;
const std::vector<Level> &Levels();
const Level &LevelNamed(const std::string &name);

// The tables that run here: instruction sets, slowest first; plain C by the compiler's own vectors.
const std::vector<const kernel_table *> &Isas();
const std::vector<const kernel_table *> &PlainTables();
const kernel_table *TableNamed(const std::string &isa); // NULL: not here
const limits &Limits();                                 // of the widest

// The widest instruction set to use; empty: the best that runs here. Set before any function asks for tables.
extern std::string widest_isa;

// Data lie in pages of 2 MB. Set before any are made.
extern bool huge_pages;

// For operations.py: a benchmark raises SIGUSR1 before and after its second call, of few elements.
extern bool stepped;

// Returns bytes in pages of their own, which are never released. They use memory once they are written.
unsigned char *Pages(size_t bytes);

// At least that many bytes of gaussian weights, 4096-aligned, written once. A short stretch is drawn and repeated.
const unsigned char *Gaussian(const Dtype &dtype, size_t bytes);

// Returns bytes, 4096-aligned, for results that are as large as the data. All cases get the same memory, so that cases
// measured in turns share cache and pages. The distance between elements and results alone is worth tens of per cent.
unsigned char *Results(size_t bytes);

// Memory for results, zeroed, 64-aligned.
class Buffer
{
  public:
    explicit Buffer(size_t bytes);
    unsigned char *Bytes() const { return bytes_.get(); }
    template <typename T> T *As() const { return reinterpret_cast<T *>(bytes_.get()); }

  private:
    std::shared_ptr<unsigned char> bytes_;
};

// One thing to measure. make() allocates and prepares; what it gives is one call, whose results are in memory.
struct Case {
    std::string name;
    double bytes, items;
    std::function<std::function<void()>()> make;
    size_t threads =
        1; // one: timed by the thread's own CPU time, which leaves out that of others; more: by the wall clock
};

void Benchmark(const Case &c);

enum class Unit { kBytes, kItems };
// "pair/<name>": speed of a over that of b.
void Pair(const std::string &name, const Case &a, const Case &b, Unit unit, double operations = 0);
// The case beside its limit (limits.h): a loop over the same bytes, with the vector operations that `work` is counted to
// take for each KB that it reads (operations.cc). Returns false and measures nothing where nobody has counted them.
struct Bytes {
    const Dtype *dtype;
    size_t read, written;
};
bool PairWithLimit(const std::string &name, const Case &c, const std::string &work, const Bytes &bytes);
// Operations by the widest instruction set; 0: not counted.
size_t OperationsOf(const std::string &work);
// The same of several threads and one: a repetition is one turn, with what the machine made of as many threads,
// machine_a over machine_b, right before and right after it ("machine_before", "machine_after").
void PairOfThreads(const std::string &name, const Case &a, const Case &b, const Case &machine_a, const Case &machine_b,
                   Unit unit);

// Over the data of that dtype: where two take turns they share the cache.
Case ReadLoop(const Dtype &dtype, size_t bytes);

// A case of the kernels, for any table that has what it needs.
struct KernelCase {
    std::string family, variant;
    const Dtype *dtype;
    std::string level;
    double bytes, items;
    std::function<bool(const kernel_table &)> has;
    std::function<std::function<void()>(const kernel_table &)> make;

    Case Of(const kernel_table *table) const; // "<family>/<isa>/<dtype>/<variant>/<level>"
    std::string Rest() const { return std::string(dtype->name) + "/" + variant + "/" + level; }
};

// Cases of any size; level is only the last part of the name.
KernelCase MinmaxCase(const std::string &layout, const Dtype &dtype, const std::string &level, size_t bytes);
KernelCase HistogramCase(const std::string &distribution, const Dtype &dtype, const std::string &level, size_t bytes,
                         size_t bins = 2048);
KernelCase QuantizeCase(const std::string &layout, const Dtype &dtype, const std::string &level, size_t bytes);
KernelCase SquaresCase(const Dtype &dtype, const std::string &level, size_t bytes);

// All there are.
std::vector<KernelCase> MinmaxCases();
std::vector<KernelCase> AbsmaxCases();
std::vector<KernelCase> HistogramCases();
std::vector<KernelCase> QuantizeCases();
std::vector<KernelCase> SquaresCases();
std::vector<KernelCase> SearchCases();

// The public functions on tensors.
void RegisterGranularities();
void RegisterSearches();
void RegisterCodes();
void RegisterDynamic();
void RegisterObservers();
void RegisterSmall();
// How cost grows: "growth/<variable>/<work>/<value>".
void RegisterGrowth();

// qobs_search of a weight of rows x 4096, an item an element under one candidate.
Case SearchCase(const char *isa, const Dtype &dtype, const std::string &preset, const std::string &settings,
                int candidates, size_t threads, int64_t rows, const std::string &name);
// qobs_minmax with llmc.memoryless_minmax and these settings.
Case GranularityCase(const char *isa, const Dtype &dtype, const std::string &settings,
                     const std::vector<int64_t> &shape, size_t threads, const std::string &name);

// A configuration with "key=value;key=value"; ends the program where it is wrong.
std::shared_ptr<qobs_config> Config(const std::string &preset, const std::string &settings);

// The number of ranges of a tensor of that shape.
size_t RangeCount(const qobs_config *config, const Dtype &dtype, const std::vector<int64_t> &shape);
void Check(int status, const qobs_error &error);
void UseIsa(const char *isa); // from now on; next to nothing if it is so already
// On `threads` threads, started for each call: some tens of microseconds.
std::shared_ptr<qobs_runtime> Threads(size_t threads);

#endif
