/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "schemes/devices.h"

#include <stddef.h>

#include "files/text.h"
#ifdef __x86_64__
#include <cpuid.h>
#endif

const char *devices_describe(unsigned devices, struct device_words *words)
{
    const char *parts[4];
    size_t count = 0;
    if (devices & (DEVICE_GPU | DEVICE_SM90))
        parts[count++] = devices & DEVICE_GPU ? "GPUs" : "GPUs of compute capability 9.0";
    if (devices & DEVICE_ARM)
        parts[count++] = "Arm CPUs";
    if (devices & DEVICES_X86)
        parts[count++] = devices & DEVICE_AVX2     ? "CPUs with AVX2"
                         : devices & DEVICE_AVX512 ? "CPUs with AVX-512"
                                                   : "CPUs with AMX";
    words->text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        text_append(words->text, sizeof words->text, "%son %s", i == 0 ? "" : i + 1 < count ? ", " : " and ", parts[i]);
    return words->text;
}

const char *device_name(int i)
{
    static const char *const names[] = {"gpu", "sm90", "amx", "avx512", "avx2", "arm"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

unsigned device_here(void)
{
#if defined __x86_64__
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    return d & 1u << 24 ? DEVICE_AMX : b & 1u << 16 ? DEVICE_AVX512 : b & 1u << 5 ? DEVICE_AVX2 : 0;
#elif defined __aarch64__
    return DEVICE_ARM;
#else
    return 0;
#endif
}
