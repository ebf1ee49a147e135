// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

#include "harness.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>

extern "C" {
#include "number/number.h"
}

const Dtype kDtypes[QOBS_KERNEL_DTYPES] = {{"f32", QOBS_KERNEL_F32, QOBS_F32, 4},
                                           {"bf16", QOBS_KERNEL_BF16, QOBS_BF16, 2},
                                           {"f16", QOBS_KERNEL_F16, QOBS_F16, 2},
                                           {"f64", QOBS_KERNEL_F64, QOBS_F64, 8}};
const Dtype &kF32 = kDtypes[0], &kBf16 = kDtypes[1];

const std::vector<Dtype> &NarrowDtypes()
{
    static const std::vector<Dtype> narrow(kDtypes, kDtypes + QOBS_KERNEL_F64);
    return narrow;
}

const std::vector<Level> &Levels()
{
    static const std::vector<Level> levels = [] {
        size_t size[4] = {0, size_t{32} << 10, size_t{1} << 20, size_t{32} << 20};  // where the system does not say
        for (const auto &cache : benchmark::CPUInfo::Get().caches)
            if (cache.type != "Instruction" && cache.level >= 1 && cache.level <= 3 && cache.size > 0)
                size[cache.level] = static_cast<size_t>(cache.size);
        // Whole pages and powers of two, so that every layout fits.
        const auto half = [](size_t bytes) {
            size_t power = 4096;
            while (power * 4 <= bytes)
                power *= 2;
            return power;
        };
        return std::vector<Level>{
            {"L1", half(size[1])},
            {"L2", stepped ? size_t{256} << 10 : half(size[2])},
            {"L3", half(size[3])},
            {"memory", std::min(8 * half(size[3]), kMostBytes)},
        };
    }();
    return levels;
}

const Level &LevelNamed(const std::string &name)
{
    for (const Level &level : Levels())
        if (level.name == name)
            return level;
    std::abort();
}

std::string widest_isa;

static std::vector<const kernel_table *> Usable(const kernel_table *const *tables)
{
    std::vector<const kernel_table *> usable;
    for (size_t i = 0; tables[i]; i++) {
        const bool native = std::strcmp(tables[i]->isa, "plain-native") == 0;  // the compiler's choice of vectors
        if (tables[i]->usable() && (widest_isa.empty() || !native))
            usable.push_back(tables[i]);
        if (widest_isa == tables[i]->isa)
            break;
    }
    return usable;
}

const std::vector<const kernel_table *> &Isas()
{
    static const auto usable = Usable(qobs_kernel_tables);
    return usable;
}

const std::vector<const kernel_table *> &PlainTables()
{
    static const auto usable = Usable(plain_tables);
    return usable;
}

const kernel_table *TableNamed(const std::string &isa)
{
    for (const auto &tables : {Isas(), PlainTables()})
        for (const kernel_table *table : tables)
            if (isa == table->isa)
                return table;
    return nullptr;
}

const limits &Limits()
{
    static const limits &widest = [] () -> const limits & {
        for (size_t i = 0; limits_tables[i]; i++)
            if (std::strcmp(limits_tables[i]->isa, Isas().back()->isa) == 0)
                return *limits_tables[i];
        std::abort();
    }();
    return widest;
}

bool huge_pages, stepped;

unsigned char *Pages(size_t bytes)
{
    constexpr size_t kHugePage = size_t{2} << 20;
    void *p = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        std::abort();
    unsigned char *pages = static_cast<unsigned char *>(p) + (kHugePage - reinterpret_cast<uintptr_t>(p) % kHugePage);
    if (huge_pages)
        madvise(pages, bytes, MADV_HUGEPAGE);
    return pages;
}

const unsigned char *Gaussian(const Dtype &dtype, size_t bytes)
{
    constexpr size_t kMost = kMostBytes, kDrawn = size_t{1} << 20;
    static struct {
        unsigned char *data;
        size_t filled;
    } made[QOBS_KERNEL_DTYPES];
    auto &m = made[dtype.kernel];
    if (bytes > kMost)
        std::abort();
    if (!m.data) {
        m.data = Pages(kMost);
        std::mt19937 generator(1);
        std::normal_distribution<float> gauss(0.0f, 0.02f);
        for (size_t i = 0; i < kDrawn; i++) {
            const float f = gauss(generator);
            const double d = static_cast<double>(f);
            const uint16_t half = dtype.kernel == QOBS_KERNEL_F16 ? f16_of_float(f) : bf16_of_float(f);
            const void *from = dtype.size == 8 ? static_cast<const void *>(&d) : dtype.size == 4 ? static_cast<const void *>(&f) : &half;
            std::memcpy(m.data + i * dtype.size, from, dtype.size);
        }
        m.filled = kDrawn * dtype.size;
    }
    for (; m.filled < bytes; m.filled *= 2)
        std::memcpy(m.data + m.filled, m.data, std::min(m.filled, kMost - m.filled));
    return m.data;
}

unsigned char *Results(size_t bytes)
{
    constexpr size_t kMost = kMostBytes;
    static unsigned char *const results = Pages(kMost);
    if (bytes > kMost)
        std::abort();
    return results;
}

Buffer::Buffer(size_t bytes)
{
    void *p = nullptr;
    if (posix_memalign(&p, 64, bytes + 64) != 0)
        std::abort();
    std::memset(p, 0, bytes + 64);
    bytes_ = std::shared_ptr<unsigned char>(static_cast<unsigned char *>(p), [](unsigned char *b) { std::free(b); });
}

void Benchmark(const Case &c)
{
    auto *registered = benchmark::RegisterBenchmark(c.name.c_str(), [c](benchmark::State &state) {
        const auto call = c.make();
        call();
        if (stepped) {
            std::raise(SIGUSR1);
            call();
            std::raise(SIGUSR1);
        }
        for (auto _ : state) {
            call();
            benchmark::ClobberMemory();
        }
        state.SetBytesProcessed(static_cast<int64_t>(c.bytes) * state.iterations());
        state.SetItemsProcessed(static_cast<int64_t>(c.items) * state.iterations());
        state.counters["bytes"] = c.bytes;
    });
    if (c.threads > 1)
        registered->UseRealTime();
}

// ---- Pairs ---------------------------------------------------------------------------------------------------------------

static double Now(clockid_t clock)
{
    timespec t;
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

static double Seconds(const std::function<void()> &call, size_t calls, clockid_t clock)
{
    const double begin = Now(clock);
    for (size_t i = 0; i < calls; i++) {
        call();
        benchmark::ClobberMemory();
    }
    return Now(clock) - begin;
}

// Calls that take about a millisecond.
static size_t CallsOf(const std::function<void()> &call, clockid_t clock)
{
    size_t calls = 1;
    for (double t; (t = Seconds(call, calls, clock)) < 1e-3; calls *= 2)
        if (t > 2e-4)
            return static_cast<size_t>(static_cast<double>(calls) * 1e-3 / t) + 1;
    return calls;
}

// Two sides, a over b, and how often a turn calls each.
struct Sides {
    std::function<void()> a, b;
    double work_a, work_b;
    clockid_t clock;
    size_t calls_a = 1, calls_b = 1;

    Sides(const Case &first, const Case &second, Unit unit)
        : a(first.make()), b(second.make()), work_a(unit == Unit::kBytes ? first.bytes : first.items),
          work_b(unit == Unit::kBytes ? second.bytes : second.items),
          clock(std::max(first.threads, second.threads) > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID)
    {
    }
};

struct Turn {
    double seconds, speed_a, speed_b;
    double Ratio() const { return speed_a / speed_b; }
};

static Turn Take(const Sides &sides, bool a_first)
{
    double t_a = 0;
    if (a_first)
        t_a = Seconds(sides.a, sides.calls_a, sides.clock);
    const double t_b = Seconds(sides.b, sides.calls_b, sides.clock);
    if (!a_first)
        t_a = Seconds(sides.a, sides.calls_a, sides.clock);
    return {t_a + t_b, sides.work_a * static_cast<double>(sides.calls_a) / t_a, sides.work_b * static_cast<double>(sides.calls_b) / t_b};
}

void Pair(const std::string &name, const Case &a, const Case &b, Unit unit, double operations)
{
    constexpr double kLeast = 0.008, kMost = 0.1;  // seconds a repetition, or kTurns
    constexpr size_t kTurns = 4;
    benchmark::RegisterBenchmark(("pair/" + name).c_str(), [=](benchmark::State &state) {
        Sides sides(a, b, unit);
        std::vector<double> ratios, speed_a, speed_b;
        for (auto _ : state) {
            sides.calls_a = CallsOf(sides.a, sides.clock);  // warms, too
            sides.calls_b = CallsOf(sides.b, sides.clock);
            // As many turns in each order, and some: every pass finds more in a large L3 than the one before, first of all the second.
            const auto few = [&](double spent) { return ratios.size() < 2 || (ratios.size() < kTurns && spent < kMost); };
            for (double spent = 0; few(spent) || ratios.size() % 2 != 0 || spent < kLeast;) {
                const Turn turn = Take(sides, ratios.size() % 2 == 0);
                speed_a.push_back(turn.speed_a);
                speed_b.push_back(turn.speed_b);
                ratios.push_back(turn.Ratio());
                spent += turn.seconds;
            }
        }
        const auto median = [](std::vector<double> v) {
            std::sort(v.begin(), v.end());
            return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
        };
        state.counters["ratio"] = median(ratios);
        state.counters["speed"] = median(speed_a);
        state.counters["other_speed"] = median(speed_b);
        if (operations > 0)
            state.counters["operations"] = operations;
    })->Iterations(1)->Unit(benchmark::kMillisecond);
}

// Processors differ in what a prefetch is worth.
static std::function<void()> Faster(const std::function<void()> &a, const std::function<void()> &b)
{
    constexpr int kTurns = 3;
    const size_t calls = CallsOf(a, CLOCK_THREAD_CPUTIME_ID);
    double least[2] = {1e9, 1e9};
    for (int i = 0; i < kTurns; i++) {
        least[0] = std::min(least[0], Seconds(a, calls, CLOCK_THREAD_CPUTIME_ID));
        least[1] = std::min(least[1], Seconds(b, calls, CLOCK_THREAD_CPUTIME_ID));
    }
    return least[0] <= least[1] ? a : b;
}

bool PairWithLimit(const std::string &name, const Case &c, const std::string &work, const Bytes &bytes)
{
    const size_t operations = OperationsOf(work);
    if (operations == 0)
        return false;
    const bool extrema = work.rfind("minmax/", 0) == 0;
    const auto make = [=] {
        const auto loop = extrema ? Limits().extrema : Limits().arithmetic;
        const auto with = [=](size_t ahead) -> std::function<void()> {
            const limits_work w = {Gaussian(*bytes.dtype, bytes.read), bytes.read,
                                   bytes.written ? Results(bytes.written) : nullptr,
                                   bytes.written * LIMITS_STEP / bytes.read, operations, ahead};
            return [=] { benchmark::DoNotOptimize(loop(&w)); };
        };
        return Faster(with(0), with(4096));
    };
    Pair(name, c, {"", c.bytes, c.items, make}, Unit::kBytes, static_cast<double>(operations));
    return true;
}

void PairOfThreads(const std::string &name, const Case &a, const Case &b, const Case &machine_a, const Case &machine_b, Unit unit)
{
    constexpr int kTurns = 5;
    auto turns = std::make_shared<size_t>(0);
    benchmark::RegisterBenchmark(("pair/" + name).c_str(), [=](benchmark::State &state) {
        const Sides sides(a, b, unit), machine(machine_a, machine_b, unit);
        for (auto _ : state) {
            const bool a_first = (*turns)++ % 2 == 0;
            Take(sides, a_first);  // warms
            const Turn before = Take(machine, a_first), turn = Take(sides, a_first), after = Take(machine, a_first);
            state.counters["ratio"] = turn.Ratio();
            state.counters["speed"] = turn.speed_a;
            state.counters["other_speed"] = turn.speed_b;
            state.counters["machine_before"] = before.Ratio();
            state.counters["machine_after"] = after.Ratio();
        }
    })->Iterations(1)->Repetitions(kTurns)->Unit(benchmark::kMillisecond);
}

Case ReadLoop(const Dtype &dtype, size_t bytes)
{
    return {"", static_cast<double>(bytes), static_cast<double>(bytes) / 8, [&dtype, bytes] {
                const unsigned char *data = Gaussian(dtype, bytes);
                return [data, bytes] { benchmark::DoNotOptimize(Limits().read(data, bytes)); };
            }};
}

Case KernelCase::Of(const kernel_table *table) const
{
    const auto make_one = make;
    return {family + "/" + table->isa + "/" + Rest(), bytes, items, [make_one, table] { return make_one(*table); }};
}

// ---- The public functions --------------------------------------------------------------------------------------------------

void Check(int status, const qobs_error &error)
{
    if (status == QOBS_OK)
        return;
    std::fprintf(stderr, "qobs: %s\n", error.message);
    std::exit(1);
}

void UseIsa(const char *isa)
{
    if (std::strcmp(qobs_isa_active(), isa) == 0)
        return;
    qobs_error error;
    Check(qobs_isa_select(isa, &error), error);
}

size_t RangeCount(const qobs_config *config, const Dtype &dtype, const std::vector<int64_t> &shape)
{
    qobs_error error;
    qobs_qparam_layout layout = {};
    layout.struct_size = sizeof layout;
    const qobs_tensor value = {sizeof value, nullptr, dtype.tensor, static_cast<int>(shape.size()), shape.data(), nullptr};
    Check(qobs_config_qparam_layout(config, &value, nullptr, &layout, &error), error);
    return layout.count;
}

std::shared_ptr<qobs_config> Config(const std::string &preset, const std::string &settings)
{
    qobs_error error;
    qobs_config *config;
    Check(qobs_config_parse(&config, (preset + " " + settings).c_str(), nullptr, &error), error);
    return std::shared_ptr<qobs_config>(config, qobs_config_destroy);
}

static void ParallelFor(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t i = next++; i < count; i = next++)
            task(argument, i);
    };
    std::vector<std::thread> threads;
    for (size_t i = 1; i < static_cast<qobs_executor *>(context)->threads; i++)
        threads.emplace_back(work);
    work();
    for (std::thread &t : threads)
        t.join();
}

std::shared_ptr<qobs_runtime> Threads(size_t threads)
{
    struct Both {
        qobs_runtime runtime;
        qobs_executor executor;
    };
    auto both = std::make_shared<Both>();
    both->executor = {sizeof both->executor, threads, ParallelFor, &both->executor};
    both->runtime = {sizeof both->runtime, nullptr, threads > 1 ? &both->executor : nullptr};
    return std::shared_ptr<qobs_runtime>(both, &both->runtime);
}
