// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The qobs authors

/** @file
 * The C interface for C++17: objects destroy themselves, failures are exceptions, results are vectors. Everything is
 * inline, so a program links the C library alone. The C function that a function calls has its documentation;
 * every object returns its C object by handle().
 * @since 0.2.0 */
#ifndef QOBS_QOBS_HPP
#define QOBS_QOBS_HPP

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <locale>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "format.h"
#include "plan.h"
#include "qobs.h"
#include "quantizer.h"
#include "stateless.h"

/** The C interface for C++17. Functions throw qobs::error, and std::bad_alloc if a vector or text gets no memory. */
namespace qobs
{

/** A failure. what() is the message of the C function. */
class error : public std::runtime_error
{
  public:
    /** A failure with a qobs_status and a message. */
    error(int status, const char *message) : std::runtime_error(message), status_(status) {}
    /** Returns the qobs_status, for example QOBS_ERROR_NO_DATA. */
    int status() const noexcept { return status_; }

  private:
    int status_;
};

/** @cond internal */
namespace detail
{

// Calls a C function whose last parameter is the error.
template <class Function, class... Arguments> void call(Function function, Arguments... arguments)
{
    qobs_error e;
    const int status = function(arguments..., &e);
    if (status != QOBS_OK)
        throw error(status, e.message);
}

// A structure of zeros that knows its size.
template <class Structure> Structure sized()
{
    Structure s{};
    s.struct_size = sizeof s;
    return s;
}

struct destroy {
    void operator()(qobs_config *c) const noexcept { qobs_config_destroy(c); }
    void operator()(qobs_observer *o) const noexcept { qobs_observer_destroy(o); }
    void operator()(qobs_plan *p) const noexcept { qobs_plan_destroy(p); }
    void operator()(qobs_quantizer *q) const noexcept { qobs_quantizer_destroy(q); }
};

template <class T> constexpr qobs_dtype dtype_of()
{
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int8_t> ||
                      std::is_same_v<T, std::int16_t> || std::is_same_v<T, std::int32_t> ||
                      std::is_same_v<T, std::int64_t>,
                  "use float, double, int8_t, int16_t, int32_t or int64_t, or name the dtype");
    if constexpr (std::is_same_v<T, float>)
        return QOBS_F32;
    else if constexpr (std::is_same_v<T, double>)
        return QOBS_F64;
    else if constexpr (std::is_same_v<T, std::int8_t>)
        return QOBS_I8;
    else if constexpr (std::is_same_v<T, std::int16_t>)
        return QOBS_I16;
    else if constexpr (std::is_same_v<T, std::int32_t>)
        return QOBS_I32;
    else
        return QOBS_I64;
}

// Converts a number; throws if an integer cannot hold it.
template <class To, class From> To convert(From x)
{
    if constexpr (std::is_floating_point_v<To>) {
        return static_cast<To>(x);
    } else {
        [[maybe_unused]] constexpr double limit = 9223372036854775808.0; // 2^63
        bool good = true;
        if constexpr (std::is_floating_point_v<From>)
            good = std::trunc(x) == x && static_cast<double>(x) >= -limit && static_cast<double>(x) < limit;
        else if constexpr (std::is_unsigned_v<From>)
            good = static_cast<std::uint64_t>(x) <= static_cast<std::uint64_t>(INT64_MAX);
        const std::int64_t wide = good ? static_cast<std::int64_t>(x) : 0;
        if (!good || wide < static_cast<std::int64_t>(std::numeric_limits<To>::min()) ||
            wide > static_cast<std::int64_t>(std::numeric_limits<To>::max()))
            throw error(QOBS_ERROR_INVALID_ARGUMENT,
                        (std::to_string(x) + " is no integer of " + std::to_string(8 * sizeof(To)) + " bits").c_str());
        return static_cast<To>(wide);
    }
}

// Copies numbers of type From, which may stand at any address, and passes each through `function`.
template <class To, class From, class Function>
std::vector<To> numbers(const std::vector<std::byte> &bytes, Function function)
{
    std::vector<To> out(bytes.size() / sizeof(From));
    for (std::size_t i = 0; i < out.size(); i++) {
        From x;
        std::memcpy(&x, bytes.data() + i * sizeof x, sizeof x);
        out[i] = convert<To>(function(x));
    }
    return out;
}

template <class To, class From> std::vector<To> numbers(const std::vector<std::byte> &bytes)
{
    return numbers<To, From>(bytes, [](From x) { return x; });
}

// The same for codes of a number format.
template <class To, class Code> std::vector<To> decoded(const std::vector<std::byte> &bytes, const char *name)
{
    const qobs_format *format = qobs_format_find(name);
    return numbers<To, Code>(bytes, [format](Code code) { return qobs_format_decode(format, code); });
}

} // namespace detail
/** @endcond */

/** A view of memory that the caller owns, with a shape of its own. Copies view the same memory. */
class tensor
{
  public:
    /** Views numbers in C order without gaps. */
    template <class T>
    tensor(const T *data, std::vector<std::int64_t> shape) : tensor(data, detail::dtype_of<T>(), std::move(shape))
    {
    }

    /** Views numbers of any dtype. strides: bytes, one for each dimension; none: C order without gaps. */
    tensor(const void *data, qobs_dtype dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {})
        : data_(data), dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides))
    {
        if (!strides_.empty() && strides_.size() != shape_.size())
            throw error(QOBS_ERROR_INVALID_ARGUMENT, ("strides: has " + std::to_string(strides_.size()) +
                                                      " entries, expected " + std::to_string(shape_.size()))
                                                         .c_str());
    }

    /** Views a vector, which must have as many elements as the shape. */
    template <class T>
    tensor(const std::vector<T> &values, std::vector<std::int64_t> shape) : tensor(values.data(), std::move(shape))
    {
        if (values.size() != static_cast<std::size_t>(elements()))
            throw error(QOBS_ERROR_INVALID_ARGUMENT, ("values: has " + std::to_string(values.size()) +
                                                      " elements, the shape " + std::to_string(elements()))
                                                         .c_str());
    }

    /** A view of a vector that is about to end is refused. */
    template <class T> tensor(const std::vector<T> &&values, std::vector<std::int64_t> shape) = delete;

    /** Returns the C structure, which points into this object. */
    qobs_tensor view() const noexcept
    {
        qobs_tensor t = detail::sized<qobs_tensor>();
        t.data = data_;
        t.dtype = dtype_;
        t.ndim = static_cast<int>(shape_.size());
        t.shape = shape_.data();
        t.strides = strides_.empty() ? nullptr : strides_.data();
        return t;
    }

    /** Returns the dtype. */
    qobs_dtype dtype() const noexcept { return dtype_; }
    /** Returns the shape. */
    const std::vector<std::int64_t> &shape() const noexcept { return shape_; }

    /** Returns the number of elements; 0 if a size is negative or the product exceeds 2^48. */
    std::int64_t elements() const noexcept
    {
        std::int64_t n = 1;
        for (const std::int64_t size : shape_)
            n = size < 0 || (size > 0 && n > (INT64_C(1) << 48) / size) ? 0 : n * size;
        return n;
    }

  private:
    const void *data_;
    qobs_dtype dtype_;
    std::vector<std::int64_t> shape_, strides_;
};

/** Numbers with a shape, in C order. */
template <class T> struct array {
    std::vector<std::int64_t> shape; /**< number of elements in each dimension */
    std::vector<T> values;           /**< elements */
};

/** Numbers of a dtype that is known at run time, in C order. */
struct any_array {
    qobs_dtype dtype = QOBS_F32;     /**< dtype of the elements */
    std::vector<std::int64_t> shape; /**< number of elements in each dimension */
    std::vector<std::byte> bytes;    /**< elements, aligned for the dtype */

    /** Returns the elements as T: float, double, or int8_t to int64_t. F64 to float rounds to nearest. Throws if T is
     * an integer and an element is none or beyond its limits. */
    template <class T> std::vector<T> as() const
    {
        static_assert(detail::dtype_of<T>() > 0);
        switch (dtype) {
        case QOBS_F32:
            return detail::numbers<T, float>(bytes);
        case QOBS_BF16:
            return detail::decoded<T, std::uint16_t>(bytes, "bf16");
        case QOBS_F16:
            return detail::decoded<T, std::uint16_t>(bytes, "f16");
        case QOBS_F64:
            return detail::numbers<T, double>(bytes);
        case QOBS_I8:
            return detail::numbers<T, std::int8_t>(bytes);
        case QOBS_I16:
            return detail::numbers<T, std::int16_t>(bytes);
        case QOBS_I32:
            return detail::numbers<T, std::int32_t>(bytes);
        case QOBS_I64:
            return detail::numbers<T, std::int64_t>(bytes);
        case QOBS_F8_E4M3:
            return detail::decoded<T, std::uint8_t>(bytes, "fp8_e4m3");
        case QOBS_U8:
            return detail::numbers<T, std::uint8_t>(bytes);
        }
        throw error(QOBS_ERROR_INVALID_ARGUMENT, ("dtype: is " + std::to_string(dtype)).c_str());
    }

    /** Views the elements. The view is valid as long as `bytes` is not changed. */
    tensor view() const & { return tensor(bytes.data(), dtype, shape); }
    /** A view of an array that is about to end is refused. */
    tensor view() const && = delete;
};

/** Scale and zero point of a tensor. */
struct qparams {
    any_array scale;               /**< scales */
    any_array zero_point;          /**< zero points, with the shape of the scales; empty if the preset has none */
    float global_scale = 1;        /**< divides every scale; 1 if the preset has none */
    bool has_global_scale = false; /**< the scales are divided by global_scale */
};

/** The range of each qparam. */
struct ranges {
    any_array min; /**< minima, in the dtype of the tensor */
    any_array max; /**< maxima, in the dtype of the tensor */
};

/** @cond internal */
namespace detail
{

inline std::vector<std::int64_t> shape_of(const std::int64_t *shape, int ndim)
{
    return std::vector<std::int64_t>(shape, shape + ndim);
}

inline any_array make_array(qobs_dtype dtype, std::vector<std::int64_t> shape)
{
    std::size_t size = qobs_dtype_size(dtype);
    for (const std::int64_t extent : shape)
        size *= static_cast<std::size_t>(extent);
    return any_array{dtype, std::move(shape), std::vector<std::byte>(size)};
}

// Memory for qparams, and the structure that points to it.
inline qparams make_qparams(const qobs_qparam_layout &layout)
{
    const std::vector<std::int64_t> shape = shape_of(layout.shape, layout.ndim);
    qparams q;
    q.scale = any_array{layout.scale_dtype, shape, std::vector<std::byte>(layout.scale_size)};
    q.zero_point = any_array{layout.zero_point_dtype, shape, std::vector<std::byte>(layout.zero_point_size)};
    q.has_global_scale = layout.has_global_scale;
    return q;
}

inline qobs_qparam_buffers buffers(qparams &q)
{
    auto out = sized<qobs_qparam_buffers>();
    out.scale = q.scale.bytes.empty() ? nullptr : q.scale.bytes.data();
    out.scale_size = q.scale.bytes.size();
    out.zero_point = q.zero_point.bytes.empty() ? nullptr : q.zero_point.bytes.data();
    out.zero_point_size = q.zero_point.bytes.size();
    out.global_scale = &q.global_scale;
    return out;
}

// The C structure of a tensor that may be absent.
class optional_view
{
  public:
    explicit optional_view(const tensor *t) : present_(t != nullptr), view_(t ? t->view() : qobs_tensor{}) {}
    const qobs_tensor *get() const noexcept { return present_ ? &view_ : nullptr; }

  private:
    bool present_;
    qobs_tensor view_;
};

} // namespace detail
/** @endcond */

/** A configuration: a preset and its settings. It can be moved; clone() copies it. */
class config
{
  public:
    /** Reads "PRESET key=value ...", as qobs_config_parse does: "llmc.memoryless_minmax num_bits=4 group_size=128". */
    explicit config(const std::string &text, const qobs_runtime *runtime = nullptr)
    {
        qobs_config *c = nullptr;
        detail::call(qobs_config_parse, &c, text.c_str(), runtime);
        c_.reset(c);
    }

    /** Takes over a C object, which must not be NULL. */
    explicit config(qobs_config *owned) noexcept : c_(owned) {}

    /** Returns a copy. */
    config clone(const qobs_runtime *runtime = nullptr) const { return clone_of(handle(), runtime); }

    /** Returns a copy of a C object. */
    static config clone_of(const qobs_config *c, const qobs_runtime *runtime = nullptr)
    {
        qobs_config *copy = nullptr;
        std::size_t size = 0;
        detail::call(qobs_config_text, c, nullptr, std::size_t{0}, &size);
        std::string text(size, '\0');
        detail::call(qobs_config_text, c, text.data(), size, nullptr);
        detail::call(qobs_config_parse, &copy, text.c_str(), runtime);
        return config(copy);
    }

    /** Sets `key` to a word, a list or a number as text, as qobs_config_set does. */
    config &set(const std::string &key, const std::string &value)
    {
        detail::call(qobs_config_set, handle(), key.c_str(), value.c_str());
        return *this;
    }

    /** Sets `key` to a bool, an integer or a real number. */
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> config &set(const std::string &key, T value)
    {
        if constexpr (std::is_same_v<T, bool>)
            return set(key, std::string(value ? "true" : "false"));
        std::ostringstream text;
        text.imbue(std::locale::classic());
        text.precision(std::numeric_limits<double>::max_digits10);
        text << +value; /* a character is a number, too */
        return set(key, text.str());
    }

    /** Sets all settings of "key=value key=value ...", or none if one of them fails. */
    config &set_all(const std::string &settings)
    {
        detail::call(qobs_config_set_all, handle(), settings.c_str());
        return *this;
    }

    /** Returns the value of `key` as text; "null" if it has none. */
    std::string get(const std::string &key) const
    {
        char value[QOBS_SETTING_VALUE];
        detail::call(qobs_config_get, handle(), key.c_str(), value, sizeof value);
        return value;
    }

    /** Returns the preset and the settings that differ from its defaults, as the constructor reads them. */
    std::string text() const
    {
        std::size_t needed = 0;
        detail::call(qobs_config_text, handle(), nullptr, std::size_t(0), &needed);
        std::vector<char> text(needed);
        detail::call(qobs_config_text, handle(), text.data(), text.size(), nullptr);
        return text.data();
    }

    /** Returns the name of the preset. */
    std::string preset() const
    {
        const char *name = qobs_config_preset(handle());
        return name ? name : "";
    }

    /** Returns the names of all settings of the preset. */
    std::vector<std::string> keys() const
    {
        std::vector<std::string> names;
        for (std::size_t i = 0; i < qobs_config_key_count(handle()); i++)
            names.emplace_back(qobs_config_key(handle(), i));
        return names;
    }

    /** Describes the setting `key`. */
    qobs_setting_info info(const std::string &key) const
    {
        auto i = detail::sized<qobs_setting_info>();
        detail::call(qobs_config_key_info, handle(), key.c_str(), &i);
        return i;
    }

    /** Checks all settings together. */
    void check() const { detail::call(qobs_config_check, handle()); }

    /** Describes the qparams of tensors with the shape and dtype of `value`, whose data is not read. */
    qobs_qparam_layout layout(const tensor &value, const tensor *g_idx = nullptr) const
    {
        const qobs_tensor v = value.view();
        const detail::optional_view g(g_idx);
        auto l = detail::sized<qobs_qparam_layout>();
        detail::call(qobs_config_qparam_layout, handle(), &v, g.get(), &l);
        return l;
    }

    /** Returns the C object, which stays this object's; NULL if this object has been moved from. */
    qobs_config *handle() noexcept { return c_.get(); }
    /** Returns the C object, which stays this object's; NULL if this object has been moved from. */
    const qobs_config *handle() const noexcept { return c_.get(); }

  private:
    std::unique_ptr<qobs_config, detail::destroy> c_;
};

/** An observer. It can be moved; clone() copies it. Runtimes and memory that it was given must outlive it. */
class observer
{
  public:
    /** Creates an observer from the text of a configuration, as qobs_observer_open does. */
    explicit observer(const std::string &text, const qobs_runtime *runtime = nullptr)
    {
        qobs_observer *o = nullptr;
        detail::call(qobs_observer_open, &o, text.c_str(), runtime);
        o_.reset(o);
    }

    /** Creates an observer for a configuration, which is copied. */
    explicit observer(const config &c, const qobs_runtime *runtime = nullptr)
    {
        qobs_observer *o = nullptr;
        detail::call(qobs_observer_create, &o, c.handle(), runtime);
        o_.reset(o);
    }

    /** Creates an observer in memory of the caller, as qobs_observer_create_in does. */
    observer(void *memory, std::size_t size, const config &c, const qobs_runtime *runtime = nullptr)
    {
        qobs_observer *o = nullptr;
        detail::call(qobs_observer_create_in, &o, memory, size, c.handle(), runtime);
        o_.reset(o);
    }

    /** Takes over a C object, which must not be NULL. */
    explicit observer(qobs_observer *owned) noexcept : o_(owned) {}

    /** Creates an observer from the bytes of save(). */
    static observer load(const void *bytes, std::size_t size, const qobs_runtime *runtime = nullptr)
    {
        qobs_observer *o = nullptr;
        detail::call(qobs_observer_load, &o, bytes, size, runtime);
        return observer(o);
    }

    /** Creates an observer from the bytes of save(). */
    static observer load(const std::vector<std::byte> &bytes, const qobs_runtime *runtime = nullptr)
    {
        return load(bytes.data(), bytes.size(), runtime);
    }

    /** Returns a copy with all state. */
    observer clone(const qobs_runtime *runtime = nullptr) const
    {
        qobs_observer *copy = nullptr;
        detail::call(qobs_observer_clone, &copy, handle(), runtime);
        return observer(copy);
    }

    /** Returns a copy of the configuration. */
    config configuration() const { return config::clone_of(qobs_observer_config(handle())); }

    /** Observes one batch. */
    observer &observe(const tensor &value, const tensor *g_idx = nullptr)
    {
        const qobs_tensor v = value.view();
        const detail::optional_view g(g_idx);
        detail::call(qobs_observer_observe, handle(), &v, g.get());
        return *this;
    }

    /** Counts the tokens of `value` without observing it. */
    void record_tokens(const tensor &value) { pass(qobs_observer_record_tokens, value); }
    /** Observes activations that weight the columns of a weight tensor. */
    void observe_importance(const tensor &activations) { pass(qobs_observer_observe_importance, activations); }
    /** Sets the reference amax before the first batch. */
    void set_reference_amax(const tensor &amax) { pass(qobs_observer_set_reference_amax, amax); }
    /** Sets weights of the squared error before the first batch. */
    void set_error_weights(const tensor &weights) { pass(qobs_observer_set_error_weights, weights); }
    /** Sets the Hessian of the squared error before the first batch. */
    void set_hessian(const tensor &hessian) { pass(qobs_observer_set_hessian, hessian); }
    /** Sets the magnitude that gives the global scale. */
    void set_global_amax(double amax) { detail::call(qobs_observer_set_global_amax, handle(), amax); }

    /** Adds the state of another observer. */
    observer &merge(const observer &other)
    {
        const qobs_observer *o = other.handle();
        detail::call(qobs_observer_merge, handle(), &o, std::size_t(1));
        return *this;
    }

    /** Removes everything observed. */
    void reset() noexcept
    {
        if (o_)
            qobs_observer_reset(handle());
    }

    /** Removes the batches observed; importance, a Hessian and what else weighs errors stay. */
    void reset_batches() noexcept
    {
        if (o_)
            qobs_observer_reset_batches(handle());
    }

    /** Returns the counts of all batches. */
    qobs_counts counts() const
    {
        auto c = detail::sized<qobs_counts>();
        detail::call(qobs_observer_counts, handle(), &c);
        return c;
    }

    /** Returns the report of the last range search. */
    qobs_search_report search_report() const
    {
        auto r = detail::sized<qobs_search_report>();
        detail::call(qobs_observer_search_report, handle(), &r);
        return r;
    }

    /** Describes the results that exist now. */
    std::vector<qobs_result> results() const
    {
        std::vector<qobs_result> all(o_ ? qobs_observer_result_count(handle()) : 0);
        for (std::size_t i = 0; i < all.size(); i++) {
            all[i] = detail::sized<qobs_result>();
            detail::call(qobs_observer_result_info, handle(), i, &all[i]);
        }
        return all;
    }

    /** Returns result `name` as T: float, double, int32_t or int64_t, as qobs_observer_read_as does. */
    template <class T> array<T> read(const std::string &name) const
    {
        static_assert(sizeof(T) >= 4, "qobs_observer_read_as has float, double, int32_t and int64_t");
        const qobs_result r = find(name);
        array<T> a{detail::shape_of(r.shape, r.ndim), std::vector<T>(r.size / qobs_dtype_size(r.dtype))};
        T none{};
        detail::call(qobs_observer_read_as, handle(), name.c_str(), detail::dtype_of<T>(),
                     static_cast<void *>(a.values.empty() ? &none : a.values.data()), a.values.size() * sizeof(T));
        return a;
    }

    /** Returns result `name` in its own dtype. */
    any_array read_any(const std::string &name) const
    {
        const qobs_result r = find(name);
        any_array a{r.dtype, detail::shape_of(r.shape, r.ndim), std::vector<std::byte>(r.size)};
        std::byte none{};
        detail::call(qobs_observer_read, handle(), name.c_str(),
                     static_cast<void *>(a.bytes.empty() ? &none : a.bytes.data()), a.bytes.size());
        return a;
    }

    /** Returns scale, zero point and global scale. */
    qobs::qparams qparams() const
    {
        qobs::qparams q;
        q.scale = read_any("scale");
        for (const qobs_result &r : results()) {
            if (std::strcmp(r.name, "zero_point") == 0)
                q.zero_point = read_any(r.name);
            if (std::strcmp(r.name, "global_scale") == 0) {
                q.global_scale = read<float>(r.name).values.at(0);
                q.has_global_scale = true;
            }
        }
        return q;
    }

    /** Returns settings and state as bytes that load() reads. */
    std::vector<std::byte> save() const
    {
        std::vector<std::byte> bytes(o_ ? qobs_observer_save_size(handle()) : 0);
        detail::call(qobs_observer_save, handle(), static_cast<void *>(bytes.data()), bytes.size());
        return bytes;
    }

    /** Returns the C object, which stays this object's; NULL if this object has been moved from. */
    qobs_observer *handle() noexcept { return o_.get(); }
    /** Returns the C object, which stays this object's; NULL if this object has been moved from. */
    const qobs_observer *handle() const noexcept { return o_.get(); }

  private:
    qobs_result find(const std::string &name) const
    {
        auto r = detail::sized<qobs_result>();
        detail::call(qobs_observer_result_find, handle(), name.c_str(), &r);
        return r;
    }

    template <class Function> void pass(Function function, const tensor &value)
    {
        const qobs_tensor v = value.view();
        detail::call(function, handle(), &v);
    }

    std::unique_ptr<qobs_observer, detail::destroy> o_;
};

/** The elements that share a scale. It can be moved. */
class plan
{
  public:
    /** Creates the plan for tensors with the shape and strides of `value`, whose data is not read. */
    plan(const config &c, const tensor &value, const tensor *g_idx = nullptr, const qobs_runtime *runtime = nullptr)
    {
        const qobs_tensor v = value.view();
        const detail::optional_view g(g_idx);
        qobs_plan *p = nullptr;
        detail::call(qobs_plan_create, &p, c.handle(), &v, g.get(), runtime);
        p_.reset(p);
    }

    /** Returns the flattened shape: (number of observations, shape of scale, group size). */
    std::vector<std::int64_t> shape() const
    {
        std::int64_t extents[QOBS_PLAN_MAX_NDIM];
        return detail::shape_of(extents, qobs_plan_shape(handle(), extents, sizeof extents));
    }

    /** Returns the number of runs. */
    std::int64_t run_count() const noexcept { return p_ ? qobs_plan_run_count(handle()) : 0; }

    /** Describes run `index`, in the order of the flattened value. */
    qobs_run run(std::int64_t index) const
    {
        qobs_run r;
        detail::call(qobs_plan_run, handle(), index, &r);
        return r;
    }

    /** Returns the C object, which stays this object's; NULL if this object has been moved from. */
    const qobs_plan *handle() const noexcept { return p_.get(); }

  private:
    std::unique_ptr<qobs_plan, detail::destroy> p_;
};

/** Computes the qparams of one tensor. */
inline qparams qparams_from_tensor(const config &c, const tensor &value, const tensor *g_idx = nullptr,
                                   const qobs_runtime *runtime = nullptr)
{
    const qobs_tensor v = value.view();
    const detail::optional_view g(g_idx);
    qparams q = detail::make_qparams(c.layout(value, g_idx));
    const qobs_qparam_buffers out = detail::buffers(q);
    detail::call(qobs_config_qparams_from_tensor, c.handle(), &v, g.get(), &out, runtime);
    return q;
}

/** The same with a configuration as text: "llmc.memoryless_minmax num_bits=4 group_size=128". */
inline qparams qparams_from_tensor(const std::string &text, const tensor &value, const qobs_runtime *runtime = nullptr)
{
    return qparams_from_tensor(config(text), value, nullptr, runtime);
}

/** @cond internal */
namespace detail
{

// Arrays for the ranges of a configuration. The flattened shape without its ends is that of the scales.
inline ranges make_ranges(const config &c, const tensor &value, const qobs_runtime *runtime)
{
    const std::vector<std::int64_t> flat = plan(c, value, nullptr, runtime).shape();
    const any_array one = make_array(value.dtype(), std::vector<std::int64_t>(flat.begin() + 1, flat.end() - 1));
    return ranges{one, one};
}

// A pointer that the C functions accept for an array without elements, too.
inline void *pointer(any_array &a)
{
    static std::byte none[8];
    return a.bytes.empty() ? none : a.bytes.data();
}

inline void minmax(qobs_minmax_args &args, ranges &out, const tensor &value, const qobs_runtime *runtime)
{
    const qobs_tensor v = value.view();
    args.value = &v;
    args.min = pointer(out.min);
    args.max = pointer(out.max);
    args.size = out.min.bytes.size();
    args.runtime = runtime;
    call(qobs_minmax, static_cast<const qobs_minmax_args *>(&args));
}

} // namespace detail
/** @endcond */

/** Computes minimum and maximum for each qparam of a configuration. */
inline ranges minmax(const config &c, const tensor &value, const qobs_runtime *runtime = nullptr)
{
    ranges out = detail::make_ranges(c, value, runtime);
    auto args = detail::sized<qobs_minmax_args>();
    args.config = c.handle();
    detail::minmax(args, out, value, runtime);
    return out;
}

/** Computes minimum and maximum for each index of the kept dimensions; negative axes count from the end. Without axes
 * there is one range. NaN and infinity are refused. */
inline ranges minmax(const tensor &value, const std::vector<int> &axes = {}, const qobs_runtime *runtime = nullptr)
{
    const int ndim = static_cast<int>(value.shape().size());
    std::vector<std::int64_t> shape;
    for (int d = 0; d < ndim; d++)
        for (const int axis : axes)
            if (axis == d || axis + ndim == d)
                shape.push_back(value.shape()[static_cast<std::size_t>(d)]);
    const any_array one = detail::make_array(value.dtype(), std::move(shape));
    ranges out{one, one};
    auto args = detail::sized<qobs_minmax_args>();
    args.axes = axes.empty() ? nullptr : axes.data();
    args.axis_count = axes.size();
    detail::minmax(args, out, value, runtime);
    return out;
}

/** The result of search(). */
struct search_result {
    ranges range;                        /**< chosen ranges */
    std::vector<std::int32_t> best_step; /**< chosen step of each qparam */
    std::vector<double> errors;          /**< error of each qparam */
    qobs_search_report report;           /**< sums over all qparams */
};

/** Searches the range with the smallest quantization error for each qparam; the preset is an llmc preset with mse in
 * its name. importance: a weight for each column; empty: equal weights. */
inline search_result search(const config &c, const tensor &value, const std::vector<float> &importance = {},
                            std::optional<float> global_scale = {}, const qobs_runtime *runtime = nullptr)
{
    const qobs_tensor v = value.view();
    search_result found{detail::make_ranges(c, value, runtime), {}, {}, detail::sized<qobs_search_report>()};
    const std::size_t count = found.range.min.bytes.size() / qobs_dtype_size(value.dtype());
    found.best_step.resize(count);
    found.errors.resize(count);
    auto args = detail::sized<qobs_search_args>();
    args.config = c.handle();
    args.value = &v;
    args.importance = importance.empty() ? nullptr : importance.data();
    args.importance_size = importance.size() * sizeof(float);
    args.global_scale = global_scale ? &*global_scale : nullptr;
    args.min = detail::pointer(found.range.min);
    args.max = detail::pointer(found.range.max);
    args.size = found.range.min.bytes.size();
    args.best_step = count > 0 ? found.best_step.data() : nullptr;
    args.best_step_size = count * sizeof(std::int32_t);
    args.errors = count > 0 ? found.errors.data() : nullptr;
    args.errors_size = count * sizeof(double);
    args.report = &found.report;
    args.runtime = runtime;
    detail::call(qobs_search, static_cast<const qobs_search_args *>(&args));
    return found;
}

/** Computes scale and zero point for ranges. global_scale multiplies the scales (llmc presets). */
inline qparams qparams_from_ranges(const config &c, const ranges &range, std::optional<float> global_scale = {})
{
    qparams q;
    detail::call(qobs_config_qparam_dtypes, c.handle(), range.min.dtype, &q.scale.dtype, &q.zero_point.dtype);
    if (global_scale) {
        q.scale.dtype = QOBS_F32;
        q.global_scale = *global_scale;
        q.has_global_scale = true;
    }
    q.scale = detail::make_array(q.scale.dtype, range.min.shape);
    q.zero_point = detail::make_array(q.zero_point.dtype, range.min.shape);
    auto args = detail::sized<qobs_qparams_from_ranges_args>();
    args.config = c.handle();
    args.dtype = range.min.dtype;
    args.count = q.scale.bytes.size() / qobs_dtype_size(q.scale.dtype);
    args.min = range.min.bytes.data();
    args.max = range.max.bytes.data();
    args.size = range.min.bytes.size();
    args.global_scale = global_scale ? &*global_scale : nullptr;
    args.scale = q.scale.bytes.data();
    args.scale_size = q.scale.bytes.size();
    args.zero_point = q.zero_point.bytes.data();
    args.zero_point_size = q.zero_point.bytes.size();
    if (range.max.bytes.size() != range.min.bytes.size())
        throw error(QOBS_ERROR_INVALID_ARGUMENT, "range: min and max have different sizes");
    detail::call(qobs_qparams_from_ranges, static_cast<const qobs_qparams_from_ranges_args *>(&args));
    return q;
}

/** Quantizes and dequantizes every element of a tensor. The result has its dtype and shape. */
inline any_array fake_quantize(const config &c, const tensor &value, const qparams &q,
                               const qobs_runtime *runtime = nullptr)
{
    const qobs_tensor v = value.view();
    const tensor scale = q.scale.view(), zero_point = q.zero_point.view();
    const qobs_tensor s = scale.view(), z = zero_point.view();
    any_array out = detail::make_array(value.dtype(), value.shape());
    auto args = detail::sized<qobs_fake_quantize_args>();
    args.config = c.handle();
    args.value = &v;
    args.scale = &s;
    args.zero_point = q.zero_point.bytes.empty() ? nullptr : &z;
    args.global_scale = q.has_global_scale ? &q.global_scale : nullptr;
    args.out = detail::pointer(out);
    args.out_size = out.bytes.size();
    args.runtime = runtime;
    detail::call(qobs_fake_quantize, static_cast<const qobs_fake_quantize_args *>(&args));
    return out;
}

/** Quantizes every element of a tensor to a code of one byte, as qobs_quantize does: I8 for integers, F8_E4M3, or U8
 * for fp4. The result has the tensor's shape. */
inline any_array quantize(const config &c, const tensor &value, const qparams &q, const qobs_runtime *runtime = nullptr)
{
    const qobs_tensor v = value.view();
    const tensor scale = q.scale.view(), zero_point = q.zero_point.view();
    const qobs_tensor s = scale.view(), z = zero_point.view();
    const bool integers = c.get("type") == "int";
    any_array codes = detail::make_array(integers                    ? QOBS_I8
                                         : c.get("num_bits") == "4" ? QOBS_U8
                                                                     : QOBS_F8_E4M3,
                                         value.shape());
    auto args = detail::sized<qobs_quantize_args>();
    args.config = c.handle();
    args.value = &v;
    args.scale = &s;
    args.zero_point = q.zero_point.bytes.empty() ? nullptr : &z;
    args.global_scale = q.has_global_scale ? &q.global_scale : nullptr;
    args.codes = detail::pointer(codes);
    args.codes_size = codes.bytes.size();
    args.runtime = runtime;
    detail::call(qobs_quantize, static_cast<const qobs_quantize_args *>(&args));
    return codes;
}

/** Codes, or numbers if dequantized, with the qparams that made them. */
struct quantized {
    any_array codes; /**< one row for each row of the matrix */
    qparams scales;  /**< without a zero point for symmetric configurations */
};

/** A prepared quantizer. It can be moved; any number of threads may run it at the same time. */
class quantizer
{
  public:
    /** Creates a quantizer as qobs_quantizer_create does; struct_size and config of `args` are set here. */
    quantizer(const config &c, qobs_quantizer_args args)
    {
        qobs_quantizer *q = nullptr;
        args.struct_size = sizeof args;
        args.config = c.handle();
        detail::call(qobs_quantizer_create, &q, static_cast<const qobs_quantizer_args *>(&args));
        q_.reset(q);
    }

    /** Creates a quantizer that finds the scales of each matrix. */
    quantizer(const std::string &text, qobs_dtype dtype, std::int64_t columns, const qobs_runtime *runtime = nullptr)
        : quantizer(config(text), dynamic(dtype, columns, runtime))
    {
    }

    /** Describes a run. */
    qobs_quantized_layout layout(std::int64_t rows) const
    {
        auto layout = detail::sized<qobs_quantized_layout>();
        detail::call(qobs_quantizer_layout, static_cast<const qobs_quantizer *>(handle()), rows, &layout);
        return layout;
    }

    /** Quantizes a matrix in memory of the caller; struct_size of `args` is set here. It allocates nothing. */
    void run(qobs_quantizer_run_args args) const
    {
        args.struct_size = sizeof args;
        detail::call(qobs_quantizer_run, static_cast<const qobs_quantizer *>(handle()),
                     static_cast<const qobs_quantizer_run_args *>(&args));
    }

    /** Finds the scales of a matrix of contiguous rows and quantizes it. global_scale: nullptr, if there is none. */
    quantized operator()(const void *value, std::int64_t rows, const float *global_scale = nullptr) const
    {
        const qobs_quantized_layout l = layout(rows);
        const std::int64_t width = static_cast<std::int64_t>(l.row_size / qobs_dtype_size(l.codes_dtype));
        quantized q{detail::make_array(l.codes_dtype, {rows, width}), {}};
        q.scales.scale = detail::make_array(l.scale_dtype, {l.qparam_rows, l.qparam_columns});
        if (l.has_zero_point)
            q.scales.zero_point = detail::make_array(l.zero_point_dtype, {l.qparam_rows, l.qparam_columns});
        auto args = detail::sized<qobs_quantizer_run_args>();
        args.rows = rows;
        args.value = value;
        args.codes = detail::pointer(q.codes);
        args.codes_size = q.codes.bytes.size();
        args.scale = detail::pointer(q.scales.scale);
        args.scale_size = q.scales.scale.bytes.size();
        args.zero_point = l.has_zero_point ? detail::pointer(q.scales.zero_point) : nullptr;
        args.zero_point_size = q.scales.zero_point.bytes.size();
        args.global_scale = global_scale;
        run(args);
        return q;
    }

    /** Returns the C object. */
    qobs_quantizer *handle() const noexcept { return q_.get(); }

  private:
    static qobs_quantizer_args dynamic(qobs_dtype dtype, std::int64_t columns, const qobs_runtime *runtime)
    {
        auto args = detail::sized<qobs_quantizer_args>();
        args.dtype = dtype;
        args.columns = columns;
        args.dynamic = 1;
        args.runtime = runtime;
        return args;
    }

    std::unique_ptr<qobs_quantizer, detail::destroy> q_;
};

} // namespace qobs

#endif
