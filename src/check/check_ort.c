/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Settings of ONNX Runtime's DistributionCalibrater. */
#include "check/check.h"

#include "base/error.h"

enum { LEAST_BINS = 512 };

int qobs_check_ort(const qobs_config *config, qobs_error *error)
{
    if (config->preset->range->found_moments && config->num_bins < LEAST_BINS)
        return qobs_invalid(error, "num_bins: is %lld, %s takes %d and more", (long long)config->num_bins,
                            config->preset->name, LEAST_BINS);
    return QOBS_OK;
}
