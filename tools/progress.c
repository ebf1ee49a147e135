/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The bar is drawn every tenth of a second. */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files/status.h"
#include "names.h"

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

static void draw(double share, const qobs_progress *done, double elapsed)
{
    enum { WIDE = 24, NARROW = 12, NAME = 30 };
    char line[160], passed[32], left[32], name[MAX_NAME + 1];
    const double speed = (double)done->bytes_done * 1e-6 / elapsed;
    const int width = done->searches ? NARROW : WIDE, filled = (int)(share * width), fast = speed >= 1000;
    int n = snprintf(line, sizeof line, "\r[%.*s%*s] %3d %%  ", filled, "########################", width - filled, "",
                     (int)(100 * share));
    if (!done->searches)
        n += snprintf(line + n, sizeof line - (size_t)n, "%.*f %s  ", fast, fast ? speed * 1e-3 : speed,
                      fast ? "GB/s" : "MB/s");
    else if (done->layer)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s  ",
                      clean_name((struct label){done->layer, strlen(done->layer)}, NAME, name));
    n += snprintf(line + n, sizeof line - (size_t)n, "%s", time_text(elapsed, passed));
    if (share > 0)
        n += snprintf(line + n, sizeof line - (size_t)n, ", %s left", time_text(elapsed * (1 - share) / share, left));
    n += snprintf(line + n, sizeof line - (size_t)n, " \033[K");
    fwrite(line, 1, (size_t)n, stderr);
}

void progress_update(struct progress *progress, const qobs_progress *done)
{
    const double interval = 0.1; /* seconds between two drawings */
    if (progress->started == 0)
        *progress = (struct progress){.shown = isatty(STDERR_FILENO) && done->bytes_total > 0,
                                      .started = seconds_now(),
                                      .drawn = done->searches ? -interval : 0}; /* the first layer may take long */
    const double elapsed = seconds_now() - progress->started;
    if (!progress->shown || elapsed < progress->drawn + interval)
        return;
    progress->drawn = elapsed;
    draw(done->share, done, elapsed);
}

void progress_stop(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
