// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

// qobs/qobs.hpp against the C interface: results, exceptions, moves, copies.
#include <cstdio>
#include <cstring>
#include <qobs/qobs.hpp>
#include <type_traits>

static int failures;

static void check(bool good, const char *what, int line)
{
    if (!good) {
        std::fprintf(stderr, "line %d: %s\n", line, what);
        failures++;
    }
}

#define CHECK(condition) check(condition, #condition, __LINE__)

// Calls a function that must throw, and returns what it throws.
template <class Function> static qobs::error thrown(Function function)
{
    try {
        function();
    } catch (const qobs::error &e) {
        return e;
    }
    return qobs::error(QOBS_OK, "nothing was thrown");
}

static bool contains(const qobs::error &e, const char *text) { return std::strstr(e.what(), text) != nullptr; }

template <class T> static bool same_bytes(const std::vector<T> &a, const void *b, std::size_t size)
{
    return a.size() * sizeof(T) == size && std::memcmp(a.data(), b, size) == 0;
}

static bool equal(const qobs::any_array &a, const qobs::any_array &b)
{
    return a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes;
}

static const char text[] = "llmc.memoryless_minmax num_bits=4 group_size=128 symmetric=false";

static std::vector<float> make_weight()
{
    std::vector<float> weight(8 * 256);
    for (std::size_t i = 0; i < weight.size(); i++)
        weight[i] = static_cast<float>(static_cast<int>(i * 7919 % 1009) - 400) / 64;
    return weight;
}

// The same by the C interface.
static void compare_with_c(const std::vector<float> &weight)
{
    const std::int64_t shape[] = {8, 256};
    qobs_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.data = weight.data();
    tensor.dtype = QOBS_F32;
    tensor.ndim = 2;
    tensor.shape = shape;
    float scale[16], global_scale = 0;
    std::int8_t zero_point[16];
    qobs_qparam_buffers out{};
    out.struct_size = sizeof out;
    out.scale = scale;
    out.scale_size = sizeof scale;
    out.zero_point = zero_point;
    out.zero_point_size = sizeof zero_point;
    out.global_scale = &global_scale;
    qobs_error e;
    CHECK(qobs_qparams_from_tensor(text, &tensor, &out, nullptr, &e) == QOBS_OK);

    const std::vector<std::int64_t> wanted = {8, 2};
    const qobs::qparams q = qobs::qparams_from_tensor(text, qobs::tensor(weight, {8, 256}));
    CHECK(q.scale.dtype == QOBS_F32 && q.scale.shape == wanted && q.zero_point.shape == wanted);
    CHECK(same_bytes(q.scale.bytes, scale, sizeof scale));
    CHECK(same_bytes(q.scale.as<float>(), scale, sizeof scale));
    CHECK(q.scale.as<double>()[3] == static_cast<double>(scale[3]));
    CHECK(q.zero_point.dtype == QOBS_I8 && same_bytes(q.zero_point.bytes, zero_point, sizeof zero_point));
    CHECK(q.zero_point.as<std::int32_t>()[5] == zero_point[5] && zero_point[5] != 0);
    CHECK(q.global_scale == global_scale && !q.has_global_scale);

    // An observer gives the same, also by steps, and the stateless functions do.
    const qobs::config config(text);
    const qobs::tensor t(weight.data(), {8, 256});
    qobs::observer observer(config);
    const qobs::array<float> read = observer.observe(t).read<float>("scale");
    CHECK(read.shape == wanted && same_bytes(read.values, scale, sizeof scale));
    CHECK(observer.read<std::int64_t>("zero_point").values[5] == zero_point[5]);
    CHECK(observer.read<double>("scale").values[3] == static_cast<double>(scale[3]));
    CHECK(equal(observer.qparams().scale, q.scale) && equal(observer.qparams().zero_point, q.zero_point));
    CHECK(equal(observer.read_any("zero_point"), q.zero_point));
    const qobs::ranges range = qobs::minmax(config, t);
    CHECK(equal(qobs::qparams_from_ranges(config, range).scale, q.scale));
    CHECK(equal(qobs::qparams_from_ranges(config, range).zero_point, q.zero_point));

    std::vector<float> quantized(weight.size());
    qobs_tensor scales = tensor, zero_points = tensor;
    const std::int64_t qparam_shape[] = {8, 2};
    scales.data = scale;
    zero_points.data = zero_point;
    zero_points.dtype = QOBS_I8;
    scales.shape = zero_points.shape = qparam_shape;
    qobs_fake_quantize_args args{};
    args.struct_size = sizeof args;
    args.config = config.handle();
    args.value = &tensor;
    args.scale = &scales;
    args.zero_point = &zero_points;
    args.out = quantized.data();
    args.out_size = quantized.size() * sizeof(float);
    CHECK(qobs_fake_quantize(&args, &e) == QOBS_OK);
    const qobs::any_array fake = qobs::fake_quantize(config, t, q);
    CHECK(fake.shape == t.shape() && same_bytes(fake.bytes, quantized.data(), args.out_size));
    CHECK(quantized != weight);

    // Codes: the numbers are (code - zero point) * scale.
    const qobs::qparams again = qobs::qparams_from_tensor(config, t);
    CHECK(equal(again.scale, q.scale) && equal(again.zero_point, q.zero_point));
    const qobs::any_array codes = qobs::quantize(config, t, q);
    CHECK(codes.dtype == QOBS_I8 && codes.shape == t.shape());
    const std::vector<std::int32_t> code = codes.as<std::int32_t>();
    for (std::size_t i = 0; i < code.size(); i++)
        CHECK(static_cast<float>(code[i] - zero_point[i / 128]) * scale[i / 128] == quantized[i]);
    const qobs::config e4m3("llmc.memoryless_minmax type=float");
    CHECK(qobs::quantize(e4m3, t, qobs::qparams_from_tensor(e4m3, t)).dtype == QOBS_F8_E4M3);
}

static void test_ranges(const std::vector<float> &weight)
{
    const qobs::tensor t(weight, {8, 256});
    const qobs::ranges all = qobs::minmax(t), rows = qobs::minmax(t, {0}), columns = qobs::minmax(t, {-1});
    CHECK(all.min.shape.empty() && rows.min.shape == std::vector<std::int64_t>{8});
    CHECK(columns.max.shape == std::vector<std::int64_t>{256});
    float least = weight[0], most_of_row_1 = weight[256];
    for (const float w : weight)
        least = w < least ? w : least;
    for (std::size_t i = 256; i < 512; i++)
        most_of_row_1 = weight[i] > most_of_row_1 ? weight[i] : most_of_row_1;
    CHECK(all.min.as<float>()[0] == least && rows.max.as<float>()[1] == most_of_row_1);
    CHECK(thrown([&] { qobs::minmax(t, {2}); }).status() == QOBS_ERROR_INVALID_ARGUMENT);

    const qobs::config mse("llmc.memoryless_mse num_bits=4 group_size=128 norm=2");
    const qobs::search_result found = qobs::search(mse, t);
    CHECK(found.errors.size() == 16 && found.best_step.size() == 16 && found.report.steps > 0);
    CHECK(found.report.error > 0 && found.report.error < found.report.error_before);
    CHECK(equal(found.range.max, qobs::observer(mse).observe(t).read_any("max_vals")));
    const std::vector<float> importance(255);
    CHECK(contains(thrown([&] { qobs::search(mse, t, importance); }), "importance"));

    const qobs::plan plan(mse, t);
    const std::vector<std::int64_t> flat = {1, 8, 2, 128};
    CHECK(plan.shape() == flat && plan.run_count() == 16 && plan.run(1).offset == 512 && plan.run(1).qparam == 1);
    CHECK(thrown([&] { plan.run(16); }).status() == QOBS_ERROR_INVALID_ARGUMENT);
}

// BF16, F16 and F8_E4M3 become numbers, and what an integer cannot hold is refused.
static void test_conversions()
{
    const auto array = [](qobs_dtype dtype, std::initializer_list<int> bytes) {
        qobs::any_array a;
        a.dtype = dtype;
        for (const int b : bytes)
            a.bytes.push_back(static_cast<std::byte>(b));
        a.shape = {static_cast<std::int64_t>(bytes.size() / qobs_dtype_size(dtype))};
        return a;
    };
    const std::uint16_t one = 1;
    const bool little = reinterpret_cast<const unsigned char *>(&one)[0] == 1;
    CHECK(array(QOBS_BF16, {little ? 0x00 : 0xc0, little ? 0xc0 : 0x00}).as<float>()[0] == -2);
    CHECK(array(QOBS_F16, {little ? 0x00 : 0x3e, little ? 0x3e : 0x00}).as<double>()[0] == 1.5);
    CHECK(array(QOBS_F8_E4M3, {0x7e}).as<std::int32_t>()[0] == 448);
    CHECK(array(QOBS_I8, {0x80}).as<std::int64_t>()[0] == -128);
    CHECK(thrown([&] { array(QOBS_F8_E4M3, {0x7f}).as<std::int32_t>(); }).status() == QOBS_ERROR_INVALID_ARGUMENT);
    CHECK(contains(thrown([&] { array(QOBS_F8_E4M3, {0x7e}).as<std::int8_t>(); }), "no integer of 8 bits"));
    CHECK(contains(thrown([&] { array(QOBS_F16, {little ? 0x00 : 0x3e, little ? 0x3e : 0x00}).as<std::int64_t>(); }),
                   "1.5"));
    qobs::any_array unknown;
    unknown.dtype = static_cast<qobs_dtype>(15); // the largest number that the enumeration can hold
    CHECK(contains(thrown([&] { unknown.as<float>(); }), "dtype: is 15"));
}

static void test_settings()
{
    qobs::config config("torch.HistogramObserver");
    config.set("bins", 512).set("dtype", "quint8").set_all("reduce_range=true; base_name=input");
    CHECK(config.preset() == "torch.HistogramObserver" && config.get("bins") == "512");
    CHECK(config.get("reduce_range") == "true" && config.set("reduce_range", false).get("reduce_range") == "false");
    CHECK(config.info("bins").kind == QOBS_SETTING_INTEGER && config.keys().size() > 4);
    CHECK(qobs::config(config.text()).get("bins") == "512");
    config.check();
    const qobs::error e = thrown([&] { config.set("bins", -1); });
    CHECK(e.status() == QOBS_ERROR_INVALID_ARGUMENT && contains(e, "bins") && contains(e, "-1"));
    CHECK(thrown([&] { config.set("bins", UINT64_MAX); }).status() == QOBS_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([&] { config.set_all("bins=128 no_such=1"); }).status() == QOBS_ERROR_INVALID_ARGUMENT);
    CHECK(config.get("bins") == "512");
    CHECK(contains(thrown([] { qobs::config c("no.such"); }), "no.such"));

    qobs::config copy = config.clone(), moved = std::move(config);
    copy.set("bins", 64);
    CHECK(moved.get("bins") == "512" && copy.get("bins") == "64");
    CHECK(config.handle() == nullptr && config.preset().empty() && config.keys().empty());
    CHECK(thrown([&] { config.get("bins"); }).status() == QOBS_ERROR_INVALID_ARGUMENT);
    config = std::move(copy);
    CHECK(config.get("bins") == "64");
}

static void test_observers(const std::vector<float> &weight)
{
    const qobs::tensor t(weight, {8, 256});
    qobs::observer observer("torch.MinMaxObserver dtype=quint8");
    CHECK(thrown([] { qobs::observer("llmc.minmax").qparams(); }).status() == QOBS_ERROR_NO_DATA);
    observer.observe(t).observe(t);
    CHECK(observer.counts().batches == 2 && observer.counts().elements == 2 * 8 * 256);
    CHECK(observer.configuration().get("dtype") == "quint8" && !observer.results().empty());
    CHECK(thrown([&] { observer.read<float>("no_such"); }).status() == QOBS_ERROR_INVALID_ARGUMENT);

    const std::vector<float> bad = {1, std::numeric_limits<float>::quiet_NaN()};
    const qobs::error e = thrown([&] { observer.observe(qobs::tensor(bad, {2})); });
    CHECK(e.status() == QOBS_ERROR_NONFINITE && contains(e, "NaN"));

    // A copy goes its own way; a saved state comes back; moves leave NULL.
    const std::vector<float> large(4, 1000);
    qobs::observer copy = observer.clone();
    copy.observe(qobs::tensor(large, {4}));
    CHECK(observer.read<float>("max_val").values[0] < 1000 && copy.read<float>("max_val").values[0] == 1000);
    CHECK(equal(qobs::observer::load(copy.save()).qparams().scale, copy.qparams().scale));
    observer.merge(copy);
    CHECK(observer.read<float>("max_val").values[0] == 1000);
    qobs::observer moved = std::move(observer);
    CHECK(observer.handle() == nullptr && observer.results().empty() && moved.counts().batches > 2);
    CHECK(thrown([&] { observer.observe(t); }).status() == QOBS_ERROR_INVALID_ARGUMENT);
    observer.reset();
    moved.reset();
    CHECK(moved.counts().batches == 0);
    const std::vector<std::byte> cut(10);
    CHECK(thrown([&] { qobs::observer::load(cut); }).status() == QOBS_ERROR_INVALID_ARGUMENT);

    const qobs::config config("llmc.memoryless_minmax num_bits=4 strategy=channel");
    std::size_t size = 0;
    const qobs_tensor view = t.view();
    CHECK(qobs_observer_size(config.handle(), &view, &size, nullptr) == QOBS_OK);
    std::vector<std::byte> memory(size);
    CHECK(qobs::observer(memory.data(), size, config).observe(t).read<float>("scale").values.size() == 8);
}

static void test_tensors(const std::vector<float> &weight)
{
    CHECK(contains(thrown([&] { qobs::tensor t(weight, {8, 255}); }), "2040"));
    CHECK(contains(thrown([&] { qobs::tensor t(weight.data(), QOBS_F32, {8, 256}, {4}); }), "strides"));
    CHECK(qobs::tensor(weight.data(), QOBS_F32, {8, -1}).elements() == 0);
    const qobs::tensor transposed(weight.data(), QOBS_F32, {256, 8}, {4, 1024});
    const qobs::tensor copy = transposed; // has a shape of its own
    CHECK(copy.view().shape != transposed.view().shape && copy.view().data == weight.data());
    CHECK(equal(qobs::minmax(copy, {1}).max, qobs::minmax(qobs::tensor(weight, {8, 256}), {0}).max));
    const std::vector<float> none;
    CHECK(qobs::observer("torch.MinMaxObserver").observe(qobs::tensor(none, {0})).counts().elements == 0);
}

// The formats of NVIDIA have a scale of scales.
static void test_quantizer(const std::vector<float> &weight)
{
    const std::string text = "llmc.memoryless_minmax num_bits=4 group_size=128 symmetric=false";
    const qobs::qparams q = qobs::qparams_from_tensor(text, qobs::tensor(weight, {8, 256}));
    const qobs::quantizer dynamic(text, QOBS_F32, 256);
    const qobs::quantized got = dynamic(weight.data(), 8);
    CHECK(got.codes.dtype == QOBS_I8 && got.codes.shape == (std::vector<std::int64_t>{8, 256}));
    CHECK(equal(got.scales.scale, q.scale) && equal(got.scales.zero_point, q.zero_point));

    qobs_quantizer_args args{};
    args.dtype = QOBS_F32;
    args.columns = 256;
    args.dequantized = 1;
    qobs::quantizer fake(qobs::config(text), args);
    const qobs::quantizer moved = std::move(fake);
    std::vector<float> numbers(weight.size());
    qobs::any_array scale = q.scale, zero_point = q.zero_point;
    qobs_quantizer_run_args run{};
    run.rows = 8;
    run.value = weight.data();
    run.codes = numbers.data();
    run.codes_size = numbers.size() * sizeof(float);
    run.scale = scale.bytes.data();
    run.scale_size = scale.bytes.size();
    run.zero_point = zero_point.bytes.data();
    run.zero_point_size = zero_point.bytes.size();
    moved.run(run);
    const qobs::any_array expected = qobs::fake_quantize(qobs::config(text), qobs::tensor(weight, {8, 256}), q);
    CHECK(same_bytes(expected.bytes, numbers.data(), run.codes_size));
    bool refused = false;
    try {
        dynamic.layout(-1);
    } catch (const qobs::error &e) {
        refused = e.status() == QOBS_ERROR_INVALID_ARGUMENT;
    }
    CHECK(refused);
}

static void test_global_scale(const std::vector<float> &weight)
{
    const char *nvfp4 = "llmc.memoryless_minmax type=float num_bits=4 strategy=tensor_group group_size=16";
    const qobs::tensor t(weight, {8, 256});
    const qobs::qparams q = qobs::qparams_from_tensor(nvfp4, t), r = qobs::observer(nvfp4).observe(t).qparams();
    CHECK(q.has_global_scale && q.global_scale != 1 && r.has_global_scale && r.global_scale == q.global_scale);
    CHECK(equal(q.scale, r.scale) && q.scale.as<float>().size() == 8 * 16);
    const qobs::any_array fake = qobs::fake_quantize(qobs::config(nvfp4), t, q);
    float worst = 0;
    const std::vector<float> numbers = fake.as<float>();
    for (std::size_t i = 0; i < weight.size(); i++)
        worst = std::fmax(worst, std::fabs(numbers[i] - weight[i]));
    CHECK(worst > 0 && worst < 2); // the largest gap of e2m1 is 2 / 6 of the amax, at most 9.5
}

static_assert(!std::is_copy_constructible_v<qobs::config> && !std::is_copy_constructible_v<qobs::observer> &&
              !std::is_copy_constructible_v<qobs::plan> && !std::is_copy_assignable_v<qobs::observer>);
static_assert(std::is_nothrow_move_constructible_v<qobs::config> && std::is_nothrow_move_assignable_v<qobs::observer> &&
              std::is_nothrow_move_constructible_v<qobs::plan>);
static_assert(!std::is_constructible_v<qobs::tensor, std::vector<float>, std::vector<std::int64_t>>);

int main()
{
    const std::vector<float> weight = make_weight();
    compare_with_c(weight);
    test_ranges(weight);
    test_conversions();
    test_settings();
    test_observers(weight);
    test_tensors(weight);
    test_global_scale(weight);
    test_quantizer(weight);
    return failures > 0;
}
