// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// Compares the quantization errors of two presets for the same 4-bit weight: minimum and maximum, and a range search.
#include <cmath>
#include <cstdio>
#include <exception>
#include <qobs/qobs.hpp>
#include <random>
#include <string>
#include <vector>

static double squared_error(const std::string &preset, const std::vector<float> &weight)
{
    const qobs::config config(preset + " num_bits=4 group_size=128");
    const qobs::tensor tensor(weight, {32, 512});
    const qobs::qparams qparams = qobs::observer(config).observe(tensor).qparams();
    const std::vector<float> quantized = qobs::fake_quantize(config, tensor, qparams).as<float>();
    double sum = 0;
    for (size_t i = 0; i < weight.size(); i++)
        sum += std::pow(quantized[i] - weight[i], 2);
    return sum;
}

int main()
try {
    std::mt19937 source(1);
    std::normal_distribution<float> normal;
    std::vector<float> weight(32 * 512);
    for (float &w : weight)
        w = normal(source);
    const double minmax = squared_error("llmc.memoryless_minmax", weight);
    const double mse = squared_error("llmc.memoryless_mse", weight);
    std::printf("squared error: %g by minimum and maximum, %g searched\n", minmax, mse);
    return mse < minmax && mse > 0 ? 0 : 1;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
