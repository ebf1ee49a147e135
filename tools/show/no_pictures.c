/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* In place of canvas.c, chart_draw.c and compare_draw.c where cairo is not there. */
#include "program.h"
#include "show/compare.h"

int chart_check_picture(const char *path)
{
    return print_error(EXIT_USAGE, "--out: %s: this program was built without cairo and draws no pictures", path);
}

int chart_draw(const struct chart *c, const char *path)
{
    (void)c;
    return chart_check_picture(path);
}

int compare_draw(const struct comparison *c, const char *path)
{
    (void)c;
    return chart_check_picture(path);
}
