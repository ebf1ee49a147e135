/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * Whole checkpoints: a directory with safetensors files and config.json becomes a quantized one in the format of
 * compressed-tensors, which vLLM loads. Link libqobs-checkpoint. The functions read and write files; they use no
 * threads but those of the executor, and change nothing that belongs to the process. Any number of calls may run at
 * once, each with an output of its own. Input files are mapped: if one becomes shorter meanwhile, see
 * qobs_checkpoint_handle_bus_errors. Paths are UTF-8 or whatever the file system has; text in files is UTF-8. */
#ifndef QOBS_CHECKPOINT_H
#define QOBS_CHECKPOINT_H

#include "qobs.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup checkpoint Whole checkpoints
 * @{ */

/** Progress of a function on a whole checkpoint. */
typedef struct qobs_progress {
    size_t struct_size;   /**< sizeof(qobs_progress) */
    const char *stage;    /**< "quantize" or "plan"; "fetch" while a file of the name in `layer` is fetched */
    uint64_t bytes_done;  /**< bytes of the input that are done */
    uint64_t bytes_total; /**< bytes of the input */
    /** The module in work, or done last: "model.layers.0.mlp.down_proj"; valid during the call. NULL: none yet. */
    const char *layer;
    double share;  /**< share of the work that is done, 0 to 1, never less than in the call before */
    bool searches; /**< scales or codes are searched: `share` counts such layers for more than their bytes */
} qobs_progress;

/** Which tensors are quantized, and which share a global scale. */
typedef enum qobs_compat {
    QOBS_COMPAT_VLLM = 0,           /**< weights of linear layers; every set that vLLM fuses; layers of experts whole */
    QOBS_COMPAT_LLM_COMPRESSOR = 1, /**< byte for byte model_free_ptq of llm-compressor's release, 0.14 */
    QOBS_COMPAT_LLM_COMPRESSOR_0_14 = 2, /**< the same, also when there is a later release */
    QOBS_COMPAT_NEXT = 3 /**< the same of its newest pre-release, 0.14.1a20261020 with compressed-tensors 0.20 */
} qobs_compat;

/** The stored scale of an expert's activations if no recorded token reached the expert. */
typedef enum qobs_fill_experts {
    QOBS_FILL_REFUSE = 0, /**< the run fails with a list of such experts */
    QOBS_FILL_MAX = 1,    /**< it gets the largest scale of its layer's other experts, as in vLLM and Model-Optimizer */
    QOBS_FILL_MEDIAN = 2  /**< it gets their median, of two the smaller */
} qobs_fill_experts;

/** The treatment of draft layers, which models have for speculative decoding (MTP, nextn). A target that names such a
 * layer comes first. */
typedef enum qobs_draft {
    QOBS_DRAFT_AS_LOADED = 0, /**< quantized if vLLM is known to load those of the architecture so, else kept */
    QOBS_DRAFT_KEEP = 1,      /**< kept as they are, and named in `ignore` */
    QOBS_DRAFT_QUANTIZE = 2   /**< quantized as other layers */
} qobs_draft;

/** Arguments of qobs_checkpoint_quantize. One of scheme, config and recipe is needed. Members that are not described
 * as needed may be 0 or NULL. */
typedef struct qobs_checkpoint_quantize_args {
    size_t struct_size;         /**< sizeof(qobs_checkpoint_quantize_args) */
    const char *model;          /**< needed: directory of the model, its index or its only file; it is only read */
    const char *out;            /**< needed: directory to create; it appears when it is complete */
    const char *scheme;         /**< a preset scheme of compressed-tensors, in any case: "W4A16" */
    const char *config;         /**< path of a JSON file with a whole quantization_config */
    const char *recipe;         /**< path of a recipe of llm-compressor, YAML or JSON */
    const char *const *targets; /**< names or "re:" patterns of modules; with scheme only */
    size_t target_count;        /**< number of targets */
    const char *const *ignore;  /**< names or "re:" patterns of modules to leave as they are */
    size_t ignore_count;        /**< number of entries */
    const char *preset;         /**< observer of the weights: "llmc.memoryless_mse" */
    /** "key=value": members of the scheme's weights, its format ("format=int-quantized"), settings of the observer */
    const char *const *settings;
    size_t setting_count; /**< number of settings */
    /** Files with recorded activations, each a batch, or directories of such files, in the order of their names:
     * safetensors with tensors "<module>.input", "<module>.output", "<attention>.k_states" and "<attention>.v_states".
     * Needed for schemes that store scales of activations. */
    const char *const *activations;
    size_t activation_count; /**< number of files and directories */
    /** Directories with saved observers of such activations, in place of files: "<module>.input.qobs", or the files
     * that states.json names: {"states": {"<module>.input": "FILE"}}. States of one name in several directories merge.
     */
    const char *const *states;
    size_t state_count; /**< number of directories */
    /** Files that say how much each column of a weight counts in searches (a preset with mse in its name, strategies
     * channel, group and tensor_group): importance matrices of llama.cpp, GGUF or the older form, whose file names end
     * in .dat or .imatrix; or recorded activations with "<module>.input". Directories of `states` may have it, too:
     * observers "<module>.importance" of llmc.imatrix_mse. A layer without it uses that of a layer fused with it, or
     * is searched without. */
    const char *const *importance;
    size_t importance_count; /**< number of files */
    /** Quantize experts that vLLM loads one by one and transformers only in one tensor: Granite, Aria, Step-3.7. The
     * output is for vLLM alone. Otherwise they stay as they are. */
    bool split_experts;
    qobs_fill_experts fill_experts; /**< see qobs_fill_experts */
    qobs_compat compat;             /**< see qobs_compat */
    /** Several processes or machines may share a model: each writes the shards of part `part` of `part_count`, from 1,
     * to a directory in "<out>.parts". qobs_checkpoint_finish joins them. part_count 0: the whole model. */
    size_t part;
    size_t part_count;     /**< number of parts, to 100000; the same for all */
    bool replace;          /**< if out holds files, replace the whole directory at the end */
    bool keep_findings;    /**< write the output although it has faults or no runtime loads it */
    bool allow_mixed_sets; /**< write sets of layers that vLLM runs as one matrix with several schemes */
    /** NULL: the calling thread. The executor runs parts of weights; the allocator serves observers. Lists and names
     * take memory from malloc. */
    const qobs_runtime *runtime;
    /** Called by one thread at a time, often. A value other than 0 stops the run, which fails with CANCELLED. */
    int (*progress)(void *context, const qobs_progress *progress);
    void *context; /**< first argument of progress */
    /** Receives a JSON text with sizes, errors, warnings and findings, also after FINDINGS; the caller frees it with
     * free(). "unused": texts about what the arguments give and nothing uses, each with what would work. */
    char **report;
    /** Path of a JSON file with rows of architectures, which python -m libqobs.architectures writes; they come before
     * those of the library for the same types (docs/checkpoint.md). */
    const char *architectures;
    qobs_draft draft; /**< see qobs_draft; under llm-compressor's releases draft layers are as others */
    /** Names, layout and configuration of the output: NULL or "compressed-tensors"; "awq" (4 bits), "gptq", "gptq-v2"
     * (2, 3, 4 and 8 bits) for integers in groups or channels without quantized activations; "modelopt" for FP8,
     * FP8_DYNAMIC, FP8_BLOCK, NVFP4, NVFP4A16 and MXFP8; "fp8" for FP8_BLOCK. One scheme for all layers. */
    const char *dialect;
    /** Fail unless the output has all numbers of the model: each quantized layer is in codes already, which the scheme
     * holds. Without scheme, config and recipe the scheme is that which the configuration of the model states, or that
     * of its integers. Without states and activations scales of inputs are those of the model, also without this. */
    bool keep_numbers;
    /** A command for /bin/sh that fetches a file of the model, whose name it gets in place of each {}: the shards of
     * the index that the directory `model` lacks, index and config.json among them. It runs in a directory of its own,
     * where it leaves the file, and $OLDPWD is that of the caller. At most two shards are on the disk. Each shard is a
     * part (part_count) that stays if the run fails, and the same call goes on from there. Not beside keep_numbers. */
    const char *fetch;
} qobs_checkpoint_quantize_args;

/** Quantizes a whole model: reads the safetensors files and the index of `model`, quantizes the weights that the scheme
 * targets, and writes shards, index, config.json and every other file to `out`. `out` is complete or absent. Memory
 * beyond the mapped files does not grow with the model. Layers that vLLM runs as one matrix (q_proj, k_proj, v_proj)
 * need one scheme, or all stay as they are, unless allow_mixed_sets is set or compat is not QOBS_COMPAT_VLLM.
 * The output is audited before it gets its name: all that qobs_checkpoint_audit checks but the codes. With
 * QOBS_COMPAT_LLM_COMPRESSOR and in a part findings stop nothing.
 * Fails with INVALID_ARGUMENT for wrong arguments and inputs, with NONFINITE if a weight has NaN or infinity, with
 * SYSTEM if a file cannot be read or written, with FINDINGS if the audit finds faults.
 * Reproduces model_free_ptq of llm-compressor 0.14 with compressed-tensors 0.19.
 * @since 0.2.0 */
QOBS_API int qobs_checkpoint_quantize(const qobs_checkpoint_quantize_args *args, qobs_error *error);

/** Finds the layers that vLLM 0.32 runs as one matrix, so that they need one scheme and global scale: q_proj, k_proj
 * and v_proj, gate_proj and up_proj, others by architecture. `names` are full names of weights, "<module>.weight".
 * `model_type` is that of config.json, or NULL. Writes to set[i] the index of one member of the set of names[i], which
 * is the same for all members, or i if it is in none.
 * Fails with INVALID_ARGUMENT for NULL, with OUT_OF_MEMORY.
 * @since 0.2.0 */
QOBS_API int qobs_checkpoint_fused_sets(const char *const *names, size_t count, const char *model_type, size_t *set,
                                        qobs_error *error);

/** Returns true if the library has rows for a model type or a class: values of model_type and of architectures in
 * config.json, either of which may be NULL. Without rows a general rule chooses the layers; rows of other sources are
 * the member architectures of qobs_checkpoint_quantize_args.
 * @since 0.2.0 */
QOBS_API bool qobs_checkpoint_knows(const char *model_type, const char *class_name);

/** Arguments of qobs_checkpoint_finish. Members that are not described as needed may be 0 or NULL. */
typedef struct qobs_checkpoint_finish_args {
    size_t struct_size; /**< sizeof(qobs_checkpoint_finish_args) */
    const char *out;    /**< needed: directory to create, as it was given to all parts */
    bool replace;       /**< if out holds files, replace the whole directory at the end */
    bool keep_findings; /**< write the output although the audit finds faults in it */
    char **report;      /**< receives a JSON text as of one run; the caller frees it with free() */
} qobs_checkpoint_finish_args;

/** Joins the parts of qobs_checkpoint_quantize to the bytes of one run, and removes "<out>.parts". Checks first that
 * all parts are there, that they were made of one model with the same options, and that shards, index and configuration
 * agree. On failure the parts stay. Shards become hard links if the file system has them, else copies.
 * Fails with INVALID_ARGUMENT for parts that are missing or do not fit, with SYSTEM if a file cannot be read or
 * written, with FINDINGS if the audit finds faults in the output.
 * @since 0.2.0 */
QOBS_API int qobs_checkpoint_finish(const qobs_checkpoint_finish_args *args, qobs_error *error);

/** Arguments of qobs_checkpoint_audit. Members that are not described as needed may be 0 or NULL. */
typedef struct qobs_checkpoint_audit_args {
    size_t struct_size;     /**< sizeof(qobs_checkpoint_audit_args) */
    const char *checkpoint; /**< needed: directory of a quantized model, or a GGUF file */
    /** Directory of the model before it was quantized: for the error of each layer, for codes that are not the nearest
     * to its numbers, and to make the files again with the settings of config.json. For a GGUF file such a file, for
     * the error of each layer. */
    const char *against;
    const qobs_runtime *runtime; /**< NULL: the calling thread */
    size_t *findings;            /**< receives the number of findings */
    char **report;               /**< receives a JSON text with layers and findings; the caller frees it with free() */
    const char *architectures;   /**< as in qobs_checkpoint_quantize_args; not for a GGUF file */
    /** Path of a file to write, a statement of in-toto: SHA-256 of each file of `checkpoint` and of `against`, which is
     * needed then, and what the report says of codes, of reproduction and of findings. */
    const char *attest;
    /** Directory to create: the checkpoint with what can be mended without its original: names of tensors of another
     * dialect, entries that `ignore` lacks or has too many, global scales that differ within what vLLM runs as one
     * matrix, input scales that other experts have. The report then is that of the new directory, with "mended", and
     * findings are what is left. Nothing is written if nothing can be mended. Not with against or a GGUF file. */
    const char *out;
} qobs_checkpoint_audit_args;

/** Checks a quantized checkpoint of anybody, in the format of compressed-tensors, with the names of Model-Optimizer
 * (FP8, NVFP4) or Quark (FP8, MXFP4), or in words of AWQ and GPTQ: tensors that are missing, unknown or have other
 * dtypes and shapes than the configuration says, scales that are 0, negative, infinite or NaN, schemes and global
 * scales that differ between layers that vLLM runs as one matrix, modules and tied heads that the configuration claims
 * and that are not quantized, experts that are quantized in part, sizes that config.json contradicts, codes and scales
 * that do not vary, codes that use less than half of their range, and typing errors in names. Reads every quantized
 * weight once, with `against` twice. The report of a comparison has "codes_compared", "codes_not_nearest", and
 * "reproduced": true if quantizing `against` gives the bytes of each file that it would write, false with
 * "reproduced_why", null if config.json does not tell enough. Neither is a finding: others round codes in other ways.
 * Checks a GGUF file, or all parts of one that is named by its first: scales and numbers that are not finite, types
 * that general.file_type does not give, layers, experts, embeddings and tokens that keys count otherwise; with
 * `against` tensors that are missing or new, and those of the original's type whose bytes differ.
 * Returns OK with the number of findings. Fails with INVALID_ARGUMENT if the directory or the file cannot be read as
 * such a checkpoint.
 * @since 0.2.0 */
QOBS_API int qobs_checkpoint_audit(const qobs_checkpoint_audit_args *args, qobs_error *error);

/** Arguments of qobs_checkpoint_calibrate. One of scheme, config and recipe is needed. Members that are not described
 * as needed may be 0 or NULL. */
typedef struct qobs_checkpoint_calibrate_args {
    size_t struct_size;         /**< sizeof(qobs_checkpoint_calibrate_args) */
    const char *model;          /**< needed: directory of the model, its index, or a safetensors file; only read */
    const char *out;            /**< needed: safetensors file to create; it appears when it is complete */
    const char *scheme;         /**< as in qobs_checkpoint_quantize_args */
    const char *config;         /**< as in qobs_checkpoint_quantize_args */
    const char *recipe;         /**< as in qobs_checkpoint_quantize_args */
    const char *const *targets; /**< names or "re:" patterns of modules; with scheme only */
    size_t target_count;        /**< number of targets */
    const char *const *ignore;  /**< names or "re:" patterns of modules to leave out, attention modules included */
    size_t ignore_count;        /**< number of entries */
    /** "[BASE=]NAME": an observer of weights (default llmc.memoryless_minmax), or of a base input, output, q, k, v or
     * kv (default llmc.static_minmax); "BASE=none": no observer. */
    const char *const *presets;
    size_t preset_count; /**< number of presets */
    /** "[BASE.]KEY=VALUE": members of the scheme, or settings of that observer. Outputs and q are calibrated if a
     * preset or a setting names them. */
    const char *const *settings;
    size_t setting_count;           /**< number of settings */
    const char *const *activations; /**< as in qobs_checkpoint_quantize_args, with "<attention>.q_states", too */
    size_t activation_count;        /**< number of files and directories */
    const char *const *states;      /**< as in qobs_checkpoint_quantize_args */
    size_t state_count;             /**< number of directories */
    const char *const *importance;  /**< as in qobs_checkpoint_quantize_args */
    size_t importance_count;        /**< number of files */
    qobs_fill_experts fill_experts; /**< REFUSE: experts that no token reached are left out */
    const qobs_runtime *runtime;    /**< as in qobs_checkpoint_quantize_args */
    int (*progress)(void *context, const qobs_progress *progress); /**< as in qobs_checkpoint_quantize_args */
    void *context;                                                 /**< first argument of progress */
    /** Receives the number of scales of activations that the scheme stores and that nothing was recorded for. */
    size_t *missing;
    /** Receives a JSON text with scales, errors, counts and "unused", as in qobs_checkpoint_quantize_args; the caller
     * frees it with free(). */
    char **report;
    const char *architectures; /**< as in qobs_checkpoint_quantize_args */
} qobs_checkpoint_calibrate_args;

/** Computes the scales that qobs_checkpoint_quantize would store, and no codes: "<module>.weight_scale",
 * ".weight_zero_point" (one element each, not packed), ".weight_global_scale", from recorded activations also
 * "<module>.input_scale" and its like and "<attention>.k_scale", ".v_scale". Modules without a recording are left out.
 * Memory beyond the mapped files does not grow with the model.
 * Fails with INVALID_ARGUMENT for wrong arguments and inputs, with NONFINITE if a weight has NaN or infinity, with
 * SYSTEM if a file cannot be read or written. After an error `out` is as it was.
 * @since 0.2.0 */
QOBS_API int qobs_checkpoint_calibrate(const qobs_checkpoint_calibrate_args *args, qobs_error *error);

/** Arguments of qobs_checkpoint_plan. Members that are not described as needed may be 0 or NULL. */
typedef struct qobs_checkpoint_plan_args {
    size_t struct_size;         /**< sizeof(qobs_checkpoint_plan_args) */
    const char *model;          /**< needed: as in qobs_checkpoint_quantize_args */
    const char *out;            /**< recipe to create, a file; it needs budget or max_kl */
    const char *const *schemes; /**< needed: preset schemes of compressed-tensors, in any case: "W4A16" */
    size_t scheme_count;        /**< number of schemes */
    const char *const *targets; /**< as in qobs_checkpoint_quantize_args */
    size_t target_count;        /**< number of targets */
    const char *const *ignore;  /**< as in qobs_checkpoint_quantize_args */
    size_t ignore_count;        /**< number of entries */
    const char *preset;         /**< as in qobs_checkpoint_quantize_args, for all schemes */
    /** "[SCHEME.]KEY=VALUE": as in qobs_checkpoint_quantize_args, for all schemes or for one: "W4A16.group_size=64" */
    const char *const *settings;
    size_t setting_count; /**< number of settings */
    /** Directories of saved observers: "<module>.importance", of llmc.imatrix_mse or qobs.local_hessian, which see the
     * inputs of a module; "<module>.sensitivity_a" and "<module>.sensitivity_b", of llmc.imatrix_mse, which see a token
     * for each sequence of one half: |g_i| / |x| for each row i of the weight, g_i the gradient of the log likelihood
     * of labels that the model draws from its own distribution with respect to row i, x all inputs of the sequence.
     * States of one name in several directories merge. */
    const char *const *states;
    size_t state_count;            /**< number of directories */
    const char *const *importance; /**< as in qobs_checkpoint_quantize_args */
    size_t importance_count;       /**< number of files */
    double budget; /**< most bits an element of the weights that are quantized, scales included; 0: none */
    double max_kl; /**< largest KL divergence predicted, in nats a token; 0: none */
    const qobs_runtime *runtime;                                   /**< as in qobs_checkpoint_quantize_args */
    int (*progress)(void *context, const qobs_progress *progress); /**< the same; stage is "plan" */
    void *context;                                                 /**< first argument of progress */
    char **report;             /**< receives a JSON text, which the caller frees with free() */
    const char *architectures; /**< as in qobs_checkpoint_quantize_args */
} qobs_checkpoint_plan_args;

/** Foretells what schemes cost a model, and chooses among them. It quantizes every weight under each scheme, writes
 * nothing of it, and reports bytes, bits an element, the KL divergence of the quantized model's next token to that of
 * the model in nats a token ("kl"), and errors by layer.
 * The KL divergence is that of the errors of weights to second order: half of the sum over layers and rows i of F_i d_i
 * H d_i^T with d = weight - quantized weight, H = E[x x^T] of the inputs and F_i the mean square of row i in states of
 * sensitivity. It does not hold above 2, and quantized activations are not in it. H is a diagonal, but for presets of
 * qobs.local_hessian. Those see the first half of recorded activations, of the first dimension of each batch, and the
 * other half measures d H d^T. With states they bring that of their own Hessian, which is too small, and the mean of F.
 * Without sensitivity of all modules "kl" is null. With `budget` each module gets the scheme for which the sum of "kl"
 * is smallest, with `max_kl` that for which the bytes are fewest. Layers that vLLM runs as one matrix and the experts
 * of a layer have one scheme. "optimal": no other choice is better. The first half of the sequences chooses, and the
 * other one tells "kl" of the mixture, because the smallest of many noisy figures is too small. `max_kl` holds for
 * both. The recipe names each module, and qobs_checkpoint_quantize takes it with the same states and importance. Memory
 * beyond the mapped files does not grow with the model, but for some hundred bytes a tensor and scheme. Fails with
 * INVALID_ARGUMENT for wrong arguments and inputs, and if no mixture keeps to `budget` or `max_kl`; otherwise as
 * qobs_checkpoint_quantize. After an error `out` is as it was.
 * @since 0.2.0 */
QOBS_API int qobs_checkpoint_plan(const qobs_checkpoint_plan_args *args, qobs_error *error);

/** Installs a handler of SIGBUS for the whole process, as the program qobs has it. The other functions install none. If
 * an input file becomes shorter while it is read, the call fails with SYSTEM, names the file and writes nothing. With
 * the handler all files are read in place, and what is missing reads as zeros. Without it the system copies what is
 * read, on Linux, and tells of missing bytes: that takes 5 to 40 % more time. If the system copies nothing, files
 * are read in place, and it sends SIGBUS if bytes go missing while they are read. A SIGBUS from other addresses goes to
 * the action that was there before. A second call does nothing. Call it before the other functions. Fails with SYSTEM.
 * @since 0.3.0 */
QOBS_API int qobs_checkpoint_handle_bus_errors(qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
