/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Words for a refusal of layers: it names all of them, so that one run tells what several would. */
#pragma once

#include "model/weights.h"

struct layer_words {
    size_t count;
    char names[200]; /* "tensor 'a.weight'", or "27 layers, 'a', 'b', ..." */
    char entry[120]; /* of `ignore`: it covers these layers, and if possible no other one that is quantized */
};

/* Describes the weights that are marked, one flag for each. One at least is. */
void layer_words_make(struct layer_words *words, const struct weights *weights, const bool *marked);

/* Words for one layer or several. */
#define IT_OR_THEM(words) ((words)->count == 1 ? "it" : "them")
#define IS_OR_ARE(words) ((words)->count == 1 ? "is" : "are")
#define HAS_OR_HAVE(words) ((words)->count == 1 ? "has" : "have")
