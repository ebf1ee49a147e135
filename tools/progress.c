/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The bar is drawn every tenth of a second. */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "files/status.h"

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

void progress_update(struct progress *progress, uint64_t done, uint64_t total)
{
    const double interval = 0.1; /* seconds between two drawings */
    if (progress->started == 0)
        *progress =
            (struct progress){.shown = isatty(STDERR_FILENO) && total > 0, .total = total, .started = seconds_now()};
    const double elapsed = seconds_now() - progress->started;
    if (!progress->shown || done == 0 || elapsed < progress->drawn + interval)
        return;
    progress->drawn = elapsed;
    draw(progress, done < total ? done : total, elapsed);
}

void progress_stop(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
