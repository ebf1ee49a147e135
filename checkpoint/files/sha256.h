/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* SHA-256 of files. */
#pragma once

#include "files/fail.h"

enum { SHA256_TEXT = 65 }; /* 64 hexadecimal digits and a zero */

/* Writes the hash of a file's bytes as text. From any thread. */
int sha256_file(const char *path, char text[SHA256_TEXT], struct fail *f);
