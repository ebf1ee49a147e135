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
#include <stdint.h>
#include <xmmintrin.h>
/* mingw-w64's rint, log and others compute by the x87, whose mode is a register of its own. */
#ifdef _WIN32
enum { X87_STANDARD = 0x37f }; /* 64 bits of mantissa */
static inline uint16_t x87_enter(void)
{
    const uint16_t standard = X87_STANDARD;
    uint16_t before;
    __asm__ volatile("fnstcw %0" : "=m"(before));
    if (before != standard)
        __asm__ volatile("fldcw %0" : : "m"(standard));
    return before;
}
static inline void x87_leave(uint16_t before)
{
    if (before != X87_STANDARD)
        __asm__ volatile("fldcw %0" : : "m"(before));
}
#else
static inline uint16_t x87_enter(void) { return 0; }
static inline void x87_leave(uint16_t before) { (void)before; }
#endif
typedef struct fp_mode {
    unsigned int vectors;
    uint16_t x87;
} fp_mode;
static inline fp_mode fp_enter(void)
{
    const fp_mode before = {_mm_getcsr(), x87_enter()};
    if ((before.vectors & ~0x3fu) != 0x1f80) /* the other bits are sticky flags */
        _mm_setcsr(0x1f80);
    return before;
}
static inline void fp_leave(fp_mode before)
{
    if ((before.vectors & ~0x3fu) != 0x1f80)
        _mm_setcsr(before.vectors);
    x87_leave(before.x87);
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

/* The mode from here to the end of the block, whichever way that is left. */
static inline void fp_leave_scope(const fp_mode *before) { fp_leave(*before); }
#define FP_SCOPE const fp_mode fp_before __attribute__((cleanup(fp_leave_scope), unused)) = fp_enter()

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
