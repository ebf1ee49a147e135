/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Mends in another directory the faults of an audit that need no original. */
#pragma once

#include "audit/audit.h"
#include "files/output_directory.h"

/* A tensor of the new files. */
struct mended_tensor {
    char *name;
    const struct st_tensor *old; /* NULL: it is added */
    size_t shard;
    struct st_tensor is;  /* as it will be, but for its name */
    unsigned char *owned; /* its data; NULL: that of the old one */
};

/* The new name of a tensor, for searches. */
struct mended_name {
    const char *name; /* belongs to the tensor */
    size_t tensor;
};

struct mends {
    struct mended_tensor *tensors; /* those of the model in its order, then added ones */
    size_t count;
    struct findings made;        /* what was mended */
    bool names, config;          /* changed: names of tensors, lists of what is not quantized */
    bool *shards;                /* changed */
    struct mended_name *renamed; /* sorted by name */
    size_t renamed_count;
};

/* Finds what can be mended after audit_run, and changes the configurations of the model in memory. mends_free follows
 * in any case. */
int mends_find(struct mends *mends, struct audit *audit, struct fail *f);
void mends_free(struct mends *mends);

/* Writes all files of the model with what was mended. */
int mends_write(const struct mends *mends, const struct audit *audit, struct output_directory *out, struct fail *f);

/* Steps of mends_find: names of other dialects; lists; scales of sets; scales of inputs. */
int mend_names(struct mends *mends, struct audit *audit, struct fail *f);
int mend_lists(struct mends *mends, struct audit *audit, struct fail *f);
int mend_sets(struct mends *mends, struct audit *audit, const size_t *sets, struct fail *f);
int mend_inputs(struct mends *mends, struct audit *audit, const size_t *sets, struct fail *f);

/* Returns the tensor <module>.<part> as it is mended so far; NULL: there is none. `part` has the name of
 * compressed-tensors. */
struct mended_tensor *mends_part(struct mends *mends, const struct audit *audit, const char *module, const char *part);

/* Gives a tensor data of its size. NULL: no memory. */
unsigned char *mends_own(struct mends *mends, struct mended_tensor *tensor);

/* Adds a tensor like another one, without data of its own. NULL: no memory. */
struct mended_tensor *mends_add(struct mends *mends, const char *module, const char *part,
                                const struct mended_tensor *like, size_t shard);

/* Says what was mended. Returns false without memory. */
bool mends_note(struct mends *mends, const char *module, const char *format, ...) __attribute__((format(printf, 3, 4)));
