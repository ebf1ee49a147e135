/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any thread may add progress; the thread that crosses a step of half a per cent draws the bar. */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_start(struct progress *progress, uint64_t total)
{
    progress->shown = isatty(STDERR_FILENO) && total > 0;
    progress->total = total;
    atomic_store(&progress->done, 0);
    atomic_store(&progress->drawn, 0);
    progress->started = seconds_now();
}

void progress_add(struct progress *progress, uint64_t amount)
{
    enum { WIDTH = 40 };
    if (!progress->shown)
        return;
    const uint64_t done = atomic_fetch_add(&progress->done, amount) + amount;
    const uint64_t now = (uint64_t)(1000.0 * (double)done / (double)progress->total);
    uint64_t before = atomic_load(&progress->drawn);
    /* Draw at steps of half a per cent. The thread that updates `drawn` draws. */
    if (now < before + 5 || !atomic_compare_exchange_strong(&progress->drawn, &before, now))
        return;
    char line[WIDTH + 64];
    int n = 0;
    line[n++] = '\r';
    line[n++] = '[';
    for (int i = 0; i < WIDTH; i++)
        line[n++] = (uint64_t)i * 1000 < now * WIDTH ? '#' : ' ';
    n += snprintf(line + n, sizeof line - (size_t)n, "] %3d %%  %.1f GB/s ", (int)(now / 10),
                  (double)done * 1e-9 / (seconds_now() - progress->started));
    fwrite(line, 1, (size_t)n, stderr);
}

void progress_stop(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
