/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "engine/progress.h"

#include <math.h>
#include <stdio.h>

void meter_open(struct meter *m) { pthread_mutex_init(&m->lock, NULL); }

void meter_close(struct meter *m) { pthread_mutex_destroy(&m->lock); }

void meter_set_total(struct meter *m, uint64_t bytes)
{
    pthread_mutex_lock(&m->lock);
    m->total = bytes;
    pthread_mutex_unlock(&m->lock);
}

static void report(struct meter *m)
{
    const double all = (double)m->total + m->search, share = all > 0 ? ((double)m->done + m->searched) / all : 1;
    m->share = fmax(m->share, fmin(share, 1)); /* recorded activations are read before the layers are known */
    const qobs_progress progress = {.struct_size = sizeof progress,
                                    .stage = m->stage,
                                    .bytes_done = m->done,
                                    .bytes_total = m->total,
                                    .layer = *m->layer ? m->layer : NULL,
                                    .share = m->share,
                                    .searches = m->search > 0};
    if (!m->stopped && m->report(m->context, &progress) != 0)
        m->stopped = true;
}

bool meter_add(struct meter *m, const struct weight *w, uint64_t bytes, double search)
{
    if (!m->report)
        return false;
    pthread_mutex_lock(&m->lock);
    m->done += bytes;
    m->searched += search;
    if (w) {
        snprintf(m->layer, sizeof m->layer, "%.*s", (int)w->module, w->name);
        make_printable(m->layer);
    }
    report(m);
    pthread_mutex_unlock(&m->lock);
    return m->stopped;
}
