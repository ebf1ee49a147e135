// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

#include "harness.h"

namespace
{

// Vector operations for each KB that is read: instructions that are no moves, loads or stores. operations.py steps
// through a call of each and prints these rows.
const struct {
    const char *work;
    size_t avx2, avx512;
} kCounts[] = {
    {"minmax/f32/row", 64, 32},
    {"minmax/f32/channel-4096", 66, 34},
    {"minmax/f32/group-128", 73, 40},
    {"minmax/f32/group-32", 98, 66},
    {"minmax/f32/block-128x128", 65, 33},
    {"minmax/f32/head-128", 65, 33},
    {"minmax/f32/columns", 149, 59},
    {"minmax/f32/g_idx-128", 264, 131},
    {"minmax/bf16/row", 64, 32},
    {"minmax/bf16/channel-4096", 68, 36},
    {"minmax/bf16/group-128", 83, 49},
    {"minmax/bf16/group-32", 140, 83},
    {"minmax/bf16/block-128x128", 65, 33},
    {"minmax/bf16/head-128", 65, 33},
    {"minmax/bf16/columns", 148, 59},
    {"minmax/bf16/g_idx-128", 296, 147},
    {"codes/bf16/int4-group-128", 651, 231},
    {"codes/bf16/fp8-channel", 1796, 214},
    {"codes/bf16/nvfp4-group-16", 1229, 649},
    {"dynamic/bf16/int8-token", 472, 240},
    {"dynamic/bf16/int8-asymmetric-token", 738, 378},
    {"dynamic/bf16/fp8-token", 1864, 202},
    {"dynamic/bf16/fp8-group-128", 1927, 280},
    {"dynamic/bf16/mxfp8", 2179, 514},
    {"dynamic/bf16/mxfp4", 1255, 554},
    {"dynamic/bf16/nvfp4", 1616, 963},
};

} // namespace

size_t OperationsOf(const std::string &work)
{
    const std::string isa = Isas().back()->isa;
    for (const auto &count : kCounts)
        if (work == count.work)
            return isa == "avx512" ? count.avx512 : isa == "avx2" ? count.avx2 : 0;
    return 0;
}
