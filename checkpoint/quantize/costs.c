/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What the errors of a quantized weight cost the model. F is the mean over sequences of g^2 / sum of x^2, with g the
 * gradient of the log likelihood of labels that the model itself has drawn with respect to a row of the weight, and x
 * the inputs of the sequence: the Fisher information of the row for a unit of its inputs. With H = E[x x^T] the KL
 * divergence for each token is to second order half of the sum of F d H d^T over rows, d = weight - quantized weight,
 * if rows and layers err independently. Codes that are rounded to nearest have errors without correlation, so that the
 * diagonal of H is enough. Searches under a Hessian make errors that cancel each other, and fit the tokens that they
 * see: half of a recording is theirs, the other half measures d H d^T. Saved Hessians have no halves. There the search
 * measures it itself, which is too little, and it counts with the mean of F. Gradients of outputs in place of F are
 * twice too large where a token has large inputs and no influence, such as the first one of many language models. */
#include <math.h>
#include <stdlib.h>

#include "model/stored_qparams.h"
#include "quantize/run.h"

static bool has_hessian(const struct weight_job *job)
{
    return job->plan && job->plan->needs.searches_scale && job->plan->needs.hessian && job->weighted;
}

bool is_cost_of_search(const struct quantize_run *run, const struct weight_job *job)
{
    return has_hessian(job) && run->costs[job->index].tokens == 0;
}

/* ---- What weighs errors ------------------------------------------------------------------------------------------ */

/* Finds the importance of a weight, else that of one with the same input. */
static bool find_importance(const struct quantize_run *run, const struct weight *w, struct importance_found *found)
{
    const struct saved_states *states = &run->activations.sources.states;
    if (importance_find(&run->importance, states, w->name, w->module, false, found))
        return true;
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *other = &run->weights.items[i];
        if (other->set == w->set && other->shape[1] == w->shape[1] &&
            importance_find(&run->importance, states, other->name, other->module, false, found))
            return true;
    }
    return false;
}

/* Reads F of a half. *row stays NULL if there is none. */
static int read_half(const struct quantize_run *run, const struct weight *w, int half, float **row, struct fail *f)
{
    static const char *const suffixes[HALVES] = {SENSITIVITY_A, SENSITIVITY_B};
    size_t count;
    const struct saved_state *first =
        saved_states_find(&run->activations.sources.states, w->name, w->module, suffixes[half], &count);
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

/* Counts the tokens that measure, if others are left for the search. */
static int count_tokens(const struct quantize_run *run, const struct weight_job *job, int64_t *tokens, struct fail *f)
{
    int64_t sum[SECOND_HALF + 1] = {0};
    for (size_t i = 0; i < run->importance.recordings.count; i++)
        for (int half = FIRST_HALF; half <= SECOND_HALF; half++) {
            struct importance_batch batch;
            RETURN_IF_NOT_OK(importance_batch_of(&run->importance.recordings, i, job->importance.recorded,
                                                 (enum importance_half)half, &batch, f));
            sum[half] += batch.tokens;
        }
    *tokens = sum[FIRST_HALF] > 0 ? sum[SECOND_HALF] : 0;
    return QOBS_OK;
}

int costs_open(struct quantize_run *run, const struct weight_job *job, struct fail *f)
{
    struct weight_costs *c = &run->costs[job->index];
    const struct weight *w = job->weight;
    struct importance_found found;
    if (!job->plan)
        return QOBS_OK;
    const size_t columns = (size_t)w->shape[1];
    c->importance = malloc((columns + 1) * sizeof *c->importance);
    if (!c->importance)
        return NO_MEMORY(f, "importance");
    for (size_t j = 0; j < columns; j++)
        c->importance[j] = 1;
    const bool weighted = find_importance(run, w, &found);
    if (weighted)
        RETURN_IF_NOT_OK(importance_read(&run->importance, &found, w->shape[1], c->importance, f));
    RETURN_IF_NOT_OK(check_means(w, "importance", c->importance, w->shape[1], f));
    for (int half = 0; half < HALVES; half++) {
        RETURN_IF_NOT_OK(read_half(run, w, half, &c->row[half], f));
        RETURN_IF_NOT_OK(check_means(w, "sensitivity", c->row[half], c->row[half] ? w->shape[0] : 0, f));
    }
    c->known = weighted && c->row[0] && c->row[1];
    return has_hessian(job) && job->importance.recorded ? count_tokens(run, job, &c->tokens, f) : QOBS_OK;
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

enum { LANES = 16, CHUNK = 1024, BLOCK = 64 }; /* BLOCK: rows that share a token in the cache */

/* The sum of the products of two rows, in float over a chunk, then in double. */
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
static int errors_of_tokens(const struct quantize_run *run, const struct weight_job *job, const float *d, int64_t rows,
                            float *token, double *error, struct fail *f)
{
    const size_t columns = (size_t)job->weight->shape[1];
    for (size_t k = 0; k < run->importance.recordings.count; k++) {
        struct importance_batch batch;
        RETURN_IF_NOT_OK(
            importance_batch_of(&run->importance.recordings, k, job->importance.recorded, SECOND_HALF, &batch, f));
        for (int64_t t = 0; t < batch.tokens; t++) {
            read_token(&batch, t, token);
            for (int64_t i = 0; i < rows; i++) {
                const double p = product(d + (size_t)i * columns, token, columns);
                error[i] += p * p;
            }
        }
    }
    for (int64_t i = 0; i < rows; i++)
        error[i] /= (double)run->costs[job->index].tokens;
    return QOBS_OK;
}

int costs_add(const struct quantize_run *run, struct row_slice *s, const struct rows *r, const void *numbers,
              struct workspace *work, struct fail *f)
{
    const struct weight_costs *c = &run->costs[s->job->index];
    const size_t columns = (size_t)r->shape[1], row_bytes = columns * qobs_dtype_size(r->tensor.dtype);
    float *x = workspace_reserve(work, WORK_PACKED, (2 + BLOCK) * columns * sizeof *x);
    if (!x)
        return NO_MEMORY(f, "errors");
    float *const y = x + columns, *const d = y + columns;
    for (int64_t first = 0; first < s->count; first += BLOCK) {
        const int64_t rows = s->count - first < BLOCK ? s->count - first : BLOCK;
        double error[BLOCK];
        for (int64_t i = 0; i < rows; i++) {
            const int64_t row = first + i;
            floats_of((const unsigned char *)r->tensor.data + row * r->strides[0], r->tensor.dtype, 0, columns, x);
            floats_of((const unsigned char *)numbers + (size_t)row * row_bytes, r->tensor.dtype, 0, columns, y);
            float *const e = d + (size_t)i * columns;
            for (size_t j = 0; j < columns; j++)
                e[j] = x[j] - y[j];
            for (size_t j = 0; c->tokens == 0 && j < columns; j++)
                y[j] = c->importance[j] * e[j];
            error[i] = c->tokens > 0 ? 0 : product(y, e, columns);
        }
        if (c->tokens > 0)
            RETURN_IF_NOT_OK(errors_of_tokens(run, s->job, d, rows, x, error, f));
        for (int64_t i = 0; i < rows; i++) {
            s->error += error[i];
            for (int half = 0; half < HALVES && c->known; half++)
                s->loss[half] += error[i] * (double)c->row[half][s->first + first + i];
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

void costs_close(struct quantize_run *run, const struct weight_job *job)
{
    struct weight_costs *c = &run->costs[job->index];
    const bool whole = is_cost_of_search(run, job);
    c->error = !whole ? job->error : job->descended ? job->rounding_error : job->search_error;
    for (int half = 0; half < HALVES; half++) {
        if (c->known && whole)
            c->loss[half] = c->error * mean_of(c->row[half], job->weight->shape[0]);
        c->loss[half] /= 2;
        free(c->row[half]);
        c->row[half] = NULL;
    }
    free(c->importance);
    c->importance = NULL;
}
