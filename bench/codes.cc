// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// Weights to packed codes as a checkpoint has them: qobs_quantize on slices of rows.
#include <algorithm>

#include "harness.h"

namespace {

constexpr int64_t kColumns = 4096;

int64_t SliceRows() { return stepped ? 8 : 64; }  // 64: 512 KB of bf16

struct CodeKind {
    const char *name, *settings;
    int64_t group;  // columns that share a scale
    int bits;       // of a packed code
    bool global_scale;
};

const CodeKind kKinds[] = {
    {"int4-group-128", "num_bits=4;group_size=128", 128, 4, false},
    {"fp8-channel", "type=float;num_bits=8;strategy=channel", kColumns, 8, false},
    {"nvfp4-group-16", "type=float;num_bits=4;strategy=tensor_group;group_size=16", 16, 4, true},
};

// The slice of SliceRows() rows at `data`; codes of 4 bits are packed.
void QuantizeSlice(const CodeKind &kind, bool errors, const qobs_config *config, const unsigned char *data,
                   const Buffer &scale, unsigned char *codes)
{
    double squared_error, energy;
    static const float global = 10;
    const int64_t shape[] = {SliceRows(), kColumns}, scales = SliceRows() * kColumns / kind.group;
    const size_t count = static_cast<size_t>(SliceRows() * kColumns);
    const qobs_tensor value = {sizeof value, data, QOBS_BF16, 2, shape, nullptr};
    const qobs_tensor of_scale = {sizeof of_scale, scale.Bytes(), QOBS_BF16, 1, &scales, nullptr};
    qobs_error error;
    qobs_quantize_args args = {};
    args.struct_size = sizeof args;
    args.config = config;
    args.value = &value;
    args.scale = &of_scale;
    args.global_scale = kind.global_scale ? &global : nullptr;
    args.codes = codes;
    args.codes_size = count * static_cast<size_t>(kind.bits) / 8;
    args.packed = kind.bits == 4;
    args.squared_error = errors ? &squared_error : nullptr;
    args.energy = errors ? &energy : nullptr;
    Check(qobs_quantize(&args, &error), error);
}

// `bytes` of weights; read and written bytes count. errors: the sums for the summary of `qobs quantize`, too.
Case Codes(const char *isa, const CodeKind &kind, bool errors, size_t bytes)
{
    const size_t slice = static_cast<size_t>(SliceRows() * kColumns) * kBf16.size,
                 slices = std::max<size_t>(bytes / slice, 1);
    const size_t written = slice / 2 * static_cast<size_t>(kind.bits) / 8;
    return {std::string(errors ? "codes-errors/" : "codes/") + isa + "/bf16/" + kind.name, static_cast<double>(slices * (slice + written)),
            static_cast<double>(slices * slice / 2), [=, &kind] {
                const auto config = Config("llmc.memoryless_minmax", kind.settings);
                const unsigned char *data = Gaussian(kBf16, slices * slice);
                unsigned char *packed = Results(slices * written);
                const Buffer scale(slice / 2 / static_cast<size_t>(kind.group) * 2);
                // From 2^-7 to 2^-6, with all significands of bf16, or with those of e4m3 beside a global scale.
                const size_t step = kind.global_scale ? 16 : 1;
                for (size_t i = 0; i < slice / 2 / static_cast<size_t>(kind.group); i++)
                    scale.As<uint16_t>()[i] = static_cast<uint16_t>(0x3c00 + 37 * step * i % 128);
                return [=, &kind] {
                    UseIsa(isa);
                    for (size_t i = 0; i < slices; i++)
                        QuantizeSlice(kind, errors, config.get(), data + i * slice, scale, packed + i * written);
                };
            }};
}

}  // namespace

void RegisterCodes()
{
    const size_t bytes = LevelNamed(stepped ? "L1" : "memory").bytes;
    for (const CodeKind &kind : kKinds) {
        for (const kernel_table *table : Isas())
            for (bool errors : {false, true})
                Benchmark(Codes(table->isa, kind, errors, bytes));
        PairWithLimit(std::string("codes-limit/") + kind.name, Codes(Isas().back()->isa, kind, false, bytes),
                      std::string("codes/bf16/") + kind.name,
                      {&kBf16, bytes, bytes / 16 * static_cast<size_t>(kind.bits)});
    }
}
