/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any thread may add progress; the first that does so a tenth of a second after the last drawing draws the bar. */
#include "progress.h"
#include "files/status.h"

#include <stdio.h>
#include <unistd.h>

void progress_start(struct progress *progress, uint64_t total)
{
    progress->shown = isatty(STDERR_FILENO) && total > 0;
    progress->total = total;
    atomic_store(&progress->done, 0);
    atomic_store(&progress->drawn, 0);
    progress->started = seconds_now();
}

/* Writes a time as 9 s, 2:05 or 1:02:05. */
static const char *time_text(double seconds, char text[32])
{
    const unsigned long s = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 1000000000;
    if (s < 60)
        snprintf(text, 32, "%lu s", s);
    else if (s < 3600)
        snprintf(text, 32, "%lu:%02lu", s / 60, s % 60);
    else
        snprintf(text, 32, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
    return text;
}

static void draw(const struct progress *progress, uint64_t done, double elapsed)
{
    enum { WIDTH = 24 };
    char line[160], passed[32], left[32];
    const double share = (double)done / (double)progress->total, speed = (double)done * 1e-6 / elapsed;
    const int filled = (int)(share * WIDTH), fast = speed >= 1000;
    int n = snprintf(line, sizeof line, "\r[%.*s%*s] %3d %%  %.*f %s  %s, ", filled, "########################",
                     WIDTH - filled, "", (int)(100 * share), fast, fast ? speed * 1e-3 : speed, fast ? "GB/s" : "MB/s",
                     time_text(elapsed, passed));
    n += snprintf(line + n, sizeof line - (size_t)n, "%s left \033[K", time_text(elapsed * (1 - share) / share, left));
    fwrite(line, 1, (size_t)n, stderr);
}

void progress_add(struct progress *progress, uint64_t amount)
{
    enum { INTERVAL = 100 }; /* milliseconds between two drawings */
    if (!progress->shown)
        return;
    const uint64_t sum = atomic_fetch_add(&progress->done, amount) + amount;
    const uint64_t done = sum < progress->total ? sum : progress->total;
    const double elapsed = seconds_now() - progress->started;
    const uint64_t now = (uint64_t)(elapsed * 1e3);
    uint64_t before = atomic_load(&progress->drawn);
    /* The thread that updates `drawn` draws. */
    if (done > 0 && now >= before + INTERVAL && atomic_compare_exchange_strong(&progress->drawn, &before, now))
        draw(progress, done, elapsed);
}

void progress_stop(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
