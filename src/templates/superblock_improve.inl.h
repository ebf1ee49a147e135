/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of less error than those that are there. Included by superblock.inl.h after superblock_optimal.inl.h.
 *
 * A block of one scale gets the best of all that can be stored. The f16 scales of blocks with integers for scales, and
 * minima, are fitted to what the elements become, and integers near are tried, as long as the error falls. After
 * several starts all integers are tried for the best f16 scales. A block of f16 scale and minimum is fitted from
 * several ranges. */

enum { ROUNDS = 6 };

/* Factors of a block's scale and minimum from which both are fitted again. */
static const float moves[][2] = {{1.05f, 1}, {0.95f, 1}, {1, 1.05f}, {1, 0.95f}, {1.1f, 1},  {0.9f, 1},
                                 {1, 1.1f},  {1, 0.9f},  {1.02f, 1}, {0.98f, 1}, {1, 1.02f}, {1, 0.98f}};
enum { MOVES = sizeof moves / sizeof *moves };

/* Blocks whose runs are in lanes. */
struct block_pack {
    struct runs runs;
    struct run_sums sums;
    struct lane_best best;
    size_t blocks, runs_each;
    float unit[ROW]; /* of the elements of a lane */
    struct block_scales scales;
};

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static inline enum run_numbers run_numbers_of(const struct gguf_type *type)
{
    return type->code == GGUF_CODE_CODEBOOK ? RUN_CODEBOOK
           : type->code == GGUF_CODE_E2M1   ? RUN_E2M1
           : type->code == GGUF_CODE_SIGN   ? RUN_SIGNS
                                            : RUN_INTEGERS;
}

/* Codes of 8 bits and of three numbers are symmetric. */
static inline void integers_of(const struct gguf_type *type, int *low, int *high)
{
    const bool symmetric = type->code == GGUF_CODE_AWAY || type->code == GGUF_CODE_TRITS;
    *high = symmetric && type->low > 0 ? type->low : type->top - type->low;
    *low = symmetric ? -*high : -type->low;
}

/* The power of 2 that brings a magnitude to 1 up to 2. */
static inline float unit_for(float magnitude)
{
    const int exponent = (int)(bits_of_float(magnitude) >> 23) - 127;
    const int limited = exponent < -100 ? -100 : exponent > 120 ? 120 : exponent;
    return magnitude > 0 ? float_of_bits((uint32_t)(127 - limited) << 23) : 1;
}

static inline float largest_of_n(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* The importance of the elements of a block; NULL: all 1. */
static inline const float *importance_of(const struct job *j, const struct chunk *c, size_t block)
{
    return j->importance ? j->importance + (c->first + block * j->type->elements) % j->columns : NULL;
}

/* A small weight more decides where importance is 0. */
static void load_lanes(const struct job *j, const struct chunk *c, size_t first, struct block_pack *p)
{
    const size_t elements = j->type->elements, n = j->type->run;
    memset(p->runs.x, 0, sizeof p->runs.x);
    memset(p->runs.h, 0, sizeof p->runs.h);
    for (size_t b = 0; b < p->blocks; b++) {
        const float *const x = c->x + (first + b) * elements, *const h = importance_of(j, c, first + b);
        const float unit = unit_for(largest_of_n(x, elements)), weight = h ? unit_for(largest_of_n(h, elements)) : 1;
        for (size_t i = 0; i < elements; i++) {
            const size_t lane = b * p->runs_each + i / n, to = ROW * (i % n) + lane;
            p->unit[lane] = unit;
            p->runs.x[to] = x[i] * unit;
            p->runs.h[to] = (h ? h[i] : 1) * weight + 0x1p-40f;
        }
    }
}

/* The errors of the scales and minima that p->best holds; those of lanes without a block or with a unit of 0 are 0. */
static void evaluate(struct block_pack *p)
{
    EACH_LANES(v, F32X16_PARTS)
    {
        const f32v error = run_error(&p->runs, v, LOAD(p->best.scale + LANES * v), LOAD(p->best.minimum + LANES * v));
        STORE(p->best.error + LANES * v, error);
    }
}

/* Begins with the scales of the blocks that are there; infinite ones are none. */
static void begin(const struct job *j, const unsigned char *blocks, struct block_pack *p)
{
    memset(&p->best, 0, sizeof p->best);
    for (size_t b = 0; b < p->blocks; b++) {
        float scale[GGUF_MOST_RUNS], minimum[GGUF_MOST_RUNS];
        gguf_run_scales(j->type, blocks + b * j->type->bytes, scale, minimum);
        for (size_t r = 0; r < p->runs_each; r++) {
            const size_t lane = b * p->runs_each + r;
            const bool finite = isfinite(scale[r]) && isfinite(minimum[r]);
            p->best.scale[lane] = finite ? scale[r] * p->unit[lane] : 0;
            p->best.minimum[lane] = finite ? minimum[r] * p->unit[lane] : 0;
        }
    }
    sum_runs(&p->runs, &p->sums);
    evaluate(p);
}

/* ---- Scales that are stored as they are -------------------------------------------------------------------------- */

static void find_scales(const struct gguf_type *type, struct block_pack *p)
{
    static const struct lattice f16 = {0x1fff, 0x1p-14f, 0x1p-24f, 65504, false},
                                e4m3 = {0xfffff, 0x1p-7f, 0x1p-10f, 224, false},
                                e8m0 = {0x7fffff, 0, 0x1p-126f, 0x1p126f, false};
    const struct lattice *const l = type->scales == GGUF_SCALES_E4M3   ? &e4m3
                                    : type->scales == GGUF_SCALES_E8M0 ? &e8m0
                                                                       : &f16;
    search_scale(&p->runs, &p->sums, l, p->unit, 1, &p->best);
    if (type->scales == GGUF_SCALES_NONE && type->code != GGUF_CODE_SIGN && p->runs.low != -p->runs.high)
        search_scale(&p->runs, &p->sums, l, p->unit, -1, &p->best);
}

/* ---- Scale and minimum in f16 ------------------------------------------------------------------------------------ */

static inline float f16_number(double x) { return float_of_f16(f16_of_float((float)x)); }

/* Fits scales and minima to the numbers that runs have; both are rounded. */
static void fit_pairs(struct block_pack *p, float *scale, float *minimum)
{
    struct number_sums s;
    sum_numbers(&p->runs, scale, minimum, &s);
    for (size_t l = 0; l < ROW; l++) {
        const double h = (double)p->sums.h[l], hx = (double)p->sums.hx[l], q = (double)s.q[l],
                     unit = (double)p->unit[l];
        const double determinant = h * (double)s.qq[l] - q * q;
        if (!(determinant > 0))
            continue;
        const double a = (h * (double)s.xq[l] - hx * q) / determinant;
        const float of_scale = f16_number(a / unit);
        const float of_minimum = f16_number(((double)of_scale * unit * q - hx) / h / unit);
        if (isfinite(of_scale) && isfinite(of_minimum)) {
            scale[l] = of_scale * p->unit[l];
            minimum[l] = of_minimum * p->unit[l];
        }
    }
}

static void find_pairs(struct block_pack *p)
{
    enum { SHRINKS = 5, FITS = 3 };
    static const float cut[SHRINKS] = {0, 0.03f, 0.06f, 0.1f, 0.15f};
    const f32v zero = f32v_splat(0);
    const float high = (float)p->runs.high;
    for (int k = 0; k < SHRINKS * SHRINKS; k++) {
        float scale[ROW], minimum[ROW];
        for (size_t l = 0; l < ROW; l++) {
            const float span = p->sums.high[l] - p->sums.low[l];
            minimum[l] = -(p->sums.low[l] + cut[k % SHRINKS] * span);
            scale[l] = span * (1 - cut[k % SHRINKS] - cut[k / SHRINKS]) / high;
        }
        for (int fit = 0; fit < FITS; fit++) {
            fit_pairs(p, scale, minimum);
            for (int v = 0; v < F32X16_PARTS; v++) {
                const f32v s = LOAD(scale + LANES * v), m = LOAD(minimum + LANES * v);
                take_better(&p->best, v, f32v_less(zero, LOAD(p->unit + LANES * v)), run_error(&p->runs, v, s, m), s,
                            m);
            }
        }
    }
}

/* ---- Integers for scales ----------------------------------------------------------------------------------------- */

/* A trial of f16 scales and minima of blocks. */
struct scale_trial {
    float scale[ROW], minimum[ROW];             /* of a block; scale 0: the block is done */
    float scale_unit[ROW], minimum_unit[ROW];   /* of a lane */
    int32_t scale_code[ROW], minimum_code[ROW]; /* of a lane */
};

/* The largest integer with either sign; those of pairs have none. */
static inline void most_integers(const struct gguf_type *type, float *positive, float *negative)
{
    const int most = type->scales == GGUF_SCALES_NIBBLES ? 15
                     : type->scales == GGUF_SCALES_4     ? 63
                     : type->scales == GGUF_SCALES_BYTES ? 127
                                                         : 31;
    *positive = (float)most;
    *negative = *positive + 1;
}

/* Begins a trial with the integers of the one before. */
static void begin_trial(struct scale_trial *t, struct block_pack *p)
{
    for (size_t l = 0; l < ROW; l++) {
        const size_t b = l / p->runs_each;
        t->scale_unit[l] = t->scale[b] * p->unit[l];
        t->minimum_unit[l] = t->minimum[b] * p->unit[l];
        p->best.scale[l] = (float)t->scale_code[l] * t->scale_unit[l];
        p->best.minimum[l] = (float)t->minimum_code[l] * t->minimum_unit[l];
    }
    evaluate(p);
    for (size_t l = 0; l < ROW; l++)
        if (t->scale_unit[l] == 0 && t->minimum_unit[l] == 0)
            p->best.error[l] = 0;
}

static inline int32_t integer_for(float number, float unit) { return unit == 0 ? 0 : (int32_t)rintf(number / unit); }

/* Searches all integers, or those near. */
static void search_integers(const struct gguf_type *type, bool all, struct scale_trial *t, struct block_pack *p)
{
    struct lattice l = {0, 0, 1, 0, true};
    float positive, negative;
    const bool minima = type->minimum_at >= 0;
    most_integers(type, &positive, &negative);
    if (!all) {
        search_near(&p->runs, minima ? 0 : -negative, positive, minima, t->scale_unit, t->minimum_unit, t->scale_code,
                    t->minimum_code, &p->best);
    } else if (minima) {
        search_pairs(&p->runs, &p->sums, positive, t->scale_unit, t->minimum_unit, &p->best);
    } else {
        l.top = positive;
        search_scale(&p->runs, &p->sums, &l, t->scale_unit, 1, &p->best);
        l.top = negative;
        search_scale(&p->runs, &p->sums, &l, t->scale_unit, -1, &p->best);
    }
    for (size_t i = 0; i < ROW; i++) {
        t->scale_code[i] = integer_for(p->best.scale[i], t->scale_unit[i]);
        t->minimum_code[i] = integer_for(p->best.minimum[i], t->minimum_unit[i]);
    }
}

static double error_of_block(const struct block_pack *p, size_t b)
{
    double error = 0;
    for (size_t r = 0; r < p->runs_each; r++)
        error += (double)p->best.error[b * p->runs_each + r];
    return error;
}

static void accept(const struct scale_trial *t, size_t b, struct block_pack *p)
{
    p->scales.of_scales[b] = t->scale[b];
    p->scales.of_minima[b] = t->minimum[b];
    for (size_t r = 0; r < p->runs_each; r++) {
        p->scales.scale_code[ROW * r + b] = t->scale_code[b * p->runs_each + r];
        p->scales.minimum_code[ROW * r + b] = t->minimum_code[b * p->runs_each + r];
    }
}

/* Fits the scales of a block to the numbers that its runs have. Returns false if they are as before, or not better. */
static bool fit_block(const struct gguf_type *type, const struct number_sums *s, const struct block_pack *p, size_t b,
                      struct scale_trial *t)
{
    double ss = 0, sm = 0, mm = 0, sx = 0, mx = 0, scale, minimum = 0;
    for (size_t r = 0; r < p->runs_each; r++) {
        const size_t l = b * p->runs_each + r;
        const double code = t->scale_code[l], of_minimum = t->minimum_code[l];
        ss += code * code * (double)s->qq[l];
        sm += code * of_minimum * (double)s->q[l];
        mm += of_minimum * of_minimum * (double)p->sums.h[l];
        sx += code * (double)s->xq[l];
        mx += of_minimum * (double)p->sums.hx[l];
    }
    const double determinant = ss * mm - sm * sm, unit = (double)p->unit[b * p->runs_each];
    if (!(ss > 0))
        return false;
    scale = sx / ss;
    if (type->minimum_at >= 0 && determinant > 0) {
        scale = (sx * mm - mx * sm) / determinant;
        minimum = (sx * sm - mx * ss) / determinant;
    }
    const float new_scale = f16_number(scale / unit), new_minimum = f16_number(minimum / unit);
    const bool same = new_scale == t->scale[b] && new_minimum == t->minimum[b];
    if (same || !isfinite(new_scale) || !isfinite(new_minimum) || new_minimum < 0)
        return false;
    t->scale[b] = new_scale;
    t->minimum[b] = new_minimum;
    return new_scale > 0 || (new_scale < 0 && type->minimum_at < 0);
}

/* The scales that blocks have are the first trial. */
static void first_trial(const struct gguf_type *type, const unsigned char *blocks, const struct block_pack *p,
                        struct scale_trial *t)
{
    memset(t, 0, sizeof *t);
    for (size_t b = 0; b < p->blocks; b++) {
        const unsigned char *const block = blocks + b * type->bytes;
        t->scale[b] = float_of_f16(gguf_load16(block + type->scale_at));
        t->minimum[b] = type->minimum_at < 0 ? 0 : float_of_f16(gguf_load16(block + type->minimum_at));
        if (!isfinite(t->scale[b]) || !isfinite(t->minimum[b]))
            t->scale[b] = t->minimum[b] = 0;
        for (size_t r = 0; r < p->runs_each; r++) {
            const size_t l = b * p->runs_each + r;
            t->scale_code[l] = integer_for(p->best.scale[l], t->scale[b] * p->unit[l]);
            t->minimum_code[l] = integer_for(p->best.minimum[l], t->minimum[b] * p->unit[l]);
        }
    }
}

/* Searches the integers of a trial, and fits the scales of blocks that became better. Returns whether a block has other
 * scales to try; those that have not are done. */
static bool try_scales(const struct gguf_type *type, bool all, struct scale_trial *t, struct block_pack *p,
                       double *error)
{
    struct number_sums s;
    bool open = false;
    begin_trial(t, p);
    search_integers(type, all, t, p);
    sum_numbers(&p->runs, p->best.scale, p->best.minimum, &s);
    for (size_t b = 0; b < p->blocks; b++) {
        const double now = error_of_block(p, b);
        const bool better = (t->scale[b] != 0 || t->minimum[b] != 0) && now < error[b];
        if (better) {
            accept(t, b, p);
            error[b] = now;
        }
        if (better && fit_block(type, &s, p, b, t))
            open = true;
        else
            t->scale[b] = t->minimum[b] = 0;
    }
    return open;
}

/* A trial of the best scales up to now. */
static void best_trial(const struct block_pack *p, struct scale_trial *t)
{
    for (size_t b = 0; b < p->blocks; b++) {
        t->scale[b] = p->scales.of_scales[b];
        t->minimum[b] = p->scales.of_minima[b];
        for (size_t r = 0; r < p->runs_each; r++) {
            t->scale_code[b * p->runs_each + r] = p->scales.scale_code[ROW * r + b];
            t->minimum_code[b * p->runs_each + r] = p->scales.minimum_code[ROW * r + b];
        }
    }
}

/* Moves the scales of a trial; the integers go the other way. */
static void move_trial(const struct gguf_type *type, float scale, float minimum, const struct block_pack *p,
                       struct scale_trial *t)
{
    float positive, negative;
    most_integers(type, &positive, &negative);
    const float least = type->minimum_at < 0 ? -negative : 0;
    for (size_t b = 0; b < p->blocks; b++) {
        t->scale[b] = f16_number((double)(t->scale[b] * scale));
        t->minimum[b] = f16_number((double)(t->minimum[b] * minimum));
        if (!isfinite(t->scale[b]) || !isfinite(t->minimum[b]))
            t->scale[b] = t->minimum[b] = 0;
    }
    for (size_t l = 0; l < ROW; l++) {
        const float code = rintf((float)t->scale_code[l] / scale),
                    of_minimum = rintf((float)t->minimum_code[l] / minimum);
        t->scale_code[l] = (int32_t)(code < least ? least : code > positive ? positive : code);
        t->minimum_code[l] = (int32_t)(of_minimum > positive ? positive : of_minimum);
    }
}

static void find_integers(const struct gguf_type *type, const unsigned char *blocks, struct block_pack *p)
{
    struct scale_trial t;
    double error[ROW];
    memset(&p->scales, 0, sizeof p->scales);
    for (size_t b = 0; b < ROW; b++)
        error[b] = HUGE_VAL;
    first_trial(type, blocks, p, &t);
    for (int move = 0; move <= MOVES; move++) {
        for (int round = 0; round < ROUNDS && try_scales(type, false, &t, p, error); round++)
            ;
        best_trial(p, &t);
        if (move < MOVES && (type->minimum_at >= 0 || moves[move][1] == 1))
            move_trial(type, moves[move][0], moves[move][1], p, &t);
    }
    try_scales(type, true, &t, p, error);
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

/* The codes of a block, and its errors: weighted, and with equal weights. */
struct numbers_of_block {
    unsigned char code[GGUF_MOST_ELEMENTS];
    double weighted, plain;
};

/* The number of a code, or of its neighbour: the difference of integers wraps like theirs. */
static inline float number_of_code(const struct gguf_type *type, int code)
{
    if (type->code == GGUF_CODE_CODEBOOK)
        return (float)qobs_iq4_numbers[code];
    if (type->code == GGUF_CODE_E2M1)
        return (float)(code & 8 ? -qobs_e2m1_doubled[code & 7] : qobs_e2m1_doubled[code & 7]);
    return type->code == GGUF_CODE_SIGN ? (float)(2 * code - 1) : (float)(code - type->low);
}

static inline float distance(const struct gguf_type *type, float x, int code, float scale, float minimum)
{
    return fabsf(x - (scale * number_of_code(type, code) - minimum));
}

/* Makes the code of an element the one whose number is the nearest: rounding may have made it the second. */
static inline int settled(const struct gguf_type *type, float x, int code, float scale, float minimum)
{
    const bool bytes = type->plane[0].bits == 8;
    int low, high;
    integers_of(type, &low, &high);
    const int least = bytes ? low : type->code == GGUF_CODE_CODEBOOK ? 0 : low + type->low;
    const int most = bytes ? high : type->code == GGUF_CODE_CODEBOOK ? 15 : high + type->low, from = code;
    for (int k = from - 1; k <= from + 1; k += 2)
        if (k >= least && k <= most && distance(type, x, k, scale, minimum) < distance(type, x, code, scale, minimum))
            code = k;
    return code;
}

static void nearest_run(const struct gguf_type *type, const struct runs *r, const float *x, float scale, float minimum,
                        unsigned char *to)
{
    const f32v s = inverse_of(f32v_splat(scale)), m = f32v_splat(minimum);
    if (type->code == GGUF_CODE_E2M1)
        e2m1_codes(type->run, x, largest_of_n(x, type->run), scale, to);
    else if (type->code == GGUF_CODE_SIGN)
        sign_codes(type, x, to);
    else if (type->code == GGUF_CODE_CODEBOOK)
        codebook_codes(&r->book, type->run, x, scale != 0 ? 1 / scale : 0, to);
    else
        for (int i = 0; i < type->run; i += STEP)
            STORE_CODES(to + i, x + i,
                        (s32v)integer_of(run_number(RUN_INTEGERS, r, (e + m) * s)) + (s32v)s32_splat(type->low));
}

/* The nearest codes for the scales of a block. */
static void describe_block(const struct gguf_type *type, const struct runs *r, const float *x, const float *h,
                           const unsigned char *block, struct numbers_of_block *b)
{
    float scale[GGUF_MOST_RUNS], minimum[GGUF_MOST_RUNS];
    const bool bytes = type->plane[0].bits == 8, settles = type->code != GGUF_CODE_E2M1 && type->code != GGUF_CODE_SIGN;
    const size_t n = type->run;
    gguf_run_scales(type, block, scale, minimum);
    b->weighted = b->plain = 0;
    for (size_t k = 0; k * n < type->elements; k++) {
        nearest_run(type, r, x + k * n, scale[k], minimum[k], b->code + k * n);
        for (size_t i = k * n; i < (k + 1) * n; i++) {
            int code = bytes ? (int8_t)b->code[i] : b->code[i];
            if (settles)
                code = settled(type, x[i], code, scale[k], minimum[k]);
            const double e = (double)distance(type, x[i], code, scale[k], minimum[k]);
            b->code[i] = (unsigned char)code;
            b->plain += e * e;
            b->weighted += h ? (double)h[i] * (e * e) : e * e;
        }
    }
}

/* Writes the scales of block b. */
static void store_best(const struct gguf_type *type, const struct block_pack *p, size_t b, unsigned char *block)
{
    memset(block, 0, type->bytes);
    if (type->scales_at >= 0 && type->scale_at >= 0) {
        store_scales(type, false, &p->scales, b, block);
        return;
    }
    for (size_t r = 0; r < p->runs_each; r++) {
        const size_t l = b * p->runs_each + r;
        const float scale = p->best.scale[l] / p->unit[l], minimum = p->best.minimum[l] / p->unit[l];
        if (type->scales == GGUF_SCALES_E8M0)
            block[r] = gguf_e8m0_of_half(scale);
        else if (type->scales == GGUF_SCALES_E4M3)
            block[r] = gguf_e4m3_of_half(scale);
        else
            gguf_store16(block + type->scale_at, f16_of_float(scale));
        if (type->minimum_at >= 0)
            gguf_store16(block + type->minimum_at, f16_of_float(-minimum));
    }
}

/* Replaces blocks by better ones. If importance decides nothing, all elements count alike. */
static void replace_blocks(const struct job *j, const struct chunk *c, size_t first, const struct block_pack *p,
                           unsigned char *blocks)
{
    const struct gguf_type *const type = j->type;
    for (size_t b = 0; b < p->blocks; b++) {
        unsigned char *const block = blocks + b * type->bytes, found[GGUF_MOST_BYTES];
        const float *const x = c->x + (first + b) * type->elements, *const h = importance_of(j, c, first + b);
        struct numbers_of_block before, after;
        store_best(type, p, b, found);
        describe_block(type, &p->runs, x, h, block, &before);
        describe_block(type, &p->runs, x, h, found, &after);
        if (after.weighted < before.weighted || (after.weighted == before.weighted && after.plain <= before.plain)) {
            store_codes(type, after.code, found);
            memcpy(block, found, type->bytes);
        }
    }
}

static void improve_chunk(const struct job *j, struct chunk *c, const struct codebook *book, unsigned char *out)
{
    const struct gguf_type *const type = j->type;
    struct block_pack p;
    if (type->elements == 1)
        return;
    p.runs.numbers = run_numbers_of(type);
    p.runs.n = type->run;
    p.runs.book = *book;
    integers_of(type, &p.runs.low, &p.runs.high);
    p.runs.most = type->code == GGUF_CODE_CODEBOOK ? 127
                  : type->code == GGUF_CODE_E2M1   ? 12
                  : type->code == GGUF_CODE_SIGN   ? 1
                                                   : (float)(-p.runs.low > p.runs.high ? -p.runs.low : p.runs.high);
    p.runs_each = (size_t)(type->elements / type->run);
    for (size_t l = 0; l < ROW; l++)
        p.unit[l] = 1;
    const size_t most = ROW / p.runs_each, all = c->elements / type->elements;
    for (size_t first = 0; first < all; first += most) {
        unsigned char *const blocks = out + first * type->bytes;
        p.blocks = all - first < most ? all - first : most;
        load_lanes(j, c, first, &p);
        begin(j, blocks, &p);
        if (type->scales_at >= 0 && type->scale_at >= 0)
            find_integers(type, blocks, &p);
        else if (type->minimum_at >= 0)
            find_pairs(&p);
        else
            find_scales(type, &p);
        replace_blocks(j, c, first, &p, blocks);
    }
}
