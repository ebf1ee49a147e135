/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantizes the model of a directory to 4-bit weights.
 *
 *   quantize_model MODEL OUT */
#include <qobs/checkpoint.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    qobs_error error;
    if (argc != 3)
        return fprintf(stderr, "usage: quantize_model MODEL OUT\n"), 2;
    const qobs_checkpoint_quantize_args args = {
        .struct_size = sizeof args, .model = argv[1], .out = argv[2], .scheme = "W4A16"};
    if (qobs_checkpoint_quantize(&args, &error) != QOBS_OK)
        return fprintf(stderr, "%s\n", error.message), 1;
    return 0;
}
