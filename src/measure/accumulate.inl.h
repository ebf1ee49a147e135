/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The functions of accumulate.h for one dtype. */

static void NATIVE(running)(size_t n, stored *min, stored *max, const stored *lo, const stored *hi)
{
    for (size_t i = 0; i < n; i++) {
        const real a = load(min[i]), b = load(lo[i]), c = load(max[i]), d = load(hi[i]);
        min[i] = a < b || a != a ? min[i] : lo[i];
        max[i] = c > d || c != c ? max[i] : hi[i];
    }
}

static void NATIVE(absmax)(size_t n, stored *min, stored *max, const stored *lo, const stored *hi, bool first)
{
    for (size_t i = 0; i < n; i++) {
        const real a = -load(lo[i]), b = load(hi[i]), before = first ? 0 : load(max[i]);
        const real batch = a > b || a != a ? a : b;
        const real amax = batch > before || batch != batch ? batch : before;
        min[i] = store(-amax);
        max[i] = store(amax);
    }
}

static void NATIVE(lerp)(size_t n, stored *state, const stored *batch, double c)
{
    const real state_weight = (real)(1.0 - c), batch_weight = (real)c;
    for (size_t i = 0; i < n; i++) {
        const real old = round_native(load(state[i]) * state_weight),
                   added = round_native(load(batch[i]) * batch_weight);
        state[i] = store(old + added);
    }
}

static void NATIVE(moving_average)(size_t n, stored *state, const stored *batch, double c)
{
    const real rate = (real)c;
    for (size_t i = 0; i < n; i++) {
        const real s = load(state[i]), difference = round_native(load(batch[i]) - s);
        state[i] = store(s + round_native(rate * difference));
    }
}

static void NATIVE(convert)(size_t n, const stored *x, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)load(x[i]);
}
