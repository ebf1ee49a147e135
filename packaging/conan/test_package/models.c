/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */
#include <qobs/checkpoint.h>
#include <stdio.h>
#include <string.h>

/* Whole models: a model that is not there is an error with its name. */
int main(void)
{
    const qobs_checkpoint_quantize_args args = {
        .struct_size = sizeof args, .model = "no-model", .out = "no-output", .scheme = "W4A16"};
    qobs_error error;
    const int status = qobs_checkpoint_quantize(&args, &error);
    printf("%s\n", error.message);
    return status == QOBS_OK || !strstr(error.message, "no-model") || !qobs_checkpoint_knows("llama", NULL);
}
