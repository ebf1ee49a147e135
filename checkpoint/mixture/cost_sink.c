/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* To second order the KL divergence of the quantized model, for each token, is
 *
 *   1/2 * sum over layers and their rows i of F_i d_i H d_i^T,  d = weight - quantized weight,  H = E[x x^T]
 *
 * if rows and layers err independently (the Fisher information as the Hessian of the log likelihood: Amari, "Natural
 * gradient works efficiently in learning", 1998; by rows and inputs: Martens, Grosse, K-FAC, 2015).
 *
 * F_i: the mean over sequences of g_i^2 / sum of x^2. g is the gradient of the log likelihood of labels that the model
 * has drawn itself with respect to the row, x are the inputs of the sequence. Gradients of outputs in place of it are
 * twice too large where a token has large inputs and no influence, such as the first one of many language models.
 *
 * H has three estimates:
 * - its diagonal, for codes that are rounded to nearest: their errors have no correlation;
 * - the second half of recorded tokens, for searches under a Hessian, whose errors cancel each other. Those fit the
 *   tokens that they see, so that they see the first half alone;
 * - that of the search itself, if saved Hessians have no halves. It is too small, and counts with the mean of F. */
#include "mixture/cost_sink.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files/mapped.h"
#include "files/status.h"
#include "files/text.h"
#include "model/stored_qparams.h"

/* ---- What weighs errors ------------------------------------------------------------------------------------------ */

/* Finds the importance of a weight, else that of one with the same input. */
static bool find_importance(const struct weighing *from, const struct weight *w, struct importance_found *found)
{
    if (importance_find(from->importance, from->states, w->name, w->module, false, found))
        return true;
    for (size_t i = weights_find(from->weights, w->name)->set; i != SIZE_MAX; i = from->next_of_set[i]) {
        const struct weight *other = &from->weights->items[i];
        if (other->shape[1] == w->shape[1] &&
            importance_find(from->importance, from->states, other->name, other->module, false, found))
            return true;
    }
    return false;
}

/* Reads F of a half. *row stays NULL if there is none. */
static int read_half(const struct weighing *from, const struct weight *w, int half, float **row, struct fail *f)
{
    static const char *const suffixes[HALVES] = {SENSITIVITY_A, SENSITIVITY_B};
    size_t count;
    const struct saved_state *first = saved_states_find(from->states, w->name, w->module, suffixes[half], &count);
    if (!first)
        return QOBS_OK;
    *row = malloc(((size_t)w->shape[0] + 1) * sizeof **row);
    return *row ? means_of_states(first, count, "rows", w->shape[0], *row, f) : NO_MEMORY(f, "sensitivity");
}

/* States and imatrix files may hold anything. */
static int check_means(const struct weight *w, const char *what, const float *mean, int64_t n, struct fail *f)
{
    for (int64_t i = 0; i < n; i++)
        if (!(mean[i] >= 0 && isfinite(mean[i])))
            return INVALID(f, "tensor '%.200s': %s: [%lld] is %g, allowed are finite numbers from 0", w->name, what,
                           (long long)i, (double)mean[i]);
    return QOBS_OK;
}

static int read_weights(const struct weighing *from, const struct weight *w, struct error_weights *e, struct fail *f)
{
    struct importance_found found;
    const size_t columns = (size_t)w->shape[1];
    e->columns = malloc((columns + 1) * sizeof *e->columns);
    if (!e->columns)
        return NO_MEMORY(f, "importance");
    for (size_t j = 0; j < columns; j++)
        e->columns[j] = 1;
    const bool weighted = find_importance(from, w, &found);
    if (weighted)
        RETURN_IF_NOT_OK(importance_read(from->importance, &found, w->shape[1], e->columns, f));
    RETURN_IF_NOT_OK(check_means(w, "importance", e->columns, w->shape[1], f));
    for (int half = 0; half < HALVES; half++) {
        RETURN_IF_NOT_OK(read_half(from, w, half, &e->rows[half], f));
        RETURN_IF_NOT_OK(check_means(w, "sensitivity", e->rows[half], e->rows[half] ? w->shape[0] : 0, f));
    }
    e->known = weighted && e->rows[0] && e->rows[1];
    return QOBS_OK;
}

static void free_weights(struct error_weights *e)
{
    free(e->columns);
    for (int half = 0; half < HALVES; half++)
        free(e->rows[half]);
    *e = (struct error_weights){0};
}

int weighing_open(struct weighing *w, struct fail *f)
{
    const size_t count = w->weights->count;
    w->items = calloc(count + 1, sizeof *w->items);
    w->next_of_set = malloc((count + 1) * sizeof *w->next_of_set);
    OWNED size_t *last = malloc((count + 1) * sizeof *last); /* of a set, by its first weight */
    if (!w->items || !w->next_of_set || !last)
        return NO_MEMORY(f, "the costs");
    for (size_t i = 0; i < count; i++) {
        const size_t first = w->weights->items[i].set;
        if (first < i)
            w->next_of_set[last[first]] = i;
        last[first] = i;
        w->next_of_set[i] = SIZE_MAX;
    }
    return QOBS_OK;
}

void weighing_close(struct weighing *w)
{
    for (size_t i = 0; w->items && i < w->weights->count; i++)
        free_weights(&w->items[i]);
    free(w->items);
    free(w->next_of_set);
}

/* All schemes have the weights of the first one. */
static struct error_weights *weights_of(const struct cost_sink *s, const struct weight_job *job)
{
    const struct weights *all = s->weighing->weights;
    const struct weight *w = weights_find(all, job->weight->name);
    return &s->weighing->items[w - all->items];
}

/* ---- What is wanted ---------------------------------------------------------------------------------------------- */

/* Counts the tokens that measure, if others are left for the search. */
static int count_tokens(const struct recordings *recordings, const struct weight_job *job, int64_t *tokens,
                        struct fail *f)
{
    int64_t sum[SECOND_HALF + 1] = {0};
    for (size_t i = 0; i < recordings->count; i++)
        for (int half = FIRST_HALF; half <= SECOND_HALF; half++) {
            struct importance_batch batch;
            RETURN_IF_NOT_OK(
                importance_batch_of(recordings, i, job->importance.recorded, (enum importance_half)half, &batch, f));
            sum[half] += batch.tokens;
        }
    *tokens = sum[FIRST_HALF] > 0 ? sum[SECOND_HALF] : 0;
    return QOBS_OK;
}

static int wants(struct sink *sink, const struct weight_job *job, unsigned *wanted, struct fail *f)
{
    struct cost_sink *s = (struct cost_sink *)sink;
    struct weight_cost *c = &s->costs[job->index];
    if (!job->group)
        return QOBS_OK;
    const bool hessian = job->group->needs.searches_scale && job->group->needs.hessian && job->weighted;
    if (hessian && job->importance.recorded)
        RETURN_IF_NOT_OK(count_tokens(&s->weighing->importance->recordings, job, &c->tokens, f));
    *wanted = !hessian ? WANTS_NUMBERS : c->tokens > 0 ? WANTS_NUMBERS | WANTS_FIRST_HALF : WANTS_RESULT;
    weights_of(s, job)->sinks++;
    return QOBS_OK;
}

/* The recordings that a weight is measured with are read by each slice. */
static int borrow_recordings(const struct cost_sink *s, const struct weight_job *job, struct fail *f)
{
    const struct recordings *r = &s->weighing->importance->recordings;
    for (size_t i = 0; s->costs[job->index].tokens > 0 && i < r->count; i++) {
        const struct tensor_ref *ref = recordings_batch(r, i, job->importance.recorded);
        if (ref)
            RETURN_IF_NOT_OK(mapped_borrow(ref->data, (size_t)ref->bytes, f));
    }
    return QOBS_OK;
}

static void release_recordings(const struct cost_sink *s, const struct weight_job *job)
{
    const struct recordings *r = &s->weighing->importance->recordings;
    for (size_t i = 0; s->costs[job->index].tokens > 0 && i < r->count; i++) {
        const struct tensor_ref *ref = recordings_batch(r, i, job->importance.recorded);
        if (ref)
            mapped_release(ref->data, (size_t)ref->bytes);
    }
}

static int begin(struct sink *sink, const struct weight_job *job, struct fail *f)
{
    struct cost_sink *s = (struct cost_sink *)sink;
    struct error_weights *e = weights_of(s, job);
    if (!e->columns)
        RETURN_IF_NOT_OK(read_weights(s->weighing, job->weight, e, f));
    s->costs[job->index].known = e->known;
    return borrow_recordings(s, job, f);
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/* Sums are in float over a chunk, by lanes, then in double. BLOCK: rows that share a token in the cache. */
enum { LANES = 16, CHUNK = 1024, BLOCK = 64, VECTOR = 4 };
typedef float vector __attribute__((vector_size(VECTOR * sizeof(float))));

static vector load(const float *from)
{
    vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* The sum of the products of three rows of a chunk, the last two the differences of x and y. */
static double weighted_squares(const float *weights, const float *x, const float *y, size_t n)
{
    union {
        vector vectors[LANES / VECTOR];
        float lanes[LANES];
    } sums = {.lanes = {0}};
    double sum = 0;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (size_t i = 0; i < LANES / VECTOR; i++) {
            const size_t at = j + i * VECTOR;
            const vector d = load(x + at) - load(y + at);
            sums.vectors[i] += load(weights + at) * d * d;
        }
    for (; j < n; j++)
        sums.lanes[0] += weights[j] * (x[j] - y[j]) * (x[j] - y[j]);
    for (int i = 0; i < LANES; i++)
        sum += (double)sums.lanes[i];
    return sum;
}

/* The sum of the products of two rows. */
static double product(const float *d, const float *x, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k += CHUNK) {
        const size_t end = n - k < CHUNK ? n : k + CHUNK;
        float lane[LANES] = {0};
        size_t j = k;
        for (; j + LANES <= end; j += LANES)
            for (int i = 0; i < LANES; i++)
                lane[i] += d[j + (size_t)i] * x[j + (size_t)i];
        for (; j < end; j++)
            lane[0] += d[j] * x[j];
        for (int i = 0; i < LANES; i++)
            sum += (double)lane[i];
    }
    return sum;
}

static void read_token(const struct importance_batch *b, int64_t token, float *out)
{
    const qobs_tensor *t = &b->tensor;
    const unsigned char *at = t->data;
    const int64_t columns = b->shape[t->ndim - 1], step = t->strides[t->ndim - 1];
    for (int k = t->ndim - 2; k >= 0; k--) {
        at += token % b->shape[k] * t->strides[k];
        token /= b->shape[k];
    }
    if (step == (int64_t)qobs_dtype_size(t->dtype)) {
        floats_of(at, t->dtype, 0, (size_t)columns, out);
        return;
    }
    for (int64_t j = 0; j < columns; j++) /* .npy in Fortran order */
        out[j] = (float)number_at(at + j * step, t->dtype);
}

/* Adds to `error`, which is 0, the means of the squared products of d and the tokens that measure. rows: to BLOCK. */
static int errors_of_tokens(const struct cost_sink *s, const struct weight_job *job, const float *d, int64_t rows,
                            float *token, double *error, struct fail *f)
{
    const struct recordings *recordings = &s->weighing->importance->recordings;
    const size_t columns = (size_t)job->weight->shape[1];
    for (size_t k = 0; k < recordings->count; k++) {
        struct importance_batch batch;
        RETURN_IF_NOT_OK(importance_batch_of(recordings, k, job->importance.recorded, SECOND_HALF, &batch, f));
        for (int64_t t = 0; t < batch.tokens; t++) {
            read_token(&batch, t, token);
            for (int64_t i = 0; i < rows; i++) {
                const double p = product(d + (size_t)i * columns, token, columns);
                error[i] += p * p;
            }
        }
    }
    for (int64_t i = 0; i < rows; i++)
        error[i] /= (double)s->costs[job->index].tokens;
    return QOBS_OK;
}

/* Rows of a slice before and after quantization. */
struct row_pair {
    const unsigned char *x, *y;
    qobs_dtype dtype;
    size_t columns;
};

static struct row_pair pair_of(const struct rows *r, const void *numbers, int64_t row)
{
    const size_t columns = (size_t)r->shape[1], bytes = columns * qobs_dtype_size(r->tensor.dtype);
    return (struct row_pair){(const unsigned char *)r->tensor.data + row * r->strides[0],
                             (const unsigned char *)numbers + (size_t)row * bytes, r->tensor.dtype, columns};
}

/* The error of a row by the diagonal of H. */
static double diagonal_error(const struct row_pair *p, const float *weights)
{
    float x[CHUNK], y[CHUNK];
    double sum = 0;
    for (size_t k = 0; k < p->columns; k += CHUNK) {
        const size_t n = p->columns - k < CHUNK ? p->columns - k : CHUNK;
        floats_of(p->x, p->dtype, k, n, x);
        floats_of(p->y, p->dtype, k, n, y);
        sum += weighted_squares(weights + k, x, y, n);
    }
    return sum;
}

/* Finds the errors of up to BLOCK rows by the tokens that measure. */
static int measure_block(const struct cost_sink *s, const struct row_slice *slice, const struct rows *r,
                         const void *numbers, int64_t first, int64_t rows, struct workspace *work, double *error,
                         struct fail *f)
{
    const size_t columns = (size_t)r->shape[1];
    float *token = workspace_reserve(work, WORK_SINK, (1 + BLOCK) * columns * sizeof *token);
    if (!token)
        return NO_MEMORY(f, "errors");
    float *const d = token + columns;
    for (int64_t i = 0; i < rows; i++) {
        const struct row_pair p = pair_of(r, numbers, first + i);
        float *const e = d + (size_t)i * columns;
        floats_of(p.x, p.dtype, 0, columns, e);
        floats_of(p.y, p.dtype, 0, columns, token);
        for (size_t j = 0; j < columns; j++)
            e[j] -= token[j];
        error[i] = 0;
    }
    return errors_of_tokens(s, slice->job, d, rows, token, error, f);
}

/* sums: the error, then the losses. */
static int numbers(struct sink *sink, struct row_slice *slice, const struct rows *r, const void *dequantized,
                   struct workspace *work, struct fail *f)
{
    const struct cost_sink *s = (struct cost_sink *)sink;
    const struct error_weights *e = weights_of(s, slice->job);
    for (int64_t first = 0; first < slice->count; first += BLOCK) {
        const int64_t rows = slice->count - first < BLOCK ? slice->count - first : BLOCK;
        double error[BLOCK];
        if (s->costs[slice->job->index].tokens > 0)
            RETURN_IF_NOT_OK(measure_block(s, slice, r, dequantized, first, rows, work, error, f));
        for (int64_t i = 0; i < rows; i++) {
            if (s->costs[slice->job->index].tokens == 0) {
                const struct row_pair p = pair_of(r, dequantized, first + i);
                error[i] = diagonal_error(&p, e->columns);
            }
            slice->sums[0] += error[i];
            for (int half = 0; half < HALVES && e->known; half++)
                slice->sums[1 + half] += error[i] * (double)e->rows[half][slice->first + first + i];
        }
    }
    return QOBS_OK;
}

/* The mean of F over the rows. */
static double mean_of(const float *row, int64_t rows)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += (double)row[i];
    return rows > 0 ? sum / (double)rows : 0;
}

static int done(struct sink *sink, struct weight_job *job, struct fail *f)
{
    struct cost_sink *s = (struct cost_sink *)sink;
    struct weight_cost *c = &s->costs[job->index];
    struct error_weights *e = weights_of(s, job);
    const struct job_result *r = &job->result;
    const bool measured = job->wants & WANTS_NUMBERS;
    (void)f;
    c->error = measured ? r->sums[0] : r->rounded ? r->rounding_error : r->search_error;
    for (int half = 0; half < HALVES; half++) {
        c->loss[half] = measured ? r->sums[1 + half] : 0;
        if (c->known && !measured)
            c->loss[half] = c->error * mean_of(e->rows[half], job->weight->shape[0]);
        c->loss[half] /= 2;
    }
    release_recordings(s, job);
    if (--e->sinks == 0)
        free_weights(e);
    return QOBS_OK;
}

int cost_sink_open(struct cost_sink *s, struct weighing *weighing, size_t count, struct fail *f)
{
    static const struct sink_functions functions = {.wants = wants, .begin = begin, .done = done, .numbers = numbers};
    *s = (struct cost_sink){
        .sink.functions = &functions, .weighing = weighing, .costs = calloc(count + 1, sizeof *s->costs)};
    return s->costs ? QOBS_OK : NO_MEMORY(f, "the costs");
}

void cost_sink_close(struct cost_sink *s) { free(s->costs); }
