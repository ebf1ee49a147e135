/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs info: prints the CPU, the instruction sets and the presets with their settings. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

static const char help[] =
    "usage: qobs info [--isa NAME]\n"
    "\n"
    "Prints the CPU, the instruction sets, which one is active and why, and the presets with their settings.\n"
    "\n"
    "  --isa NAME   use this instruction set\n"
    "  --help       print this and exit\n";

static void print_cpu(void)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    const char *name = "unknown";
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            name = strchr(line, ':') + 2;
            break;
        }
    printf("CPU            %.*s\n", (int)strcspn(name, "\n"), name);
    if (f)
        fclose(f);
}

static void print_isas(bool limited)
{
    const char *active = qobs_isa_active();
    for (size_t i = 0; i < qobs_isa_count(); i++) {
        const bool is_active = strcmp(qobs_isa_name(i), active) == 0;
        const bool delegates = is_active && strcmp(active, "avx512") == 0;
        printf("%-14s %-8s %-22s %s%s\n", i == 0 ? "instructions" : "", qobs_isa_name(i), qobs_isa_summary(i),
               !qobs_isa_usable(i) ? "not usable: this CPU lacks them or the system does not save their registers"
               : !is_active        ? "usable"
               : limited           ? "active: asked for with --isa"
                                   : "active: the fastest that is usable",
               delegates ? "; calls avx2 if that is faster" : "");
    }
}

static void print_presets(void)
{
    for (size_t i = 0; i < qobs_preset_count(); i++) {
        qobs_config *config;
        printf("%-14s %-34s %s\n", i == 0 ? "presets" : "", qobs_preset_name(i), qobs_preset_summary(i));
        if (qobs_config_create(&config, qobs_preset_name(i), NULL, NULL) != QOBS_OK)
            continue;
        printf("%-14s   ", "");
        for (size_t k = 0; k < qobs_config_key_count(config); k++)
            printf("%s%s", k ? " " : "", qobs_config_key(config, k));
        printf("\n");
        qobs_config_destroy(config);
    }
}

int command_info(int argc, char **argv)
{
    static const struct option options[] = {
        {"isa", required_argument, NULL, 'i'}, {"help", no_argument, NULL, 'h'}, {0}};
    const char *isa = NULL;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;)
        switch (c) {
        case 'i':
            isa = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return EXIT_OK;
        default:
            return EXIT_USAGE;
        }
    if (optind < argc)
        return print_error(EXIT_USAGE, "info: takes no file, got '%s'", argv[optind]);
    qobs_error error;
    if (isa && qobs_isa_select(isa, &error) != QOBS_OK)
        return print_status_error(&error, "--isa");
    printf("qobs           %s\n", qobs_version());
    print_cpu();
    print_isas(isa != NULL);
    print_presets();
    return EXIT_OK;
}
