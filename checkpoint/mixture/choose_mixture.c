/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The costs of each scheme, and the mixture of schemes for a budget or a limit of the KL divergence. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mixture/knapsack.h"
#include "mixture/mixture.h"

/* ---- Modules ----------------------------------------------------------------------------------------------------- */

static const struct weight *weight_of(const struct mixture *p, const struct mixture_module *module, size_t scheme)
{
    return weights_find(&p->schemes[scheme].selection.weights, module->weight->name);
}

struct mixture_cost mixture_cost_of(const struct mixture *p, const struct mixture_module *module, size_t scheme)
{
    const struct mixture_scheme *s = &p->schemes[scheme];
    const size_t index = (size_t)(weight_of(p, module, scheme) - s->selection.weights.items);
    struct mixture_cost cost = {.bytes = (double)s->bytes[index], .error = s->sink.costs[index].error};
    for (int half = 0; half < HALVES; half++)
        cost.loss[half] = s->sink.costs[index].loss[half];
    return cost;
}

/* A scheme that leaves a weight as it is costs its bytes and no loss. */
int mixture_list_modules(struct mixture *p, struct fail *f)
{
    const struct weights *all = &p->schemes[0].selection.weights;
    p->modules = calloc(all->count + 1, sizeof *p->modules);
    if (!p->modules)
        return NO_MEMORY(f, "the modules");
    for (size_t i = 0; i < all->count; i++) {
        const struct mixture_module module = {.weight = &all->items[i]};
        bool taken = false;
        for (size_t k = 0; k < p->args->scheme_count; k++) {
            const struct weight *w = weight_of(p, &module, k);
            if (!w)
                return INVALID(f, "schemes: %s splits '%.200s' and %s does not; plan them apart",
                               p->schemes[0].choice.scheme, module.weight->name, p->schemes[k].choice.scheme);
            taken |= w->reason == WEIGHT_TAKEN;
        }
        if (!taken)
            continue;
        p->elements += (double)module.weight->shape[0] * (double)module.weight->shape[1];
        p->modules[p->module_count++] = module;
    }
    return p->module_count > 0
               ? QOBS_OK
               : INVALID(f, "targets: %s has no weight that is selected and can be quantized", p->args->model);
}

/* Counts the modules whose loss a scheme does not know. */
static void count_unknown(struct mixture *p)
{
    for (size_t i = 0; i < p->module_count; i++) {
        bool known = true;
        for (size_t k = 0; k < p->args->scheme_count; k++) {
            const struct weight *w = weight_of(p, &p->modules[i], k);
            known &=
                w->reason != WEIGHT_TAKEN || p->schemes[k].sink.costs[w - p->schemes[k].selection.weights.items].known;
        }
        if (!known && p->unknown++ == 0)
            p->first_unknown = p->modules[i].weight;
    }
}

/* Returns the length of the name of the layer of experts that a weight belongs to; 0: none. */
static size_t experts_of(const char *name)
{
    const char *found = strstr(name, ".experts.");
    return found ? (size_t)(found - name) : 0;
}

/* Numbers the items: modules that vLLM runs as one matrix have one, and so have the experts of a layer, whose names
 * follow each other. */
static int number_items(struct mixture *p, struct fail *f)
{
    size_t *const of_set =
        malloc((p->schemes[0].selection.weights.count + 1) * sizeof *of_set); /* by number of the set */
    const char *before = "";
    size_t length = 0, of_experts = SIZE_MAX;
    if (!of_set)
        return NO_MEMORY(f, "the modules");
    for (size_t i = 0; i < p->schemes[0].selection.weights.count; i++)
        of_set[i] = SIZE_MAX;
    for (size_t i = 0; i < p->module_count; i++) {
        const struct weight *w = p->modules[i].weight;
        if (experts_of(w->name) != length || strncmp(w->name, before, length) != 0)
            of_experts = SIZE_MAX;
        before = w->name;
        length = experts_of(w->name);
        size_t *const item = length > 0 ? &of_experts : &of_set[w->set];
        if (*item == SIZE_MAX)
            *item = p->item_count++;
        p->modules[i].item = *item;
    }
    free(of_set);
    return QOBS_OK;
}

static void add_cost(struct mixture_cost *sum, const struct mixture_cost *cost)
{
    sum->bytes += cost->bytes;
    sum->error += cost->error;
    for (int half = 0; half < HALVES; half++)
        sum->loss[half] += cost->loss[half];
}

int mixture_gather(struct mixture *p, struct fail *f)
{
    const size_t schemes = p->args->scheme_count;
    count_unknown(p);
    RETURN_IF_NOT_OK(number_items(p, f));
    p->costs = calloc(p->item_count * schemes, sizeof *p->costs);
    if (!p->costs)
        return NO_MEMORY(f, "the costs");
    for (size_t i = 0; i < p->module_count; i++)
        for (size_t k = 0; k < schemes; k++) {
            const struct mixture_cost cost = mixture_cost_of(p, &p->modules[i], k);
            add_cost(&p->costs[p->modules[i].item * schemes + k], &cost);
        }
    return QOBS_OK;
}

struct mixture_cost mixture_total(const struct mixture *p, size_t scheme)
{
    struct mixture_cost sum = {0};
    for (size_t i = 0; i < p->item_count; i++)
        add_cost(&sum, &p->costs[i * p->args->scheme_count + (scheme == SIZE_MAX ? p->choice[i] : scheme)]);
    return sum;
}

/* ---- Choice ------------------------------------------------------------------------------------------------------ */

/* Chooses by the first half, with at most `limit` bytes or, if by_loss, nats. *least: the smallest possible sum. */
static int choose(struct mixture *p, bool by_loss, double limit, double *least, struct fail *f)
{
    const size_t count = p->item_count * p->args->scheme_count;
    struct knapsack_choice *table = malloc((count + 1) * sizeof *table);
    if (!table)
        return NO_MEMORY(f, "the choice of schemes");
    for (size_t i = 0; i < count; i++) {
        const double bytes = p->costs[i].bytes, loss = p->costs[i].loss[0];
        table[i] = (struct knapsack_choice){by_loss ? loss : bytes, by_loss ? bytes : loss};
    }
    const struct knapsack k = {p->item_count, p->args->scheme_count, table, limit};
    const int status = knapsack_solve(&k, p->choice, least, &p->optimal, f);
    free(table);
    return status;
}

static int choose_by_bytes(struct mixture *p, struct fail *f)
{
    double least;
    RETURN_IF_NOT_OK(choose(p, false, p->args->budget * p->elements / 8, &least, f));
    if (least > p->args->budget * p->elements / 8)
        return INVALID(f, "budget: is %g bits an element; the schemes need at least %.4f", p->args->budget,
                       8 * least / p->elements);
    return QOBS_OK;
}

/* The other half tells a larger KL divergence than the half that chose. The limit holds for both. */
static int choose_by_loss(struct mixture *p, struct fail *f)
{
    enum { TRIALS = 50 };
    double limit = p->args->max_kl, least;
    for (int i = 0; i < TRIALS; i++) {
        RETURN_IF_NOT_OK(choose(p, true, limit, &least, f));
        if (least > limit)
            break;
        const double predicted = mixture_total(p, SIZE_MAX).loss[1];
        if (predicted <= p->args->max_kl)
            return QOBS_OK;
        limit *= fmin(p->args->max_kl / predicted, 0.999);
    }
    return INVALID(f, "max_kl: is %g nats a token; the schemes cost at least %.3g", p->args->max_kl, least);
}

int mixture_choose(struct mixture *p, struct fail *f)
{
    const qobs_checkpoint_plan_args *a = p->args;
    if (a->budget == 0 && a->max_kl == 0)
        return QOBS_OK;
    const char *name = a->budget > 0 ? "budget" : "max_kl";
    if (p->unknown > 0)
        return INVALID(f, "%s: the states have no sensitivity of %zu of %zu modules, such as '%.*s'; " SENSITIVITY_WAY,
                       name, p->unknown, p->module_count, (int)p->first_unknown->module, p->first_unknown->name);
    for (size_t i = 0; i < p->item_count * a->scheme_count; i++)
        if (!isfinite(p->costs[i].loss[0]) || !isfinite(p->costs[i].loss[1]))
            return INVALID(f, "%s: the costs under %s are not finite", name,
                           p->schemes[i % a->scheme_count].choice.scheme);
    p->choice = calloc(p->item_count + 1, sizeof *p->choice);
    if (!p->choice)
        return NO_MEMORY(f, "the choice of schemes");
    return a->budget > 0 ? choose_by_bytes(p, f) : choose_by_loss(p, f);
}
