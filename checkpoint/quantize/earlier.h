/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A model that is quantized in parts: what stays of its codes and of its quantization_config. */
#pragma once

#include "quantize/run.h"

/* Decides which codes stay as they are, and fills run->earlier with the quantization_config that describes them. Else
 * completes run->config: its ignore list then fits the old layers and the new ones. The chosen weights and the ignore
 * list of the new configuration must be there. In the compatible mode all is as upstream has it: codes stay unless they
 * are quantized anew, and one list of groups is put beside the other. */
int earlier_merge(struct quantize_run *run, struct fail *f);
