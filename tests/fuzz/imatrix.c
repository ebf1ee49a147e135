/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any bytes as an importance matrix: refused with a message, or every vector of every entry can be read. */
#include <math.h>

#include "file.h"
#include "files/imatrix.h"

volatile unsigned touched;

static void read_all(const struct imatrix *m, const struct imatrix_entry *e)
{
    enum { MAX_COLUMNS = 1 << 16 };
    static float mean[MAX_COLUMNS];
    struct fail f = {.message = ""};
    const uint64_t matrices = e->matrices > 0 ? e->matrices : 1, columns = e->value_count / matrices;
    must(imatrix_find(m, e->name) == e);
    if (columns == 0 || columns > MAX_COLUMNS)
        return;
    for (uint64_t i = 0; i < matrices && i < 8; i++)
        if (imatrix_read(m, e, i, (int64_t)columns, mean, &f) == 0)
            for (uint64_t j = 0; j < columns; j++)
                must(isfinite(mean[j]) && mean[j] >= 0);
        else
            must(f.message[0] != '\0');
    must(imatrix_read(m, e, matrices, (int64_t)columns, mean, &f) != 0);
    must(imatrix_read(m, e, 0, (int64_t)columns + 1, mean, &f) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mapped map;
    struct imatrix m;
    struct fail f = {.message = ""};
    file_fill(100, data, size);
    file_map(&map, 100);
    if (imatrix_open_mapped(&m, &map, &f) == 0) {
        for (size_t i = 0; i < m.count; i++)
            read_all(&m, &m.entries[i]);
        imatrix_close(&m);
    } else {
        must(f.message[0] != '\0' && !m.map.data);
    }
    must(!map.data);
    return 0;
}
