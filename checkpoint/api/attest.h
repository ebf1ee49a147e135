/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A statement about an audit. */
#pragma once

#include "audit/audit.h"

/* Writes a file with a statement of in-toto (https://in-toto.io/Statement/v1): its subjects are the files of the
 * checkpoint, with their SHA-256; its predicate has those of the original, the version of the library and what the
 * report says of codes and of the reproduction. */
int attest(const struct audit *audit, const json_object *report, const char *path, struct fail *f);
