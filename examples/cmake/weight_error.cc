// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// Compares the quantization errors of two presets for the same 4-bit weight: minimum and maximum, and a range search.
#include <cmath>
#include <cstdio>
#include <memory>
#include <qobs/qobs.h>
#include <qobs/stateless.h>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

constexpr int64_t rows = 32, columns = 512;

struct Destroy {
    void operator()(qobs_config *config) const { qobs_config_destroy(config); }
    void operator()(qobs_observer *observer) const { qobs_observer_destroy(observer); }
};
using Config = std::unique_ptr<qobs_config, Destroy>;
using Observer = std::unique_ptr<qobs_observer, Destroy>;

// Calls a function of qobs and throws its message if it fails.
template <class Function, class... Arguments> void call(Function *function, Arguments... arguments)
{
    qobs_error error;
    if (function(arguments..., &error) != QOBS_OK)
        throw std::runtime_error(error.message);
}

Config make_config(const char *preset)
{
    qobs_config *config = nullptr;
    call(qobs_config_create, &config, preset, nullptr);
    Config owner(config);
    call(qobs_config_set, config, "num_bits", "4");
    call(qobs_config_set, config, "group_size", "128");
    return owner;
}

double squared_error(const char *preset, const std::vector<float> &weight)
{
    const int64_t shape[] = {rows, columns};
    const qobs_tensor tensor = {sizeof tensor, weight.data(), QOBS_F32, 2, shape, nullptr};
    const Config config = make_config(preset);
    qobs_observer *created = nullptr;
    call(qobs_observer_create, &created, config.get(), nullptr);
    const Observer observer(created);
    call(qobs_observer_observe, created, &tensor, nullptr);

    qobs_result result{};
    result.struct_size = sizeof result;
    call(qobs_observer_result_find, created, "scale", &result);
    std::vector<float> scale(result.size / sizeof(float)), quantized(weight.size());
    call(qobs_observer_read, created, "scale", scale.data(), result.size);

    const qobs_tensor scales = {sizeof scales, scale.data(), result.dtype, result.ndim, result.shape, nullptr};
    call(qobs_fake_quantize, config.get(), nullptr, &tensor, nullptr, &scales, nullptr, nullptr,
         quantized.data(), nullptr, nullptr);
    double sum = 0;
    for (size_t i = 0; i < weight.size(); i++)
        sum += std::pow(quantized[i] - weight[i], 2);
    return sum;
}

} // namespace

int main()
try {
    std::mt19937 source(1);
    std::normal_distribution<float> normal;
    std::vector<float> weight(rows * columns);
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
