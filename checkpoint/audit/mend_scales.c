/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Mends scales: one global scale for a set of modules; scales of inputs that other modules have. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "activations/needs.h"
#include "audit/mend.h"
#include "files/text.h"
#include "qobs/format.h"

/* Returns a scale of one element; 0: it is none. */
static double number_in(const struct mended_tensor *t)
{
    if (!t || !dtype_is_in(t->is.dtype, HALVES_AND_FLOATS) || audit_element_count(&t->is) != 1)
        return 0;
    const double number = (double)audit_scale_number(&t->is, 0);
    return number > 0 && isfinite(number) ? number : 0;
}

/* Finds the modules whose names begin as that of `module`, with `length` bytes: they lie side by side. */
static void find_neighbours(const struct audit *audit, size_t module, size_t length, size_t *begin, size_t *end)
{
    const char *name = audit->modules[module].name;
    for (*begin = module; *begin > 0 && strncmp(audit->modules[*begin - 1].name, name, length) == 0; --*begin)
        ;
    for (*end = module + 1; *end < audit->module_count && strncmp(audit->modules[*end].name, name, length) == 0; ++*end)
        ;
}

static size_t parent_length(const struct audit_module *m) { return component_start(m->name, m->length); }

/* ---- Global scales of sets --------------------------------------------------------------------------------------- */

/* Returns what a global scale multiplies by; 0: it is none. */
static double factor_of(struct mends *mends, const struct audit *audit, const struct audit_module *m)
{
    const double number = number_in(mends_part(mends, audit, m->name, "weight_global_scale"));
    return number == 0 ? 0 : audit->maker ? number : 1 / number;
}

/* Multiplies the scales of groups. Returns the number of those that are rounded. */
static size_t rescale(struct mends *mends, struct mended_tensor *scales, double ratio)
{
    const qobs_format *e4m3 = qobs_format_find("fp8_e4m3");
    unsigned char *data = mends_own(mends, scales);
    const size_t count = audit_element_count(&scales->is);
    size_t rounded = 0;
    for (size_t i = 0; data && i < count; i++) {
        const double number = (double)qobs_format_decode(e4m3, data[i]) * ratio;
        const unsigned char code = (unsigned char)qobs_format_encode(e4m3, (float)number, true);
        data[i] = code & 0x7f || number == 0 ? code : code + 1; /* the smallest, not 0 */
        rounded += (double)qobs_format_decode(e4m3, data[i]) != number;
    }
    return rounded;
}

static int share(struct mends *mends, struct audit *audit, const struct audit_module *m, const struct audit_module *of,
                 double ratio, struct fail *f)
{
    struct mended_tensor *global = mends_part(mends, audit, m->name, "weight_global_scale");
    struct mended_tensor *scales = mends_part(mends, audit, m->name, "weight_scale");
    const struct mended_tensor *from = mends_part(mends, audit, of->name, "weight_global_scale");
    if (!scales || scales->is.dtype != FILE_F8_E4M3 || global->is.dtype != from->is.dtype)
        return QOBS_OK;
    const size_t count = audit_element_count(&scales->is), rounded = rescale(mends, scales, ratio);
    if (!scales->owned || !mends_own(mends, global))
        return NO_MEMORY(f, "scales");
    memcpy(global->owned, from->is.data, (size_t)(from->is.end - from->is.begin));
    return mends_note(mends, m->name, "has the global scale of %s; %zu of %zu scales of its groups are rounded",
                      of->name, rounded, count)
               ? QOBS_OK
               : NO_MEMORY(f, "scales");
}

int mend_sets(struct mends *mends, struct audit *audit, const size_t *sets, struct fail *f)
{
    for (size_t first = 0; first < audit->module_count; first++) {
        const struct audit_module *largest = NULL;
        double factor = 0;
        size_t begin, end;
        find_neighbours(audit, first, parent_length(&audit->modules[first]), &begin, &end);
        for (size_t i = begin; sets[first] == first && i < end; i++) {
            const double own = sets[i] == first ? factor_of(mends, audit, &audit->modules[i]) : 0;
            largest = own > factor ? &audit->modules[i] : largest;
            factor = own > factor ? own : factor;
        }
        for (size_t i = begin; largest && i < end; i++) {
            const double own = sets[i] == first ? factor_of(mends, audit, &audit->modules[i]) : 0;
            if (own > 0 && own != factor)
                RETURN_IF_NOT_OK(share(mends, audit, &audit->modules[i], largest, own / factor, f));
        }
    }
    return QOBS_OK;
}

/* ---- Scales of inputs -------------------------------------------------------------------------------------------- */

/* Returns true if two modules are one projection of two experts of a layer. */
static bool are_experts(const struct audit_module *a, const struct audit_module *b)
{
    int64_t number;
    const char *p = NULL, *q = NULL;
    const size_t prefix = audit_parse_expert(a->name, &number, &p);
    return prefix > 0 && audit_parse_expert(b->name, &number, &q) == prefix && strncmp(a->name, b->name, prefix) == 0 &&
           strcmp(p, q) == 0;
}

/* Returns the module with the widest range among those that have the scale and that are alike; SIZE_MAX: none. */
static size_t find_donor(struct mends *mends, const struct audit *audit, size_t module, const size_t *sets,
                         const char *part, bool divides)
{
    size_t donor = SIZE_MAX;
    double widest = 0;
    for (int experts = 0; donor == SIZE_MAX && experts < 2; experts++) {
        int64_t number_of_expert;
        const char *projection;
        const struct audit_module *m = &audit->modules[module];
        size_t begin, end;
        find_neighbours(audit, module,
                        experts ? audit_parse_expert(m->name, &number_of_expert, &projection) : parent_length(m),
                        &begin, &end);
        for (size_t i = begin; i < end; i++) {
            if (experts ? !are_experts(&audit->modules[i], &audit->modules[module]) : sets[i] != sets[module])
                continue;
            const double number = number_in(mends_part(mends, audit, audit->modules[i].name, part));
            const double range = number == 0 ? 0 : divides ? 1 / number : number;
            donor = range > widest ? i : donor;
            widest = range > widest ? range : widest;
        }
    }
    return donor;
}

static int mend_input(struct mends *mends, struct audit *audit, size_t module, const size_t *sets, const char *part,
                      struct fail *f)
{
    const struct audit_module *m = &audit->modules[module];
    const bool divides = !audit->maker && strcmp(part, "input_global_scale") == 0;
    const struct mended_tensor *codes = mends_part(mends, audit, m->name, "weight_packed");
    codes = codes ? codes : mends_part(mends, audit, m->name, "weight");
    struct mended_tensor *t = mends_part(mends, audit, m->name, part);
    if (number_in(t) > 0 || !codes)
        return QOBS_OK;
    const size_t donor = find_donor(mends, audit, module, sets, part, divides), shard = codes->shard;
    if (donor == SIZE_MAX)
        return QOBS_OK;
    const char *from_name = audit->modules[donor].name;
    const struct st_tensor from = mends_part(mends, audit, from_name, part)->is;
    if (t && (t->is.dtype != from.dtype || t->is.end - t->is.begin != from.end - from.begin))
        return QOBS_OK;
    const char *name = audit_part_name(audit, part);
    t = t ? t : mends_add(mends, m->name, name, mends_part(mends, audit, from_name, part), shard);
    if (!t || !mends_own(mends, t))
        return NO_MEMORY(f, "scales");
    memcpy(t->owned, from.data, (size_t)(from.end - from.begin));
    return mends_note(mends, m->name, "has the %s of %s%s", name, from_name,
                      sets[donor] == sets[module] ? ", whose inputs are the same"
                                                  : ", the widest of the experts of its layer")
               ? QOBS_OK
               : NO_MEMORY(f, "scales");
}

int mend_inputs(struct mends *mends, struct audit *audit, const size_t *sets, struct fail *f)
{
    for (size_t i = 0; i < audit->module_count; i++) {
        const struct quant_group *g = audit->modules[i].group;
        if (!g || !g->has_inputs || !audit->modules[i].codes)
            continue;
        if (g->inputs.dynamic == QUANT_STATIC)
            RETURN_IF_NOT_OK(mend_input(mends, audit, i, sets, "input_scale", f));
        if (g->inputs.dynamic != QUANT_DYNAMIC && g->inputs.strategy == QUANT_TENSOR_GROUP)
            RETURN_IF_NOT_OK(mend_input(mends, audit, i, sets, "input_global_scale", f));
    }
    return QOBS_OK;
}
