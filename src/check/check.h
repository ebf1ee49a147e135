/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The checks of a family's settings together; config.c calls the one of the preset's family. */
#pragma once

#include "config/config.h"

int qobs_check_llmc(const qobs_config *config, qobs_error *error);
int qobs_check_optimal(const qobs_config *config, qobs_error *error);
int qobs_check_torch(const qobs_config *config, qobs_error *error);
int qobs_check_ort(const qobs_config *config, qobs_error *error);
int qobs_check_torchao(const qobs_config *config, qobs_error *error);
int qobs_check_quark(const qobs_config *config, qobs_error *error);
int qobs_check_modelopt(const qobs_config *config, qobs_error *error);
