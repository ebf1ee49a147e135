/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Calibrates activations that are too large to store. Reads float32 rows of COLUMNS elements from standard input,
 * batch by batch, and prints the scale and zero point for 8-bit integers. With STATE it saves the observer's state
 * there, for `qobs merge` or another run.
 *
 *     cc stream_activations.c $(pkg-config --cflags --libs qobs) -o stream_activations
 *     producer | ./stream_activations COLUMNS [STATE] */
#include <qobs/qobs.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64 }; /* rows of a batch */

/* Observes batches until the stream ends. The observer stores only its histogram. */
static int observe_all(qobs_observer *observer, FILE *stream, float *batch, int64_t columns, qobs_error *error)
{
    for (size_t n; (n = fread(batch, sizeof *batch, ROWS * (size_t)columns, stream)) > 0;) {
        const int64_t shape[] = {(int64_t)n / columns, columns};
        if (n % (size_t)columns != 0)
            fprintf(stderr, "the last row has %zu of %lld columns and is left out\n", n % (size_t)columns,
                    (long long)columns);
        const qobs_tensor tensor = {sizeof tensor, batch, QOBS_F32, 2, shape, NULL};
        if (qobs_observer_observe(observer, &tensor, NULL, error) != QOBS_OK)
            return error->status;
    }
    return QOBS_OK;
}

static int save(const qobs_observer *observer, const char *path, qobs_error *error)
{
    const size_t size = qobs_observer_save_size(observer);
    void *bytes = malloc(size);
    FILE *file = fopen(path, "wb");
    int bad = !bytes || !file || qobs_observer_save(observer, bytes, size, error) != QOBS_OK;
    bad = bad || fwrite(bytes, 1, size, file) != size;
    if (file && fclose(file) != 0)
        bad = 1;
    free(bytes);
    if (bad)
        fprintf(stderr, "cannot save to %s\n", path);
    return bad;
}

int main(int argc, char **argv)
{
    const int64_t columns = argc > 1 ? strtoll(argv[1], NULL, 10) : 0;
    if (columns < 1 || columns > 1 << 20) {
        fprintf(stderr, "usage: stream_activations COLUMNS [STATE]\n");
        return 2;
    }
    qobs_observer *observer = NULL;
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_error error;
    float scale;
    int32_t zero_point;
    const qobs_qparam_buffers out = {sizeof out, &scale, sizeof scale, &zero_point, sizeof zero_point, NULL};
    float *batch = malloc(ROWS * (size_t)columns * sizeof *batch);
    int bad = !batch;

    if (!bad && (qobs_observer_open(&observer, "torch.HistogramObserver dtype=quint8", NULL, &error) != QOBS_OK ||
                 observe_all(observer, stdin, batch, columns, &error) != QOBS_OK ||
                 qobs_observer_counts(observer, &counts, &error) != QOBS_OK ||
                 qobs_qparams_from_observer(observer, &out, &error) != QOBS_OK)) {
        fprintf(stderr, "%s: %s\n", qobs_status_string(error.status), error.message);
        bad = 1;
    }
    if (!bad) {
        printf("%llu batches, %llu elements\n", (unsigned long long)counts.batches,
               (unsigned long long)counts.elements);
        printf("scale %.9g, zero point %d\n", scale, (int)zero_point);
    }
    if (!bad && argc > 2)
        bad = save(observer, argv[2], &error);

    qobs_observer_destroy(observer);
    free(batch);
    return bad;
}
