/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Dynamic programming over the items. A partial choice is what the items so far weigh and cost. It is dropped if
 * another one weighs and costs no more, or if its bound is no better than the best solution found. The bound is the
 * linear relaxation of the items that follow: their lower convex hulls of cost over weight, cut at the limit. Without
 * its last, divided step it is a solution, too. A solver library (glpk: GPL; CBC: C++ of several MB) would be a
 * dependency of each user of libqobs-checkpoint in place of these lines. Source of bound and dominance: Kellerer,
 * Pferschy, Pisinger, "Knapsack Problems" (2004), chapter 11. */
#include "mixture/knapsack.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_STATES = 1 << 21 };

/* A step from one choice of an item to the next one on its hull. */
struct step {
    double weight, gain; /* cost that it saves */
    double slope;        /* gain / weight, but no more than that of the item's step before */
    size_t item, choice, number;
};

/* The weight and the cost of the items until now. */
struct partial {
    double weight, cost;
    uint32_t parent; /* index among the states of the item before */
    uint32_t choice;
};

struct solution {
    double cost;  /* infinity: none yet */
    size_t items; /* that its state has chosen; steps choose for the others */
    size_t state, steps;
};

struct search {
    const struct knapsack *k;
    size_t *base;       /* choice of each item that begins its hull: the lightest, of those the cheapest */
    struct step *steps; /* of all items, best first */
    size_t step_count;
    double *weight, *gain; /* sums of the first i steps of the items that follow */
    size_t *order;         /* indices of these steps */
    size_t after;
    double base_weight, base_cost; /* of the items that follow */
    struct partial *states;        /* of all items, one after the other */
    size_t *first;                 /* of the states of item i; [0]: the state without items */
    size_t count, capacity;
    struct solution best;
    bool complete;
};

static const struct knapsack_choice *choice_of(const struct knapsack *k, size_t item, size_t choice)
{
    return &k->table[item * k->choices + choice];
}

/* ---- Hulls ------------------------------------------------------------------------------------------------------- */

static size_t lightest(const struct knapsack *k, size_t item)
{
    size_t best = 0;
    for (size_t c = 1; c < k->choices; c++) {
        const struct knapsack_choice *a = choice_of(k, item, c), *b = choice_of(k, item, best);
        if (a->weight < b->weight || (a->weight == b->weight && a->cost < b->cost))
            best = c;
    }
    return best;
}

/* Adds the steps of an item's hull: from each choice the one with the steepest fall of cost. */
static void add_hull(struct search *s, size_t item)
{
    size_t at = s->base[item];
    double flattest = INFINITY;
    for (size_t number = 0;; number++) {
        const struct knapsack_choice *here = choice_of(s->k, item, at);
        size_t next = at;
        double slope = 0, reach = 0;
        for (size_t c = 0; c < s->k->choices; c++) {
            const struct knapsack_choice *there = choice_of(s->k, item, c);
            const double weight = there->weight - here->weight, gain = here->cost - there->cost;
            if (weight <= 0 || gain <= 0 || gain < slope * weight || (gain == slope * weight && weight <= reach))
                continue;
            slope = gain / weight;
            reach = weight;
            next = c;
        }
        if (next == at)
            return;
        flattest = fmin(slope, flattest);
        s->steps[s->step_count++] =
            (struct step){reach, here->cost - choice_of(s->k, item, next)->cost, flattest, item, next, number};
        at = next;
    }
}

/* Best first; steps of one item keep their order. */
static int compare_steps(const void *a, const void *b)
{
    const struct step *s = a, *t = b;
    if (s->slope != t->slope)
        return s->slope < t->slope ? 1 : -1;
    if (s->item != t->item)
        return s->item < t->item ? -1 : 1;
    return (s->number > t->number) - (s->number < t->number);
}

/* Sums the steps of the items from `item` on. */
static void sum_steps(struct search *s, size_t item)
{
    s->after = 0;
    s->weight[0] = s->gain[0] = s->base_weight = s->base_cost = 0;
    for (size_t i = 0; i < s->step_count; i++) {
        const struct step *step = &s->steps[i];
        if (step->item < item)
            continue;
        s->order[s->after++] = i;
        s->weight[s->after] = s->weight[s->after - 1] + step->weight;
        s->gain[s->after] = s->gain[s->after - 1] + step->gain;
    }
    for (size_t i = item; i < s->k->items; i++) {
        s->base_weight += choice_of(s->k, i, s->base[i])->weight;
        s->base_cost += choice_of(s->k, i, s->base[i])->cost;
    }
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

/* Returns the bound of a state of `items` items, and takes the solution that belongs to it if it is the best one. */
static double bound(struct search *s, const struct partial *state, size_t items, size_t index)
{
    const double room = s->k->limit - state->weight - s->base_weight;
    size_t low = 0, high = s->after;
    while (low < high) {
        const size_t middle = (low + high + 1) / 2;
        if (s->weight[middle] <= room)
            low = middle;
        else
            high = middle - 1;
    }
    const double cost = state->cost + s->base_cost - s->gain[low];
    if (cost < s->best.cost) {
        s->best.cost = cost;
        s->best.items = items;
        s->best.state = index;
        s->best.steps = low;
    }
    if (low == s->after)
        return cost;
    const struct step *next = &s->steps[s->order[low]];
    return cost - next->gain * (room - s->weight[low]) / next->weight;
}

static int compare_states(const void *a, const void *b)
{
    const struct partial *s = a, *t = b;
    if (s->weight != t->weight)
        return s->weight < t->weight ? -1 : 1;
    return (s->cost > t->cost) - (s->cost < t->cost);
}

static bool reserve(struct search *s, size_t more)
{
    if (s->count + more <= s->capacity)
        return true;
    const size_t capacity = 2 * (s->count + more);
    struct partial *grown = realloc(s->states, capacity * sizeof *grown);
    if (!grown)
        return false;
    s->states = grown;
    s->capacity = capacity;
    return true;
}

/* Drops states that another one is no worse than, and those that cannot lead to a better solution. */
static void prune(struct search *s, size_t items)
{
    const size_t begin = s->first[items];
    double cheapest = INFINITY;
    size_t kept = begin;
    qsort(s->states + begin, s->count - begin, sizeof *s->states, compare_states);
    for (size_t i = begin; i < s->count; i++) {
        const struct partial state = s->states[i];
        if (state.cost >= cheapest)
            continue;
        cheapest = state.cost;
        s->states[kept] = state;
        /* The best solution is remembered by its state, which therefore stays. */
        const double before = s->best.cost, least = bound(s, &state, items, kept);
        kept += least < s->best.cost || s->best.cost < before;
    }
    s->count = kept;
}

/* Adds the choices of an item to every state. Returns false if there is no memory. */
static bool add_item(struct search *s, size_t item)
{
    const size_t begin = s->first[item], end = s->count;
    sum_steps(s, item + 1);
    if (!reserve(s, (end - begin) * s->k->choices))
        return false;
    for (size_t i = begin; i < end; i++)
        for (size_t c = 0; c < s->k->choices; c++) {
            const struct knapsack_choice *choice = choice_of(s->k, item, c);
            const double weight = s->states[i].weight + choice->weight;
            if (weight + s->base_weight > s->k->limit)
                continue;
            s->states[s->count++] =
                (struct partial){weight, s->states[i].cost + choice->cost, (uint32_t)(i - begin), (uint32_t)c};
        }
    s->first[item + 1] = end;
    prune(s, item + 1);
    s->complete = s->count < MAX_STATES;
    return true;
}

/* ---- Search ------------------------------------------------------------------------------------------------------ */

/* Follows the best solution back to its choices. */
static void write_choice(struct search *s, size_t *choice)
{
    sum_steps(s, s->best.items);
    for (size_t i = s->best.items; i < s->k->items; i++)
        choice[i] = s->base[i];
    for (size_t i = 0; i < s->best.steps; i++) {
        const struct step *step = &s->steps[s->order[i]];
        choice[step->item] = step->choice;
    }
    const struct partial *state = &s->states[s->best.state];
    for (size_t i = s->best.items; i > 0; i--) {
        choice[i - 1] = state->choice;
        state = &s->states[s->first[i - 1] + state->parent];
    }
}

static bool allocate(struct search *s)
{
    const size_t n = s->k->items, steps = n * s->k->choices;
    s->base = malloc((n + 1) * sizeof *s->base);
    s->steps = malloc((steps + 1) * sizeof *s->steps);
    s->weight = malloc((steps + 1) * sizeof *s->weight);
    s->gain = malloc((steps + 1) * sizeof *s->gain);
    s->order = malloc((steps + 1) * sizeof *s->order);
    s->first = calloc(n + 2, sizeof *s->first);
    return s->base && s->steps && s->weight && s->gain && s->order && s->first && reserve(s, 1);
}

static bool search(struct search *s, double *least)
{
    for (size_t i = 0; i < s->k->items; i++) {
        s->base[i] = lightest(s->k, i);
        add_hull(s, i);
    }
    qsort(s->steps, s->step_count, sizeof *s->steps, compare_steps);
    sum_steps(s, 0);
    *least = s->base_weight;
    if (*least > s->k->limit)
        return true;
    s->states[s->count++] = (struct partial){0};
    bound(s, &s->states[0], 0, 0);
    for (size_t i = 0; i < s->k->items && s->complete; i++)
        if (!add_item(s, i))
            return false;
    return true;
}

int knapsack_solve(const struct knapsack *k, size_t *choice, double *least, bool *optimal, struct fail *f)
{
    struct search s = {.k = k, .best.cost = INFINITY, .complete = true};
    const bool done = allocate(&s) && search(&s, least);
    if (done && *least <= k->limit)
        write_choice(&s, choice);
    *optimal = s.complete;
    free(s.base);
    free(s.steps);
    free(s.weight);
    free(s.gain);
    free(s.order);
    free(s.first);
    free(s.states);
    return done ? QOBS_OK : NO_MEMORY(f, "the choice of schemes");
}
