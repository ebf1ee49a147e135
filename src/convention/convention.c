/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "convention/convention.h"

#include "error.h"

void qobs_convention_dtypes(const qobs_config *config, qobs_dtype dtype, bool observed, qobs_dtype *scale,
                            qobs_dtype *zero_point)
{
    if (config->preset->convention == CONVENTION_COMPRESSED_TENSORS) {
        qobs_compressed_tensors_dtypes(config, dtype, scale, zero_point);
        return;
    }
    *scale = QOBS_F32;
    *zero_point = qobs_torch_zero_point_dtype(config, observed);
}

int qobs_convention(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                    qobs_error *error)
{
    if (config->preset->convention == CONVENTION_TORCH)
        return qobs_torch_qparams(config, ranges, scale, zero_point, error);
    qobs_compressed_tensors_qparams(config, ranges, scale, zero_point);
    return qobs_succeed(error);
}

int qobs_config_qparam_dtypes(const qobs_config *config, qobs_dtype dtype, qobs_dtype *scale, qobs_dtype *zero_point,
                              qobs_error *error)
{
    const int status = qobs_config_check(config, error);
    if (status == QOBS_OK)
        qobs_convention_dtypes(config, dtype, true, scale, zero_point);
    return status;
}
