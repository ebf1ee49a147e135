/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The words of settings and their values. Only settings.c includes this, after settings.h. */
static const struct word switch_words[] = {{"true", true}, {"false", false}, {0}};
static const struct word base_names[] = {{"weight", BASE_WEIGHT},
                                         {"input", BASE_INPUT},
                                         {"output", BASE_OUTPUT},
                                         {"q", BASE_Q},
                                         {"k", BASE_K},
                                         {"v", BASE_V},
                                         {0}};
static const struct word strategies[] = {{"tensor", STRATEGY_TENSOR},       {"channel", STRATEGY_CHANNEL},
                                         {"group", STRATEGY_GROUP},         {"tensor_group", STRATEGY_TENSOR_GROUP},
                                         {"block", STRATEGY_BLOCK},         {"token", STRATEGY_TOKEN},
                                         {"attn_head", STRATEGY_ATTN_HEAD}, {0}};
static const struct word nonfinite_modes[] = {
    {"refuse", NONFINITE_REFUSE}, {"ignore", NONFINITE_IGNORE}, {"propagate", NONFINITE_PROPAGATE}, {0}};
static const struct word histogram_nonfinite_modes[] = {{"refuse", NONFINITE_REFUSE},
                                                        {"refuse_nan", NONFINITE_REFUSE_NAN},
                                                        {"ignore", NONFINITE_IGNORE},
                                                        {"propagate", NONFINITE_PROPAGATE},
                                                        {0}};
static const struct word versions[] = {{"current", VERSION_CURRENT},
                                       {"2025-10", VERSION_2025_10},
                                       {"2025-09", VERSION_2025_09},
                                       {"2026-10", VERSION_2026_10},
                                       {0}};
static const struct word search_dtypes[] = {{"native", SEARCH_NATIVE}, {"float32", SEARCH_FLOAT32}, {0}};
static const struct word types[] = {{"int", TYPE_INT}, {"float", TYPE_FLOAT}, {0}};
static const struct word threshold_methods[] = {{"_3SD", THRESHOLD_3SD}, {"_KL_J", THRESHOLD_KL_J}, {0}};
static const struct word roundings[] = {{"nearest", ROUNDING_NEAREST}, {"descent", ROUNDING_DESCENT}, {0}};
static const struct word bias_methods[] = {{"mean", BIAS_MEAN}, {"max_min", BIAS_MAX_MIN}, {0}};
static const struct word amax_methods[] = {
    {"entropy", AMAX_ENTROPY}, {"mse", AMAX_MSE}, {"percentile", AMAX_PERCENTILE}, {0}};
static const struct word modelopt_num_bits[] = {{"2", 2},
                                                {"3", 3},
                                                {"4", 4},
                                                {"5", 5},
                                                {"6", 6},
                                                {"7", 7},
                                                {"8", 8},
                                                {"9", 9},
                                                {"10", 10},
                                                {"11", 11},
                                                {"12", 12},
                                                {"13", 13},
                                                {"14", 14},
                                                {"15", 15},
                                                {"16", 16},
                                                {"[4, 3]", NUM_BITS_E4M3},
                                                {"[4,3]", NUM_BITS_E4M3},
                                                {0}};
static const struct word scale_dtypes[] = {{"float32", SCALE_F32}, {"bfloat16", SCALE_BF16},
                                           {"float16", SCALE_F16}, {"float8_e4m3fn", SCALE_E4M3},
                                           {"uint8", SCALE_U8},    {0}};
static const struct word dynamics[] = {{"false", 0}, {"true", 1}, {"local", 2}, {0}};
static const struct word zp_dtypes[] = {{"int8", QOBS_I8},
                                        {"uint8", QOBS_U8},
                                        {"int16", QOBS_I16},
                                        {"int32", QOBS_I32},
                                        {"bfloat16", QOBS_BF16},
                                        {"float16", QOBS_F16},
                                        {"float32", QOBS_F32},
                                        {"float8_e4m3fn", QOBS_F8_E4M3},
                                        {0}};
static const struct word ort_types[] = {{"QInt8", ORT_QINT8},
                                        {"QUInt8", ORT_QUINT8},
                                        {"QInt16", ORT_QINT16},
                                        {"QUInt16", ORT_QUINT16},
                                        {"QInt4", ORT_QINT4},
                                        {"QUInt4", ORT_QUINT4},
                                        {0}};
static const struct word ort_scenarios[] = {{"same", ORT_SAME}, {"p3", ORT_P3}, {0}};
static const struct word mapping_types[] = {{"SYMMETRIC", TORCHAO_SYMMETRIC},
                                            {"SYMMETRIC_NO_CLIPPING_ERR", TORCHAO_NO_CLIPPING_ERR},
                                            {"ASYMMETRIC", TORCHAO_ASYMMETRIC},
                                            {0}};
static const struct word torchao_dtypes[] = {{"int8", TORCHAO_INT8},
                                             {"uint8", TORCHAO_UINT8},
                                             {"int1", TORCHAO_INT1},
                                             {"int2", TORCHAO_INT2},
                                             {"int3", TORCHAO_INT3},
                                             {"int4", TORCHAO_INT4},
                                             {"int5", TORCHAO_INT5},
                                             {"int6", TORCHAO_INT6},
                                             {"int7", TORCHAO_INT7},
                                             {"uint1", TORCHAO_UINT1},
                                             {"uint2", TORCHAO_UINT2},
                                             {"uint3", TORCHAO_UINT3},
                                             {"uint4", TORCHAO_UINT4},
                                             {"uint5", TORCHAO_UINT5},
                                             {"uint6", TORCHAO_UINT6},
                                             {"uint7", TORCHAO_UINT7},
                                             {"int16", TORCHAO_INT16},
                                             {"int32", TORCHAO_INT32},
                                             {"float8_e4m3fn", TORCHAO_E4M3},
                                             {"float8_e5m2", TORCHAO_E5M2},
                                             {"float8_e4m3fnuz", TORCHAO_E4M3_FNUZ},
                                             {"float8_e5m2fnuz", TORCHAO_E5M2_FNUZ},
                                             {0}};
static const struct word torchao_granularities[] = {{"PerTensor", TORCHAO_PER_TENSOR},
                                                    {"PerAxis", TORCHAO_PER_AXIS},
                                                    {"PerGroup", TORCHAO_PER_GROUP},
                                                    {"PerRow", TORCHAO_PER_ROW},
                                                    {"PerToken", TORCHAO_PER_TOKEN},
                                                    {"PerBlock", TORCHAO_PER_BLOCK},
                                                    {0}};
static const struct word torchao_qparam_dtypes[] = {
    {"float32", QOBS_F32}, {"bfloat16", QOBS_BF16}, {"float16", QOBS_F16}, {"float64", QOBS_F64}, {"int8", QOBS_I8},
    {"uint8", QOBS_U8},    {"int16", QOBS_I16},     {"int32", QOBS_I32},   {"int64", QOBS_I64},   {0}};
static const struct word torchao_scale_dtypes[] = {
    {"float32", QOBS_F32}, {"bfloat16", QOBS_BF16}, {"float16", QOBS_F16}, {"float64", QOBS_F64}, {0}};
static const struct word zero_point_domains[] = {
    {"INT", ZERO_POINT_DOMAIN_INT}, {"FLOAT", ZERO_POINT_DOMAIN_FLOAT}, {"NONE", ZERO_POINT_DOMAIN_NONE}, {0}};
static const struct word torchao_modules[] = {{"quantization", TORCHAO_QUANTIZATION}, {"pt2e", TORCHAO_PT2E}, {0}};
enum { FLOATING = 3 }; /* the first words, which observers of ranges do not accept */
static const struct word torch_dtypes[] = {{"float32", TORCH_FLOAT32},
                                           {"float16", TORCH_FLOAT16},
                                           {"bfloat16", TORCH_BFLOAT16},
                                           {"quint8", TORCH_QUINT8},
                                           {"qint8", TORCH_QINT8},
                                           {"qint32", TORCH_QINT32},
                                           {"quint4x2", TORCH_QUINT4X2},
                                           {"uint8", TORCH_UINT8},
                                           {"int8", TORCH_INT8},
                                           {"uint16", TORCH_UINT16},
                                           {"int16", TORCH_INT16},
                                           {"int32", TORCH_INT32},
                                           {0}};
static const struct word qschemes[] = {{"per_tensor_affine", TORCH_PER_TENSOR_AFFINE},
                                       {"per_tensor_symmetric", TORCH_PER_TENSOR_SYMMETRIC},
                                       {"per_channel_affine", TORCH_PER_CHANNEL_AFFINE},
                                       {"per_channel_symmetric", TORCH_PER_CHANNEL_SYMMETRIC},
                                       {"per_channel_affine_float_qparams", TORCH_PER_CHANNEL_AFFINE_FLOAT_QPARAMS},
                                       {0}};

static const struct word quark_dtypes[] = {
    {"int8", QUARK_INT8},         {"uint8", QUARK_UINT8},       {"int4", QUARK_INT4},
    {"uint4", QUARK_UINT4},       {"int3", QUARK_INT3},         {"int2", QUARK_INT2},
    {"int16", QUARK_INT16},       {"int32", QUARK_INT32},       {"fp8_e4m3", QUARK_FP8_E4M3},
    {"fp8_e5m2", QUARK_FP8_E5M2}, {"fp8_e5m3", QUARK_FP8_E5M3}, {"fp6_e2m3", QUARK_FP6_E2M3},
    {"fp6_e3m2", QUARK_FP6_E3M2}, {"fp4", QUARK_FP4},           {"bfp16", QUARK_BFP16},
    {"float16", QUARK_FLOAT16},   {"bfloat16", QUARK_BFLOAT16}, {"mx", QUARK_MX},
    {"mx6", QUARK_MX6},           {"mx9", QUARK_MX9},           {"uint16", QUARK_UINT16},
    {"uint32", QUARK_UINT32},     {"uint2", QUARK_UINT2},       {0}};
static const struct word quark_qschemes[] = {
    {"per_tensor", QUARK_PER_TENSOR}, {"per_channel", QUARK_PER_CHANNEL}, {"per_group", QUARK_PER_GROUP}, {0}};
static const struct word zero_point_types[] = {{"int32", ZERO_POINT_INT32}, {"float32", ZERO_POINT_FLOAT32}, {0}};
static const struct word scale_types[] = {{"float", SCALE_TYPE_FLOAT},         {"float32", SCALE_TYPE_F32},
                                          {"float16", SCALE_TYPE_F16},         {"bfloat16", SCALE_TYPE_BF16},
                                          {"pof2", SCALE_TYPE_POF2},           {"float8_e5m3", SCALE_TYPE_E5M3},
                                          {"float8_e8m0fnu", SCALE_TYPE_E8M0}, {0}};
static const struct word scale_formats[] = {{"float32", SCALE_FORMAT_FLOAT32},
                                            {"e4m3", SCALE_FORMAT_E4M3},
                                            {"e5m3", SCALE_FORMAT_E5M3},
                                            {"e8m0", SCALE_FORMAT_E8M0},
                                            {0}};
static const struct word scale_modes[] = {
    {"even", SCALE_MODE_EVEN}, {"floor", SCALE_MODE_FLOOR}, {"ceil", SCALE_MODE_CEIL}, {0}};
