// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// Activations to codes and their own scales by a prepared quantizer: dynamic quantization in one call. Small calls are
// one row.

#include "harness.h"
#include "qobs/quantizer.h"

namespace
{

constexpr int64_t kColumns = 4096;

struct DynamicKind {
    const char *name, *settings;
    int bits; // of a code; those of 4 are packed
    bool global_scale;
    const char *preset = "llmc.memoryless_minmax";
};

const DynamicKind kKinds[] = {
    {"int8-token", "num_bits=8;strategy=channel", 8, false},
    {"int8-asymmetric-token", "num_bits=8;strategy=channel;symmetric=false", 8, false},
    {"fp8-token", "type=float;num_bits=8;strategy=channel", 8, false},
    {"fp8-group-128", "type=float;num_bits=8;group_size=128", 8, false},
    {"mxfp8", "type=float;num_bits=8;group_size=32;scale_dtype=uint8", 8, false},
    {"mxfp4", "type=float;num_bits=4;group_size=32;scale_dtype=uint8", 4, false},
    {"nvfp4", "type=float;num_bits=4;strategy=tensor_group;group_size=16;scale_dtype=float8_e4m3fn", 4, true},
};

const DynamicKind kVllm = {"vllm", "", 8, false, "vllm.scaled_int8_quant"};

// A quantizer, and the arguments of a run of `rows` rows with results of its own.
class Prepared
{
  public:
    Prepared(const char *isa, const DynamicKind &kind, bool dynamic, int64_t columns, int64_t rows,
             const unsigned char *data)
    {
        UseIsa(isa);
        const auto config = Config(kind.preset, kind.settings);
        qobs_quantizer *quantizer = nullptr;
        qobs_quantizer_args args = {};
        args.struct_size = sizeof args;
        args.config = config.get();
        args.dtype = QOBS_BF16;
        args.columns = columns;
        args.dynamic = dynamic;
        args.packed = kind.bits == 4;
        Check(qobs_quantizer_create(&quantizer, &args, &error_), error_);
        quantizer_ = std::shared_ptr<qobs_quantizer>(quantizer, qobs_quantizer_destroy);
        qobs_quantized_layout layout = {};
        layout.struct_size = sizeof layout;
        Check(qobs_quantizer_layout(quantizer, rows, &layout, &error_), error_);
        scale_ = std::make_shared<Buffer>(layout.scale_size);
        zero_point_ = std::make_shared<Buffer>(layout.zero_point_size + 1);
        for (size_t i = 0; !dynamic && i < layout.scale_size / 2; i++)
            scale_->As<uint16_t>()[i] = 0x3c00; // 2^-7
        run_.struct_size = sizeof run_;
        run_.rows = rows;
        run_.value = data;
        run_.codes = Results(layout.codes_size);
        run_.codes_size = layout.codes_size;
        run_.scale = scale_->Bytes();
        run_.scale_size = layout.scale_size;
        if (layout.has_zero_point) {
            run_.zero_point = zero_point_->Bytes();
            run_.zero_point_size = layout.zero_point_size;
        }
        run_.global_scale = kind.global_scale ? &kGlobalScale : nullptr;
    }

    bool Run() { return qobs_quantizer_run(quantizer_.get(), &run_, &error_) == QOBS_OK; }
    const qobs_error &error() const { return error_; }

  private:
    static constexpr float kGlobalScale = 100;
    std::shared_ptr<qobs_quantizer> quantizer_;
    std::shared_ptr<Buffer> scale_, zero_point_;
    qobs_quantizer_run_args run_ = {};
    qobs_error error_ = {};
};

size_t Rows(const Level &level) { return stepped ? 8 : level.bytes / static_cast<size_t>(kColumns) / kBf16.size; }

double Bytes(const DynamicKind &kind, size_t rows)
{
    return static_cast<double>(rows * static_cast<size_t>(kColumns)) * (2 + kind.bits / 8.0);
}

Case Dynamic(const char *isa, const DynamicKind &kind, const Level &level)
{
    const size_t rows = Rows(level), items = rows * static_cast<size_t>(kColumns);
    return {std::string("dynamic/") + isa + "/bf16/" + kind.name + "/" + level.name, Bytes(kind, rows),
            static_cast<double>(items), [=, &kind] {
                Prepared prepared(isa, kind, true, kColumns, static_cast<int64_t>(rows),
                                  Gaussian(kBf16, items * kBf16.size));
                return [=]() mutable {
                    UseIsa(isa);
                    Check(prepared.Run() ? QOBS_OK : QOBS_ERROR_INVALID_ARGUMENT, prepared.error());
                };
            }};
}

// Written out: a Case costs some tens of nanoseconds itself.
void RegisterRow(const kernel_table *table, const char *what, const DynamicKind &kind, bool dynamic, int64_t columns)
{
    const std::string name = std::string("small/") + what + "-" + std::to_string(columns) + "/" + table->isa + "/bf16";
    benchmark::RegisterBenchmark(name.c_str(), [=, &kind](benchmark::State &state) {
        Prepared prepared(table->isa, kind, dynamic, columns, 1,
                          Gaussian(kBf16, static_cast<size_t>(columns) * kBf16.size));
        for (auto _ : state) {
            if (!prepared.Run())
                state.SkipWithError(prepared.error().message);
            benchmark::ClobberMemory();
        }
    });
}

} // namespace

void RegisterDynamic()
{
    for (const Level &level : {LevelNamed("L2"), LevelNamed("memory")})
        for (const DynamicKind &kind : kKinds) {
            for (const kernel_table *table : Isas())
                Benchmark(Dynamic(table->isa, kind, level));
            const size_t items = Rows(level) * static_cast<size_t>(kColumns);
            PairWithLimit("dynamic-limit/" + std::string(kind.name) + "/" + level.name,
                          Dynamic(Isas().back()->isa, kind, level), "dynamic/bf16/" + std::string(kind.name),
                          {&kBf16, items * kBf16.size, items * static_cast<size_t>(kind.bits) / 8});
        }
    for (const kernel_table *table : Isas())
        for (int64_t columns : {64, 4096}) {
            RegisterRow(table, "static", kKinds[0], false, columns);
            RegisterRow(table, "dynamic", kKinds[0], true, columns);
            RegisterRow(table, "vllm", kVllm, true, columns);
        }
}
