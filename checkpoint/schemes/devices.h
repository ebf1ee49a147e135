/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Devices for which runtimes have kernels. */
#pragma once

/* Bits. A processor is one of them: that of the most it has. */
enum device {
    DEVICE_GPU = 1,
    DEVICE_SM90 = 2, /* of compute capability 9.0 */
    DEVICE_AMX = 4,
    DEVICE_AVX512 = 8,
    DEVICE_AVX2 = 16,
    DEVICE_ARM = 32,
};
#define DEVICES_AVX512 (DEVICE_AMX | DEVICE_AVX512)
#define DEVICES_X86 (DEVICES_AVX512 | DEVICE_AVX2)
#define DEVICES_CPU (DEVICES_X86 | DEVICE_ARM)

struct device_words {
    char text[128];
};

/* Describes devices, "on GPUs and on CPUs with AVX-512". Writes the text to `words` and returns it; "" for none. */
const char *devices_describe(unsigned devices, struct device_words *words);

/* Returns the name of bit `i` for programs, such as "avx512"; NULL after the last one. */
const char *device_name(int i);

/* Returns the processor at hand; 0: one without AVX2. */
unsigned device_here(void);
