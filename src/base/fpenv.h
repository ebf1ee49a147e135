/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The floating-point mode that results are defined in: round to nearest even, no flushing of subnormals, no traps. A
 * caller may have another mode (flush-to-zero is common), so every public function and every task brackets its work.
 * The flags that arithmetic sets are not part of it: to read them again takes a small call a tenth of its time. */
#pragma once

#include <assert.h>
#include <fenv.h>
#include <float.h>

static_assert(FLT_EVAL_METHOD == 0, "float must be computed in float and double in double");

#if defined(__x86_64__)
#include <xmmintrin.h>
typedef unsigned int fp_mode;
static inline fp_mode fp_enter(void)
{
    const fp_mode before = _mm_getcsr();
    if ((before & ~0x3fu) != 0x1f80) /* the other bits are sticky flags */
        _mm_setcsr(0x1f80);
    return before;
}
static inline void fp_leave(fp_mode before)
{
    if ((before & ~0x3fu) != 0x1f80)
        _mm_setcsr(before);
}
#elif defined(__aarch64__)
#include <stdint.h>
typedef uint64_t fp_mode;
static inline fp_mode fp_enter(void)
{
    fp_mode before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"((fp_mode)0));
    return before;
}
static inline void fp_leave(fp_mode before) { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#else
typedef fenv_t fp_mode;
static inline fp_mode fp_enter(void)
{
    fp_mode before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return before;
}
static inline void fp_leave(fp_mode before) { fesetenv(&before); }
#endif

/* The same for strtod and printf, which obey fegetround. */
struct fp_text_mode {
    fp_mode mode;
    int rounding;
};

static inline struct fp_text_mode fp_enter_text(void)
{
    const struct fp_text_mode before = {fp_enter(), fegetround()};
    fesetround(FE_TONEAREST);
    return before;
}

static inline void fp_leave_text(struct fp_text_mode before)
{
    fesetround(before.rounding);
    fp_leave(before.mode);
}
