/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "show/load_cairo.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "program.h"

struct cairo_functions cairo;

/* The library remains loaded: fontconfig below it leaves memory behind that leak checkers find by its name. */
int load_cairo(void)
{
#define FUNCTION(name) {"cairo_" #name, &cairo.name},
    static const struct {
        const char *name;
        void *pointer;
    } functions[] = {CAIRO_FUNCTIONS(FUNCTION)};
    void *library = dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return print_error(EXIT_SYSTEM, "--out: cannot load cairo, which draws pictures: %s", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(library, functions[i].name);
        if (!symbol)
            return print_error(EXIT_SYSTEM, "--out: cannot load cairo, which draws pictures: %s", dlerror());
        memcpy(functions[i].pointer, &symbol, sizeof symbol);
    }
    return EXIT_OK;
}
