/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @mainpage qobs
 * Observers for neural-network quantization. An observer is fed tensors and computes the scale and zero point to
 * quantize them with. Results are bit for bit those of the Python code of llm-compressor, torch.ao, torchao, AMD Quark,
 * NVIDIA Model-Optimizer, ONNX Runtime, ai-edge-quantizer and NNCF. Each page of docs/presets describes the presets of
 * one of these families, or of qobs itself.
 *
 * Rules of this header
 *  - Functions that can fail return QOBS_OK or a negative status. The last parameter, if not NULL, receives a
 *    message that names the argument, its value and the allowed values. After a failure inputs and objects are
 *    unchanged, also where an output is the input; other output arrays may have been overwritten.
 *  - The caller destroys every object it creates. qobs keeps no pointer to a caller's tensor after a call returns.
 *  - An object may be used by one thread at a time; different objects are independent. Functions with only const
 *    objects may run at the same time on the same object.
 *  - qobs starts no thread, reads no environment variable, writes no file and never aborts.
 *  - A structure that begins with struct_size can grow in later versions. The caller sets struct_size to sizeof the
 *    structure. There are two kinds:
 *     - In structures (qobs_tensor, qobs_runtime, qobs_*_args, qobs_*_buffers, ...) are filled by the caller. Members
 * that an older header lacks count as 0. Members that a newer header has added must be 0; otherwise the call fails with
 * UNSUPPORTED.
 *     - Out structures (qobs_counts, qobs_result, qobs_search_report, qobs_qparam_layout, ...) are filled by qobs as
 * far as struct_size goes. Members that this version does not know stay unchanged.
 *  - NULL for a pointer argument fails with INVALID_ARGUMENT unless the function says what NULL means.
 *  - Arrays have their size in bytes beside them. It must be that of the result.
 *  - docs/versions.md says what a new version may change.
 *  - Shapes count elements, strides count bytes.
 *  - Observed tensors may lie at any address. Arrays of ranges and results are aligned for their dtype.
 *  - Results do not depend on the instruction set, the number of threads, or the caller's rounding and flush modes. */
#ifndef QOBS_QOBS_H
#define QOBS_QOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** @defgroup version Version
 * @{ */

/** Version of this header. qobs_version returns that of the library. */
#define QOBS_VERSION "0.3.0"
#define QOBS_VERSION_MAJOR 0 /**< major number */
#define QOBS_VERSION_MINOR 3 /**< minor number */
#define QOBS_VERSION_PATCH 0 /**< patch number */

/** Version of this header as one number, for comparisons: major * 10000 + minor * 100 + patch. */
#define QOBS_VERSION_NUMBER (QOBS_VERSION_MAJOR * 10000 + QOBS_VERSION_MINOR * 100 + QOBS_VERSION_PATCH)

/** @cond internal */
#if defined(_WIN32) && defined(QOBS_BUILD_SHARED) /* the library's own build */
#define QOBS_API __declspec(dllexport)
#elif defined(_WIN32) && defined(QOBS_USE_SHARED) /* a program that uses the DLL */
#define QOBS_API __declspec(dllimport)
#elif !defined(_WIN32) && (defined(__GNUC__) || defined(__clang__))
#define QOBS_API __attribute__((visibility("default")))
#else
#define QOBS_API
#endif
/** @endcond */

#ifdef __cplusplus
extern "C" {
#endif

/** Returns the version of the running library, e.g. "0.3.0".
 * @since 0.1.0 */
QOBS_API const char *qobs_version(void);

/** Returns the version of the running library as QOBS_VERSION_NUMBER has it, e.g. 300.
 * @since 0.2.0 */
QOBS_API int qobs_version_number(void);

/** @} */

/** @defgroup errors Errors
 * @{ */

/** Return values of functions that can fail. */
typedef enum qobs_status {
    QOBS_OK = 0,
    QOBS_ERROR_INVALID_ARGUMENT = -1, /**< an argument or setting is wrong, or two of them contradict each other */
    QOBS_ERROR_UNSUPPORTED = -2,      /**< valid, but not available on this machine or in this build */
    QOBS_ERROR_OUT_OF_MEMORY = -3,    /**< the allocator returned NULL */
    QOBS_ERROR_NONFINITE = -4,        /**< an observed tensor has NaN or infinity, and nonfinite is refuse */
    QOBS_ERROR_NO_DATA = -5,          /**< no data has been observed for the result */
    QOBS_ERROR_NO_RESULT = -6,        /**< the observed ranges give no valid result (upstream raises an exception) */
    QOBS_ERROR_SYSTEM = -7,           /**< a file cannot be read or written (qobs/checkpoint.h) */
    QOBS_ERROR_CANCELLED = -8,        /**< the caller stopped the call (qobs/checkpoint.h) */
    QOBS_ERROR_FINDINGS = -9          /**< the audit finds faults in what would be written (qobs/checkpoint.h) */
} qobs_status;

/** A status with a message for people. The caller provides the structure. */
typedef struct qobs_error {
    int status;        /**< a qobs_status, equal to the return value */
    char message[252]; /**< one English line, always terminated; empty after success */
} qobs_error;

/** Returns a short constant text for a status, e.g. "invalid argument". Never NULL.
 * @since 0.1.0 */
QOBS_API const char *qobs_status_string(int status);

/** @} */

/** @defgroup tensors Tensors
 * @{ */

#define QOBS_MAX_NDIM 8 /**< largest number of dimensions of a tensor */

/** Element type of a tensor. */
typedef enum qobs_dtype {
    QOBS_F32 = 1,
    QOBS_BF16,
    QOBS_F16,
    QOBS_F64,
    QOBS_I8,
    QOBS_I16,
    QOBS_I32,
    QOBS_I64,
    QOBS_F8_E4M3, /**< 8 bits without infinities: the largest number is 448, 0x7f is NaN */
    QOBS_U8       /**< only of zero points, and in qobs_quantized_layout */
} qobs_dtype;

/** A view of memory that the caller owns. A tensor has at most 2^48 elements within 2^61 bytes. Observed tensors are
 * F32, BF16, F16 or F64. */
typedef struct qobs_tensor {
    size_t struct_size;     /**< sizeof(qobs_tensor) */
    const void *data;       /**< element with all indices 0, at any alignment; may be NULL if there are no elements */
    qobs_dtype dtype;       /**< element type */
    int ndim;               /**< 0 to QOBS_MAX_NDIM */
    const int64_t *shape;   /**< ndim entries, each >= 0 */
    const int64_t *strides; /**< ndim entries in bytes, may be negative or 0; NULL: C order without gaps */
} qobs_tensor;

/** Returns the bytes of one element; 0 for a value outside qobs_dtype.
 * @since 0.1.0 */
QOBS_API size_t qobs_dtype_size(qobs_dtype dtype);
/** Returns the safetensors name of the dtype, "F32", "BF16", ...; NULL for a value outside qobs_dtype.
 * @since 0.1.0 */
QOBS_API const char *qobs_dtype_name(qobs_dtype dtype);

/** @} */

/** @defgroup isa Instruction sets
 * @{ */

/** The number of instruction sets of this build. They are sorted from slowest to fastest: "scalar", then "avx2" and
 * "avx512", or "neon". From index qobs_isa_count() on, names are NULL and usable is false.
 * @since 0.1.0 */
QOBS_API size_t qobs_isa_count(void);
/** Name, as qobs_isa_select expects it.
 * @since 0.1.0 */
QOBS_API const char *qobs_isa_name(size_t index);
/** Required extensions.
 * @since 0.1.0 */
QOBS_API const char *qobs_isa_summary(size_t index);
/** True if the CPU and the operating system support it.
 * @since 0.1.0 */
QOBS_API bool qobs_isa_usable(size_t index);

/** Returns the instruction set that observers created from now on use.
 * @since 0.1.0 */
QOBS_API const char *qobs_isa_active(void);

/** Selects an instruction set for the process; NULL selects the best usable one. Fails if the name is unknown
 * (INVALID_ARGUMENT) or the instruction set is not usable here (UNSUPPORTED). Existing observers do not change. Any
 * thread may call it at any time. It is meant for tests and measurements.
 * With "avx512", some calls run AVX2 kernels, because these are faster there: for example minima of large tensors
 * that come from memory. The results have the same bits.
 * @since 0.2.0 */
QOBS_API int qobs_isa_select(const char *name, qobs_error *error);

/** @} */

/** @defgroup runtime Runtime hooks
 * Hooks for memory and threads. Both are optional; the defaults are malloc and the calling thread. The caller keeps
 * the structures alive as long as objects created with them.
 * @{ */

/** Source of memory. The thread that calls qobs calls these functions, never a task. An allocator that several
 * threads use through different objects must be thread-safe. If allocate returns NULL, the call fails with
 * OUT_OF_MEMORY. */
typedef struct qobs_allocator {
    size_t struct_size;                                        /**< sizeof(qobs_allocator) */
    void *(*allocate)(void *context, size_t size);             /**< alignment at least 16 bytes; NULL: no memory */
    void (*release)(void *context, void *memory, size_t size); /**< size is the size that was allocated */
    void *context;                                             /**< first argument of both functions */
} qobs_allocator;

/** Runs tasks on threads. qobs/openmp.h and qobs/pthreadpool.h provide executors. Tasks start no loop of their own
 * and use less than 100 KB of stack. */
typedef struct qobs_executor {
    size_t struct_size; /**< sizeof(qobs_executor) */
    size_t threads;     /**< number of tasks that run at the same time; qobs splits its work accordingly */
    /** Calls task(argument, i) once for each i below count, on any thread in any order. Returns after the last one. */
    void (*parallel_for)(void *context, void (*task)(void *argument, size_t index), void *argument, size_t count);
    void *context; /**< first argument of parallel_for */
} qobs_executor;

/** The hooks of an object. */
typedef struct qobs_runtime {
    size_t struct_size;              /**< sizeof(qobs_runtime) */
    const qobs_allocator *allocator; /**< NULL: malloc */
    const qobs_executor *executor;   /**< NULL: the calling thread */
} qobs_runtime;

/** @} */

/** @defgroup config Configuration
 * @{ */

/** The configuration of an observer: a preset and its settings. Settings have the names of the upstream class. */
typedef struct qobs_config qobs_config;

/** The number of presets. A name is "<family>.<upstream class or registry name>". From index qobs_preset_count() on,
 * names and summaries are NULL.
 * @since 0.1.0 */
QOBS_API size_t qobs_preset_count(void);
/** Name, as qobs_config_create expects it.
 * @since 0.1.0 */
QOBS_API const char *qobs_preset_name(size_t index);
/** One line for people.
 * @since 0.1.0 */
QOBS_API const char *qobs_preset_summary(size_t index);

/** Creates a configuration with the defaults of `preset`. The caller destroys it. runtime may be NULL.
 * @since 0.1.0 */
QOBS_API int qobs_config_create(qobs_config **config, const char *preset, const qobs_runtime *runtime,
                                qobs_error *error);
/** Does nothing if config is NULL.
 * @since 0.1.0 */
QOBS_API void qobs_config_destroy(qobs_config *config);

/** Creates a configuration from the name of a preset and settings, "PRESET key=value key=value ...", as
 * qobs_config_set_all reads them: "llmc.memoryless_minmax num_bits=4 group_size=128". The caller destroys it. runtime
 * may be NULL. Contradictions between settings are found later, as with qobs_config_set.
 * @since 0.2.0 */
QOBS_API int qobs_config_parse(qobs_config **config, const char *text, const qobs_runtime *runtime, qobs_error *error);

/** Sets `key` to `value`. The value is JSON or a bare word: 4, true, 0.01, channel, "channel", [128, 128]. null
 * restores the default.
 * Fails with INVALID_ARGUMENT if the preset has no such setting or the value is not allowed. Contradictions between
 * settings are found when the configuration is used, or by qobs_config_check. docs/presets lists the settings of
 * every preset with their allowed values and defaults.
 * Every preset has two settings:
 *  - base_name: the kind of the tensor (weight, input, output, q, k, v). llmc presets with weight observe only the
 *    first tensor; qobs_counts counts the others.
 *  - nonfinite: NaN and infinity make the call fail (refuse), are skipped (ignore), or enter the result (propagate).
 *    Presets with histograms also have refuse_nan, which skips infinities.
 * @since 0.1.0 */
QOBS_API int qobs_config_set(qobs_config *config, const char *key, const char *value, qobs_error *error);

/** Sets all settings of "key=value key=value ..." in their order, or none if one of them fails. White space or ';'
 * separates them; inside of brackets and quotes it is part of the value: "axis=[0, -1];num_bits=8". There is no white
 * space around '='. Empty text changes nothing.
 * @since 0.2.0 */
QOBS_API int qobs_config_set_all(qobs_config *config, const char *settings, qobs_error *error);

/** Checks all settings together, as every function with a configuration does.
 * @since 0.1.0 */
QOBS_API int qobs_config_check(const qobs_config *config, qobs_error *error);

/** Returns the name of the preset, as constant text; NULL if config is NULL.
 * @since 0.2.0 */
QOBS_API const char *qobs_config_preset(const qobs_config *config);

#define QOBS_SETTING_VALUE 64 /**< bytes that are sufficient for the value of every setting, with the final NUL */

/** Writes the value of `key` to value[size], in the form qobs_config_set expects; "null" if it has none. A real number
 * is the shortest text that reads back as the same double. Fails with INVALID_ARGUMENT if `size` is too small;
 * QOBS_SETTING_VALUE bytes are sufficient.
 * @since 0.1.0 */
QOBS_API int qobs_config_get(const qobs_config *config, const char *key, char *value, size_t size, qobs_error *error);

/** Writes the preset and the settings that differ from its defaults to text[size], as qobs_config_parse reads them.
 * Fails with INVALID_ARGUMENT if `size` is too small. *needed receives the bytes of the text with its final NUL; it
 * may be NULL. If text is NULL and size is 0, nothing else is written.
 * @since 0.2.0 */
QOBS_API int qobs_config_text(const qobs_config *config, char *text, size_t size, size_t *needed, qobs_error *error);

/** The number of settings of the preset. From index qobs_config_key_count() on, keys are NULL.
 * @since 0.1.0 */
QOBS_API size_t qobs_config_key_count(const qobs_config *config);
/** As in qobs_config_set.
 * @since 0.1.0 */
QOBS_API const char *qobs_config_key(const qobs_config *config, size_t index);

/** Kinds of values that a setting accepts. Each accepts null, too, which restores the default. */
typedef enum qobs_setting_kind {
    QOBS_SETTING_WORD = 1, /**< one of its words */
    QOBS_SETTING_BOOL,     /**< true or false, which are its words */
    QOBS_SETTING_INTEGER,  /**< an integer within the limits */
    QOBS_SETTING_REAL,     /**< a finite number within the limits */
    QOBS_SETTING_AXES,     /**< a list of up to QOBS_MAX_NDIM integers within the limits: [0, -1], or 0 */
    QOBS_SETTING_PAIR,     /**< height and width, two integers within the limits: [128, 64], or 128x64 */
    QOBS_SETTING_OWN_NAME  /**< the preset's name after its family, which is its only word */
} qobs_setting_kind;

/** Description of a setting. qobs fills the structure as far as struct_size goes; it ends after `default_value` or
 * later. */
typedef struct qobs_setting_info {
    size_t struct_size;                     /**< sizeof(qobs_setting_info) */
    const char *key;                        /**< its name, as constant text */
    qobs_setting_kind kind;                 /**< what it accepts */
    double min;                             /**< smallest allowed number; 0 if it has words */
    double max;                             /**< largest allowed number; 0 if it has words */
    size_t word_count;                      /**< number of its words, which qobs_config_key_word returns */
    const char *help;                       /**< its meaning in one line of Markdown, as constant text */
    char default_value[QOBS_SETTING_VALUE]; /**< as qobs_config_get writes it; "null": no value until it is set */
} qobs_setting_info;

/** Describes the setting `key`. Fails with INVALID_ARGUMENT if the preset has no such setting.
 * @since 0.2.0 */
QOBS_API int qobs_config_key_info(const qobs_config *config, const char *key, qobs_setting_info *info,
                                  qobs_error *error);

/** Returns word `index` of the setting, as constant text. NULL from index word_count on, for an unknown key, and if
 * config or key is NULL.
 * @since 0.2.0 */
QOBS_API const char *qobs_config_key_word(const qobs_config *config, const char *key, size_t index);

/** The work of an observer with a configuration on the tensors it is given, and its other needs. qobs fills the
 * structure as far as struct_size goes. */
typedef struct qobs_config_needs {
    size_t struct_size;       /**< sizeof(qobs_config_needs) */
    bool searches_range;      /**< tries candidates of the range on the tensor, as qobs_search does for llmc presets */
    bool searches_scale;      /**< tries candidates of scale and zero point, which only an observer returns */
    bool importance;          /**< weighs columns by activations (qobs_observer_observe_importance) */
    bool importance_required; /**< and fails without */
    bool hessian;             /**< weighs products of columns: activations or a Hessian must be there */
    bool signed_scale;        /**< scales may be negative */
    bool global_scale;        /**< scales are divided by a global scale */
    bool one_tensor;          /**< qparams are those of the range of one tensor: a prepared quantizer can find them */
    bool rounds_codes;        /**< codes are rounded by qobs_round_codes, given the Hessian (rounding=descent) */
} qobs_config_needs;

/** Describes the needs of a configuration, after the checks of qobs_config_check.
 * @since 0.3.0 */
QOBS_API int qobs_config_get_needs(const qobs_config *config, qobs_config_needs *needs, qobs_error *error);

/** Returns the dtypes of scale and zero_point for observed tensors of `dtype`.
 * @since 0.1.0 */
QOBS_API int qobs_config_qparam_dtypes(const qobs_config *config, qobs_dtype dtype, qobs_dtype *scale,
                                       qobs_dtype *zero_point, qobs_error *error);

/** @} */

/** @defgroup observer Observers
 * @{ */

/** Counts of observed elements. qobs fills the structure as far as struct_size goes; it may end after `inf`, as in
 * the first header. */
typedef struct qobs_counts {
    size_t struct_size;      /**< sizeof(qobs_counts) */
    uint64_t batches;        /**< tensors that entered the state */
    uint64_t elements;       /**< all elements */
    uint64_t nan;            /**< elements that are NaN */
    uint64_t inf;            /**< infinite elements; torch presets: also those beyond the range of F32 */
    uint64_t tokens;         /**< rows of 2-dimensional tensors (record_observed_tokens of llm-compressor) */
    uint64_t nonzero_tokens; /**< quark presets: rows of the last dimension with an element other than 0 */
    uint64_t ignored;        /**< llmc presets, base_name=weight: tensors after the first, which upstream ignores.
                              * @since 0.2.0 */
} qobs_counts;

/** Report of a range search (llmc presets with mse in their name). */
typedef struct qobs_search_report {
    size_t struct_size;   /**< sizeof(qobs_search_report) */
    int32_t steps;        /**< number of candidates */
    int32_t stop_step;    /**< candidates tried before `patience` ended the search */
    double error_before;  /**< weighted sum of |fake_quantize(x) - x|^norm with the ranges of the tensor */
    double error;         /**< the same sum with the chosen ranges */
    bool weighted;        /**< true if errors were weighted by importance */
    const char *fallback; /**< why importance was not used (constant text); NULL: it was used or does not exist */
} qobs_search_report;

/** An observer: it is fed batches of tensors and computes their scales. Its preset defines the algorithm;
 * docs/presets describes each. */
typedef struct qobs_observer qobs_observer;

/** Creates an observer for `config`, which is copied. The observer uses the instruction set that is active now. Its
 * memory is proportional to the number of qparams. The caller destroys it. runtime may be NULL.
 * @since 0.1.0 */
QOBS_API int qobs_observer_create(qobs_observer **observer, const qobs_config *config, const qobs_runtime *runtime,
                                  qobs_error *error);
/** Does nothing if observer is NULL.
 * @since 0.1.0 */
QOBS_API void qobs_observer_destroy(qobs_observer *observer);

/** Creates an observer from the text of qobs_config_parse: "llmc.memoryless_minmax num_bits=4 group_size=128". Checks
 * the settings as qobs_config_check does. The caller destroys the observer. runtime may be NULL.
 * @since 0.2.0 */
QOBS_API int qobs_observer_open(qobs_observer **observer, const char *text, const qobs_runtime *runtime,
                                qobs_error *error);

/** Creates a copy of an observer and of all its state, which the caller destroys. Both give the same results for the
 * same batches from then on, bit for bit. runtime is that of the copy and may be NULL. While it copies, it needs
 * temporary memory of the size of a saved state.
 * @since 0.2.0 */
QOBS_API int qobs_observer_clone(qobs_observer **clone, const qobs_observer *observer, const qobs_runtime *runtime,
                                 qobs_error *error);

/** Returns the configuration of the observer, which owns it: it is valid until the observer is destroyed. NULL if
 * observer is NULL.
 * @since 0.2.0 */
QOBS_API const qobs_config *qobs_observer_config(const qobs_observer *observer);

/** Returns the bytes that qobs_observer_create_in needs for batches of the shape and dtype of `value`, whose data is
 * not read. NULL: for the observer without state. The call allocates as much memory temporarily.
 * @since 0.1.0 */
QOBS_API int qobs_observer_size(const qobs_config *config, const qobs_tensor *value, size_t *size, qobs_error *error);

/** Creates an observer in `memory`, at any address, of `size` bytes. The memory must not move until the observer is
 * destroyed, and belongs to the caller again afterwards.
 * The allocator of runtime serves temporary memory, and state that does not fit. With the size of qobs_observer_size
 * all state fits, except for:
 *  - added bins of a histogram;
 *  - counters of PowOf2 observers for a fourth scale;
 *  - batches of another shape or dtype;
 *  - merging.
 * @since 0.1.0 */
QOBS_API int qobs_observer_create_in(qobs_observer **observer, void *memory, size_t size, const qobs_config *config,
                                     const qobs_runtime *runtime, qobs_error *error);

/** Observes one batch. Empty tensors are ignored.
 * g_idx: as in qobs_plan_create; NULL: none. A batch with NaN or infinity fails with NONFINITE, unless the setting
 * nonfinite allows it; the message states their number and the first position. Later batches must give the same
 * qparam shape and have the same dtype, unless docs/presets states otherwise. It also describes how each preset
 * combines batches, its memory and its limits.
 * Reproduces forward (torch.ao, Quark), Observer.forward (llm-compressor) and collect (Model-Optimizer).
 * @since 0.1.0 */
QOBS_API int qobs_observer_observe(qobs_observer *observer, const qobs_tensor *value, const qobs_tensor *g_idx,
                                   qobs_error *error);

/** Arrays for qparams. Those that are NULL are not wanted; their size is 0. */
typedef struct qobs_qparam_buffers {
    size_t struct_size;     /**< sizeof(qobs_qparam_buffers) */
    void *scale;            /**< receives the scales */
    size_t scale_size;      /**< bytes of scale */
    void *zero_point;       /**< receives the zero points */
    size_t zero_point_size; /**< bytes of zero_point */
    float *global_scale;    /**< receives the global scale, one float; 1 if the preset has none */
} qobs_qparam_buffers;

/** Counts the tokens of `value` without observing it. Reproduces record_observed_tokens.
 * @since 0.1.0 */
QOBS_API int qobs_observer_record_tokens(qobs_observer *observer, const qobs_tensor *value, qobs_error *error);

/** Observes activations that weight the columns of a weight tensor (llmc.imatrix_mse, qobs.imatrix_optimal,
 * qobs.local_hessian; modelopt.MseCalibrator and modelopt.NVFP4MSECalibrator with hessian_block_size). Call it before
 * the weight is observed. Presets with a Hessian also sum products of columns, for the blocks that group_size and
 * hessian_block_size say: 8 bytes for each column and column of a block.
 * The last dimension of `activations` has one element for each column; all other dimensions count tokens. The error
 * of an element is weighted by the mean square of its column's activations, relative to the mean of all columns.
 * Sums are double; upstream has F32.
 * Importance cannot be used in these cases: activations are missing, all 0, NaN or infinite; the number of columns
 * differs; the strategy is not channel, group or tensor_group. The search is then unweighted and
 * qobs_observer_search_report states the reason; with strict=true, qobs_observer_observe fails. A Hessian needs columns
 * in whole blocks, and activations may be 0. Reproduces the hook of IMatrixMSEObserver.attach, and
 * Model-Optimizer's local Hessian.
 * @since 0.1.0 */
QOBS_API int qobs_observer_observe_importance(qobs_observer *observer, const qobs_tensor *activations,
                                              qobs_error *error);

/** Sets the reference amax before the first batch. Without it, the amax of the first batch is used.
 * qobs_observer_reset removes it.
 *  - modelopt.MseCalibrator: the magnitudes whose multiples are tried, with the shape of result amax (upstream's
 * `amax`).
 *  - modelopt.NVFP4MSECalibrator: the magnitude of the complete tensor, 1 element (upstream's `global_amax`).
 * Values must be finite and not negative; they are converted to F32.
 * @since 0.2.0 */
QOBS_API int qobs_observer_set_reference_amax(qobs_observer *observer, const qobs_tensor *amax, qobs_error *error);

/** Sets weights of the squared error before the first batch, for the same observers. One number for each index of the
 * last dimension (for NVFP4MSECalibrator, within a block), finite and not negative. Replaces upstream's error_func
 * if that is a weight. Not with hessian_block_size.
 * @since 0.2.0 */
QOBS_API int qobs_observer_set_error_weights(qobs_observer *observer, const qobs_tensor *weight, qobs_error *error);

/** Sets the Hessian of the squared error before the first batch, in place of activations: for modelopt.MseCalibrator
 * and modelopt.NVFP4MSECalibrator with hessian_block_size, and for qobs.local_hessian. F32 or F64 of shape (blocks, b,
 * b). Block i is the mean of x x^T over tokens, for columns i * b to (i + 1) * b of the activations x. b is
 * hessian_block_size, or else the columns of a group. Numbers must be finite, and on the diagonal not negative. If a
 * block is not symmetric, the mean of it and its transpose is taken, which gives the same errors. Replaces activations
 * observed before, and counts as those of one token: activations that follow and qobs_observer_merge add to it.
 * qobs_observer_reset removes it. Replaces the Hessian in Model-Optimizer's error_func.
 * @since 0.2.0 */
QOBS_API int qobs_observer_set_hessian(qobs_observer *observer, const qobs_tensor *hessian, qobs_error *error);

/** A histogram from outside. */
typedef struct qobs_histogram_state {
    size_t struct_size;           /**< sizeof(qobs_histogram_state) */
    const qobs_tensor *counts;    /**< 1-dimensional; F32, F64, I32 or I64 */
    const qobs_tensor *bin_edges; /**< F32 or F64, one element more; NULL: bins of equal width from min to max */
    float min;                    /**< first edge, if bin_edges is NULL */
    float max;                    /**< last edge, if bin_edges is NULL */
    uint64_t batches;             /**< number of batches that were counted; 0: 1 */
} qobs_histogram_state;

/** Replaces everything observed by a histogram that another program has collected, for example one of a state_dict:
 * histogram, min_val and max_val of torch.HistogramObserver; calib_hist and calib_bin_edges of Quark's and
 * Model-Optimizer's. The range is that of the edges. Edges must be those of a linspace or arange in float32, except for
 * modelopt.HistogramCalibrator with torch_hist=false. Counts of tokens become 0.
 * Later batches add to the histogram as to an own one.
 * @since 0.2.0 */
QOBS_API int qobs_observer_set_histogram(qobs_observer *observer, const qobs_histogram_state *histogram,
                                         qobs_error *error);

/** Returns the report of the last batch, summed over all qparams. NO_DATA if no batch has been searched. The results
 * best_step, errors and errors_before have the values of each qparam.
 * @since 0.1.0 */
QOBS_API int qobs_observer_search_report(const qobs_observer *observer, qobs_search_report *report, qobs_error *error);

/** Removes everything observed, including state that Quark's reset_state leaves (mode counters, the magnitudes of
 * BFP).
 * @since 0.1.0 */
QOBS_API void qobs_observer_reset(qobs_observer *observer);

/** Removes the batches that have been observed and all that was found in them. Weights of errors stay: importance, a
 * Hessian, a reference amax, error weights. The next weight of the same inputs can then be observed.
 * @since 0.2.0 */
QOBS_API void qobs_observer_reset_batches(qobs_observer *observer);

/** Adds the state of `count` other observers to `observer`, as if their batches came from other machines. They must
 * have the same settings, dtype and qparam shape. Observers without data are skipped.
 * Running ranges take the extrema, moving averages the mean, and a memoryless range stays unless there was none.
 * Importance, histograms and mode counters are added; histograms are first extended to the union of their ranges.
 * Results of a search stay, or come from the first observer that has them. docs/presets describes the exceptions.
 * Reproduces Observer.sync_activation_stats of llm-compressor.
 * @since 0.1.0 */
QOBS_API int qobs_observer_merge(qobs_observer *observer, const qobs_observer *const *others, size_t count,
                                 qobs_error *error);

/** Returns the number of bytes that qobs_observer_save writes.
 * @since 0.1.0 */
QOBS_API size_t qobs_observer_save_size(const qobs_observer *observer);
/** Writes settings and state of the observer to `buffer` of `size` bytes. qobs of the same or a later version can
 * load it on any machine.
 * @since 0.1.0 */
QOBS_API int qobs_observer_save(const qobs_observer *observer, void *buffer, size_t size, qobs_error *error);

/** Creates an observer from saved bytes. The caller destroys it. Fails if the bytes differ in any way from those of
 * qobs_observer_save.
 * @since 0.1.0 */
QOBS_API int qobs_observer_load(qobs_observer **observer, const void *buffer, size_t size, const qobs_runtime *runtime,
                                qobs_error *error);

/** Returns the counts of all batches.
 * @since 0.1.0 */
QOBS_API int qobs_observer_counts(const qobs_observer *observer, qobs_counts *counts, qobs_error *error);

/** Dtypes, shape and sizes of scale and zero point. qobs fills the structure as far as struct_size goes. */
typedef struct qobs_qparam_layout {
    size_t struct_size;           /**< sizeof(qobs_qparam_layout) */
    size_t count;                 /**< number of scales */
    qobs_dtype scale_dtype;       /**< dtype of scale */
    qobs_dtype zero_point_dtype;  /**< dtype of zero_point */
    size_t scale_size;            /**< bytes of scale */
    size_t zero_point_size;       /**< bytes of zero_point */
    int64_t shape[QOBS_MAX_NDIM]; /**< the first ndim entries are valid */
    int ndim;                     /**< number of dimensions of scale and zero_point */
    bool has_global_scale;        /**< the scales are divided by a global scale */
} qobs_qparam_layout;

/** Describes the qparams of an observer with `config` after it has observed a tensor like `value`, whose data is not
 * read. g_idx: as in qobs_plan_create; NULL: none.
 * @since 0.3.0 */
QOBS_API int qobs_config_qparam_layout(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                                       qobs_qparam_layout *layout, qobs_error *error);

/** Computes the qparams of one tensor: creates an observer from `config`, a text as in qobs_config_parse, observes
 * `value`, and writes what `out` asks for. Sizes are those of qobs_config_qparam_layout. runtime may be NULL.
 * @since 0.3.0 */
QOBS_API int qobs_qparams_from_tensor(const char *config, const qobs_tensor *value, const qobs_qparam_buffers *out,
                                      const qobs_runtime *runtime, qobs_error *error);

#define QOBS_RESULT_NAME 72 /**< bytes of a result name, including the final NUL */

/** Description of a result. The preset, its settings and the state determine which results exist; docs/presets lists
 * them. Most presets have ranges (min_vals and max_vals, min_val and max_val, or amax), scale and zero_point. */
typedef struct qobs_result {
    size_t struct_size;           /**< sizeof(qobs_result) */
    char name[QOBS_RESULT_NAME];  /**< as qobs_observer_read expects it */
    qobs_dtype dtype;             /**< dtype of its elements */
    int ndim;                     /**< number of dimensions */
    int64_t shape[QOBS_MAX_NDIM]; /**< the first ndim entries are valid */
    size_t size;                  /**< bytes of all elements */
} qobs_result;

/** Returns the number of results that exist now.
 * @since 0.1.0 */
QOBS_API size_t qobs_observer_result_count(const qobs_observer *observer);
/** Describes result `index`.
 * @since 0.2.0 */
QOBS_API int qobs_observer_result_info(const qobs_observer *observer, size_t index, qobs_result *result,
                                       qobs_error *error);
/** Describes result `name`.
 * @since 0.2.0 */
QOBS_API int qobs_observer_result_find(const qobs_observer *observer, const char *name, qobs_result *result,
                                       qobs_error *error);

/** Writes result `name` in C order to `out`. `size` must be the size in its description. Reading does not change the
 * state.
 * @since 0.1.0 */
QOBS_API int qobs_observer_read(const qobs_observer *observer, const char *name, void *out, size_t size,
                                qobs_error *error);

/** Writes result `name` in C order to `out`, converted to `dtype`: F32, F64, I32 or I64. `size` is the number of its
 * elements times the size of `dtype`, in bytes. F64 to F32 rounds to nearest. Fails with INVALID_ARGUMENT if an integer
 * is asked for and an element is none, or beyond its limits.
 * @since 0.2.0 */
QOBS_API int qobs_observer_read_as(const qobs_observer *observer, const char *name, qobs_dtype dtype, void *out,
                                   size_t size, qobs_error *error);

/** Writes scale, zero point and global scale. The sizes are those of the results of these names.
 * @since 0.3.0 */
QOBS_API int qobs_qparams_from_observer(const qobs_observer *observer, const qobs_qparam_buffers *out,
                                        qobs_error *error);

/** Gives observers of fused layers (gate_proj and up_proj; q_proj, k_proj and v_proj) one global scale: that of the
 * largest magnitude that any of them has observed. All must have data and strategy tensor_group.
 * An observer uses it until it observes another batch. In the 2025 versions, only qobs_observer_observe and
 * qobs_observer_update_global_min_max of experimental.h end it, so the steps in between are computed and searched under
 * it. Reproduces FusionHandler and get_global_scale of llm-compressor. Their rules about dropping statistics have no
 * counterpart here, because reading does not change the state.
 * @since 0.1.0 */
QOBS_API int qobs_observers_fuse(qobs_observer *const *observers, size_t count, qobs_error *error);

/** Sets the magnitude that gives the global scale, like qobs_observers_fuse. For an observer of a slice it is that of
 * the complete tensor; for layers on several machines it is their largest. It must be finite
 * and not negative.
 * @since 0.2.0 */
QOBS_API int qobs_observer_set_global_amax(qobs_observer *observer, double amax, qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
