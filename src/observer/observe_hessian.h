/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The Gram of activations as a part of an observer: of the groups, or of the blocks that hessian_block_size says. */
#pragma once

#include "observer/observer.h"
#include "observer/saved_state.h"

/* True if the observer needs the Gram of activations besides their mean squares. */
bool qobs_needs_gram(const struct stages *stages);

/* A gram for activations of that many columns, without sums. */
struct gram qobs_gram_for(const struct stages *stages, int64_t columns);

/* Adds activations to the importance, and to the Gram if there is need. After a failure nothing has changed. */
int qobs_observe_activations(qobs_observer *o, const struct view *v, qobs_error *error);

/* Saves and loads the Gram. */
int qobs_code_gram(struct codec *codec, qobs_observer *observer, qobs_error *error);
