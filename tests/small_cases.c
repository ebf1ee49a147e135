/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Runs cases in a library of few features, for test_embedding.py. It reads, in native byte order: the length of the
 * configuration and its text; dtype, dimensions and bytes of the tensor as int32; its shape as int64; its data. It
 * writes "ok", dtypes and hexadecimal scales and zero points, or "error" and the message, a line a case. */
#include <qobs/qobs.h>
#include <stdio.h>
#include <stdlib.h>

static void *take(size_t size)
{
    void *memory = malloc(size + 1);
    if (!memory || fread(memory, 1, size, stdin) != size)
        exit(2);
    ((char *)memory)[size] = '\0';
    return memory;
}

static void print(qobs_dtype dtype, const unsigned char *bytes, size_t size)
{
    printf(" %s ", qobs_dtype_name(dtype));
    for (size_t i = 0; i < size; i++)
        printf("%02x", bytes[i]);
}

int main(void)
{
    int32_t length;
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        char *text = take((size_t)length);
        int32_t *head = take(3 * sizeof *head);
        int64_t *shape = take((size_t)head[1] * sizeof *shape);
        void *data = take((size_t)head[2]);
        const qobs_tensor value = {sizeof value, data, (qobs_dtype)head[0], head[1], shape, NULL};
        qobs_qparam_layout layout = {.struct_size = sizeof layout};
        qobs_qparam_buffers out = {.struct_size = sizeof out};
        qobs_error error;
        qobs_config *config = NULL;
        int bad = qobs_config_parse(&config, text, NULL, &error) ||
                  qobs_config_qparam_layout(config, &value, NULL, &layout, &error);
        qobs_config_destroy(config);
        if (!bad) {
            out.scale_size = layout.scale_size;
            out.zero_point_size = layout.zero_point_size;
            out.scale = malloc(layout.scale_size + 1);
            out.zero_point = malloc(layout.zero_point_size + 1);
            bad = qobs_qparams_from_tensor(text, &value, &out, NULL, &error);
        }
        printf("%s", bad ? "error " : "ok");
        if (bad) {
            printf("%s", error.message);
        } else {
            print(layout.scale_dtype, out.scale, out.scale_size);
            print(layout.zero_point_dtype, out.zero_point, out.zero_point_size);
        }
        printf("\n");
        free(out.scale);
        free(out.zero_point);
        free(data);
        free(shape);
        free(head);
        free(text);
    }
    return 0;
}
