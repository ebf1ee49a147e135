#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares checkpoint/model/transformers.inc with the classes of the installed transformers, or writes it anew.

    architectures.py KINDS [--write] [--facts FILE] [--vllm PACKAGE] [--only REGEX] [--jobs N] [-v]

KINDS is build/tests/module_kinds, which says what the program takes a module for. Every class of transformers is built
on the meta device. Its modules say what each matrix is (nn.Linear, nn.Embedding, Conv1D, router, head), its conversions
which name it has in the file, what they split and join, and whether they find quantized experts. It ties some layers.
Its initializers say whether packed weights load: they fail at a linear layer without a weight, or do not. --vllm names
the package of vLLM: layers that it builds without a quant_config stay as they are, too, and its registry says which
types it has. The table needs a pattern for each name that the general rule gets wrong, a FROM>TO for each module that
has another name than the file, and the types that vLLM lacks. --write writes them. Without it every model type is a
test: the table says what the classes say, of .needs_weight, .splits, .joins, .ties, .plain_experts, .vllm_keeps and
.lacks_vllm, too; the last two with --vllm alone. Ends with "N passed, N failed".
--facts FILE keeps what was found in FILE; if FILE exists, it is read instead.
"""
import argparse, ast, collections, glob, json, multiprocessing, os, re, signal, subprocess, sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1")
TABLE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "checkpoint/model/transformers.inc")
SECONDS = 120  # for one class

# ---- Configurations --------------------------------------------------------------------------------------------------

MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16, 24, 24]}
DECODER = {"is_decoder": True, "add_cross_attention": True}
INDEXER = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 16,
           "indexer_compress_ratio": 4}
# Fields that the default configuration of a class lacks. "a.b" is field b of part a.
OVERRIDES = {
    "autoformer": {"prediction_length": 8}, "informer": {"prediction_length": 8},
    "time_series_transformer": {"prediction_length": 8},
    "aya_vision": {"vision_config.num_attention_heads": 16},
    "chameleon": {"vocabulary_map": {"<image>": 300, "IMGIMGAZ": 301}},
    "emu3": {"vocabulary_map": {"<image>": 300, "<|extra_200|>": 299, "<|visual token 000000|>": 301}},
    "cohere_compass": {"text_config.rope_parameters": {"full_attention": MROPE}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": MROPE}},
    "dbrx": {"attn_config.rope_theta": 10000.0},
    "deepseek_ocr2": {"text_config": {"num_hidden_layers": 2, "mlp_layer_types": ["dense", "sparse"]}},
    "diffusion_gemma": {"vision_config.model_type": "gemma4_vision", "text_config.num_experts": 4,
                        "text_config.top_k_experts": 2, "text_config.moe_intermediate_size": 128},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1},
    "encoder-decoder": {"encoder.model_type": "bert", "decoder": {"model_type": "bert", **DECODER}},
    "speech-encoder-decoder": {"encoder.model_type": "wav2vec2", "decoder": {"model_type": "bert", **DECODER}},
    "vision-encoder-decoder": {"encoder.model_type": "vit", "decoder": {"model_type": "gpt2", **DECODER}},
    "vision-text-dual-encoder": {"vision_config.model_type": "clip_vision_model", "text_config.model_type": "bert"},
    "esm": {"vocab_size": 64, "pad_token_id": 1, "mask_token_id": 32},
    "gemma4_assistant": {"text_config": {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0,
                                         "vocab_size_per_layer_input": 0}},
    "gemma4_unified_assistant": {"text_config.model_type": "gemma4_unified_text"},
    "granite4_vision": {"text_config.model_type": "granite4_vision_text", "deepstack_layer_map": [[0, 0]],
                        "downsample_rate": "1/2"},
    **{kind: {"head_dim": 128} for kind in ("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text", "ministral")},
    "hunyuan_vl": {"text_config.head_dim": 128},
    "idefics3": {"text_config": {"model_type": "llama"}}, "smolvlm": {"text_config": {"model_type": "llama"}},
    "lfm2_moe": {"layer_types": 16 * ["conv", "full_attention"]},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "musicgen": {"text_encoder.model_type": "t5", "audio_encoder.model_type": "encodec",
                 "decoder.model_type": "musicgen_decoder"},
    "musicgen_melody": {"text_encoder.model_type": "t5", "audio_encoder.model_type": "encodec",
                        "decoder.model_type": "musicgen_melody_decoder"},
    "nemotron": {"head_dim": 128, "num_key_value_heads": 8},
    "perception_lm": {"vision_config": {"architecture": "vit_tiny_patch16_224", "model_args": {"embed_dim": 192}}},
    "qwen3_omni_moe": {"talker_config": {"spatial_merge_size": 2, "text_config": {
        "shared_expert_intermediate_size": 128}}},
    "qwen4_exp": {f"text_config.{name}": value for name, value in INDEXER.items()}, "qwen4_exp_text": INDEXER,
    "t5gemma2_encoder": {"text_config.dropout_rate": 0.0},
    "timm_backbone": {"backbone": "resnet18"}, "timm_wrapper": {"architecture": "vit_tiny_patch16_224"},
    "wav2vec2-bert": {"vocab_size": 32}, "wav2vec2-conformer": {"vocab_size": 32},
}
# Types of which no class is built: they load files of the hub, need packages that are not on PyPI, or have defaults
# that contradict each other.
UNBUILT = ("dinat edgetam edgetam_vision_model higgs_audio_v2_tokenizer layoutlmv2 pp_ocrv5_server_det "
           "pp_ocrv6_medium_det vitmatte voxtral_realtime_text").split()


def configuration(kind, mapping):
    fields = {}
    for path, value in OVERRIDES.get(kind, {}).items():
        *parents, last = path.split(".")
        place = fields
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return mapping[kind](**fields)


def classes(modeling_auto):
    """The classes of each model type."""
    types = {}
    for name in dir(modeling_auto):
        if name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES"):
            for kind, found in getattr(modeling_auto, name).items():
                for one in [found] if isinstance(found, str) else found:
                    types.setdefault(kind, {})[one] = None
    return {kind: list(found) for kind, found in sorted(types.items())}


# ---- Facts of one class ----------------------------------------------------------------------------------------------


def general(name):
    """The name with `*` for each number between dots."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


class OutOfTime(BaseException):
    pass


def out_of_time(*_):
    raise OutOfTime


def part(model, name):
    return model.get_submodule(name) if name else model


def is_router(name, module, parents):
    last = name.rpartition(".")[2]
    beside_experts = parents and any("experts" in child for child, _ in parents[-1].named_children())
    return any(re.search(r"Router|TopK", type(p).__name__) for p in [*parents, module]) or (
        last in ("router", "wg", "gate") and beside_experts)


def heads_of(model, vocabularies, transformers, nn):
    """Names of the heads: output embeddings, and linear layers that may be tied to a table or to one another; the
    linear layers tied to others, {name: the other's}; and those of several layers that share their weights."""
    heads, ties, shared = set(), {}, set()
    for name, module in model.named_modules():
        if not isinstance(module, transformers.PreTrainedModel):
            continue
        prefix = f"{name}." if name else ""
        parts = {n: m for n, m in module.named_modules() if isinstance(m, (nn.Linear, nn.Embedding))}
        head = module.get_output_embeddings()
        several = list(head) if isinstance(head, nn.ModuleList) else [head]
        heads.update(prefix + n for n, m in parts.items() if isinstance(m, nn.Linear) and any(m is h for h in several))
        tied = getattr(module, "_tied_weights_keys", None) or {}
        for keys in tied.items() if isinstance(tied, dict) else ():
            targets, sources = (
                [n for n in parts if re.fullmatch(rf"(?:{key})(?:[.].+)?", f"{n}.weight")] for key in keys)
            linear = [n for n in targets + sources if isinstance(parts[n], nn.Linear)]
            pairs = len(targets) == len(sources) and len(linear) == 2 * len(targets)
            # transformers ties the weights of two modules, not their scales.
            named = pairs and all(re.fullmatch(r"[\w.]+", key) and not re.search(r"[.]\d", key) for key in keys)
            if named or any(
                    isinstance(parts[n], nn.Embedding) or parts[n].weight.shape[0] in vocabularies for n in sources):
                heads.update(prefix + n for n in linear)
            elif set(linear) & set(targets) and set(linear) & set(sources):
                shared.update(prefix + n for n in linear)
            ties.update((prefix + a, prefix + b) for a, b in zip(targets, sources) if pairs and a != b)
    return heads, ties, shared


def kind_of(name, model, heads, nn, Conv1D):
    """What the module is that has a parameter of two or three dimensions, and the class of its parent."""
    module, path = part(model, name), name.split(".") if name else []
    parents = [part(model, ".".join(path[:i])) for i in range(len(path))]
    parent = type(parents[-1]).__name__ if parents else ""
    if isinstance(module, Conv1D):
        return "conv1d", parent
    if isinstance(module, nn.Embedding):
        return "table", parent
    if name in heads:
        return "head", parent
    if is_router(name, module, parents):
        return "router", parent
    if isinstance(module, nn.Linear):
        return "linear", parent
    return "experts" if "experts" in name.rpartition(".")[2] else "other", parent


def file_names(model, key, tensor, conversions, core):
    """Names of the tensors of the file that a parameter comes from."""
    model._weight_conversions = conversions
    try:
        return list(core.revert_weight_conversion(model, {key: tensor}))
    except Exception:
        return [key]


def facts_of(model, vocabularies, modules):
    """Parameters of two dimensions and of experts: [[name in the file, module's, kind, rows, parent]]; heads;
    layers that share a weight."""
    import torch
    transformers, nn, Conv1D, core, mapping = modules
    heads, ties, shared = heads_of(model, vocabularies, transformers, nn)
    every = mapping.get_model_conversion_mapping(model, add_legacy=False)
    plain = [c for c in every if not isinstance(c, core.PrefixChange)]
    seen, found, kinds = set(), {}, {}
    for key, tensor in model.state_dict().items():
        if tensor.ndim not in (2, 3) or general(key) in seen or not tensor.is_floating_point():
            continue
        seen.add(general(key))
        module = key.rpartition(".")[0]
        if module not in kinds:
            kinds[module] = kind_of(module, model, heads, nn, Conv1D)
        kind, parent = kinds[module]
        if tensor.ndim == 3 and kind != "experts":
            continue
        rows = tensor.shape if tensor.ndim == 2 else (2, *tensor.shape[1:])          # two experts stand for all
        sample = torch.empty(*rows, device="meta")
        for conversions in ([plain, every] if len(every) > len(plain) else [plain]):
            for name in file_names(model, key, sample, conversions, core) if conversions else [key]:
                found.setdefault((general(name), general(key)), [name, key, kind, tensor.shape[0], parent])
    for name, key, kind, rows, parent in list(found.values()):  # the file has one of two that are tied
        for tied, other in ties.items():
            if key == f"{other}.weight":
                module = f"{tied}.weight"
                found.setdefault((general(name), general(module)), [name, module, kind, rows, parent])
    return list(found.values()), sorted(heads), sorted({general(name) for name in shared})


def read_by_initializers(model, heads, nn):
    """Names of linear layers, numbers as stars, whose weight the initializers read, so that they fail without one."""
    bare, allowed, last = {}, {}, [None]

    def weight(module):
        last[0] = general(bare[module][0])
        if last[0] in allowed:
            return bare[module][1]
        raise AttributeError("no weight")
    for name, module in list(model.named_modules()):
        module._is_hf_initialized = False
        if isinstance(module, nn.Linear) and name not in heads:
            bare[module] = name, module._parameters.pop("weight")
            module.__class__ = type("Linear", (type(module),), {"weight": property(weight)})
    while True:
        last[0] = None
        try:
            model.initialize_weights()
            return sorted(allowed)
        except AttributeError:
            if last[0] is None or last[0] in allowed:  # another attribute is missing, as in a default configuration
                return sorted(allowed)
            allowed[last[0]] = None


def quantizer_of_transformers():
    from transformers.quantizers.quantizer_compressed_tensors import CompressedTensorsHfQuantizer
    from transformers.utils.quantization_config import CompressedTensorsConfig
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    group = {"targets": ["Linear"], "weights": weights, "format": "pack-quantized"}
    quantizer = CompressedTensorsHfQuantizer(CompressedTensorsConfig(
        config_groups={"group_0": group}, format="pack-quantized", quantization_status="compressed"))
    quantizer.validate_environment()
    return quantizer


def takes_experts(converter, model, torch):
    """Whether the operations behind the one that dequantizes run without the scales that it takes away."""
    found = {p: torch.zeros(2, 4, 4) for p in converter.source_patterns if p.endswith("_packed$")}
    try:
        for operation in converter.operations[1:]:
            found = operation.convert(found, converter.source_patterns, converter.target_patterns, config=model.config)
        return True
    except Exception:
        return False


def conversions_of(model, tensors, quantizer, modules):
    """What becomes of quantized modules as transformers loads them: {name, numbers as stars: "splits", "joins" or, if
    it does not find experts, "loses"}. The name is that of a tensor in the file."""
    import torch
    core, mapping = modules[3:]
    every = mapping.get_model_conversion_mapping(model, hf_quantizer=quantizer)
    renamings = [c for c in every if isinstance(c, core.WeightRenaming)]
    converters = [c for c in every if isinstance(c, core.WeightConverter)]
    found = {}
    for name, key, kind, *_ in tensors:
        module = name.removesuffix(".weight")
        if kind == "experts" and not re.search(r"[.]\d+[.][^.]+$", module):       # one tensor, which the program splits
            module = f"{module.rpartition('.')[0]}.0.down_proj"
        elif kind not in ("linear", "experts") or module == name:
            continue
        pattern = core.rename_source_key(f"{module}.weight_shape", renamings, converters)[1]
        one = next((c for c in converters if pattern in c.source_patterns), None)
        several = len(one.target_patterns) > 1 if one else None
        if kind == "experts" and (not one or not takes_experts(one, model, torch)):
            found[general(name)] = "loses"
        elif kind == "linear" and one:
            found[general(name)] = "splits" if several else "joins"
    return found


def listed(config):
    """model_type and vocab_size of a configuration and its parts, its own first."""
    for key in ("model_type", "vocab_size"):
        if config.get(key) and isinstance(config[key], (str, int)):
            yield key, config[key]
    for value in config.values():
        if isinstance(value, dict):
            yield from listed(value)


def collect(task):
    """Facts of a model type: {"classes": {class: {...}}, "failed": {class: error}}."""
    import torch, transformers
    from torch import nn
    from transformers import conversion_mapping, core_model_loading
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.pytorch_utils import Conv1D
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, out_of_time)
    modules = transformers, nn, Conv1D, core_model_loading, conversion_mapping
    quantizer = quantizer_of_transformers()
    kind, names = task
    row = {"classes": {}, "failed": {}}
    runnable = {v for maps in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
                               modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES) for v in maps.values()}
    for name in names:
        signal.alarm(SECONDS)
        try:
            with torch.device("meta"):
                model = getattr(transformers, name)(configuration(kind, CONFIG_MAPPING))
            config = list(listed(json.loads(model.config.to_json_string(use_diff=False))))
            vocabularies = [v for k, v in config if k == "vocab_size"]
            tensors, heads, shared = facts_of(model, vocabularies, modules)
            row["classes"][name] = {"tensors": tensors, "heads": heads, "shared": shared, "vocabularies": vocabularies,
                                    "types": [v for k, v in config if k == "model_type"],
                                    "converted": conversions_of(model, tensors, quantizer, modules),
                                    "backend": name in runnable and model.is_backend_compatible(),
                                    "reads": read_by_initializers(model, heads, nn)}
        except OutOfTime:
            row["failed"][name] = f"takes more than {SECONDS} s"
        except Exception as problem:
            row["failed"][name] = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
        signal.alarm(0)
    return kind, row


def collect_all(only, jobs):
    from transformers.models.auto import modeling_auto
    tasks = [(k, v) for k, v in classes(modeling_auto).items() if re.fullmatch(only, k) and k not in UNBUILT]
    with multiprocessing.Pool(jobs) as pool:
        return dict(pool.imap_unordered(collect, tasks, chunksize=4))


# ---- Facts of vLLM ---------------------------------------------------------------------------------------------------

LINEAR = {"ReplicatedLinear", "ColumnParallelLinear", "RowParallelLinear", "MergedColumnParallelLinear",
          "QKVParallelLinear", "GateLinear", "Linear"}


def unquantized(package):
    """(class, attribute) of linear layers that vLLM builds without a quant_config. Classes have transformers' names."""
    found = set()
    for path in glob.glob(os.path.join(package, "model_executor", "models", "**", "*.py"), recursive=True):
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for cls in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
            for node in (n for n in ast.walk(cls) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)):
                called, target = node.value.func, node.targets[0]
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                given = {k.arg: k.value for k in node.value.keywords}.get("quant_config")
                given = given if not isinstance(given, ast.Constant) else None
                positional = any("quant_config" in ast.unparse(a) for a in node.value.args)
                if name in LINEAR and given is None and not positional and isinstance(target, ast.Attribute):
                    found.add((cls.name, target.attr))
    return found


# vLLM 0.32 tries these by way of transformers' classes, and fails: a name, an attention that it cannot replace.
NOT_RUN = ("modernbert-decoder", "recurrent_gemma")


def registered(package):
    """Classes of transformers that vLLM has a class for."""
    with open(os.path.join(package, "model_executor", "models", "registry.py"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    tables = [n.value for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign)) and isinstance(n.value, ast.Dict)]
    return {key.value for table in tables for key, value in zip(table.keys, table.values)
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple)}


def lacking(package, facts):
    """Model types that vLLM has no class for and does not run by way of transformers' classes either."""
    from transformers.models.auto import modeling_auto
    known = registered(package)
    return {kind for kind, names in classes(modeling_auto).items() if kind in facts and not known & set(names) and (
        kind in NOT_RUN or not any(c["backend"] for c in facts[kind]["classes"].values()))}


# ---- Rows ------------------------------------------------------------------------------------------------------------

KINDS = ["linear", "head", "table", "router", "conv1d", "kept"]
KEEP = {**{kind: kind for kind in KINDS if kind != "linear"}, "other": "kept", "unquantized": "kept"}
LINEAR_KINDS = ("linear", "unquantized", "head", "router")  # nn.Linear, or a router that may be one
# Runtimes do not quantize these; the general rule leaves them in any model.
STAY = re.compile(r"weights_proj$|indexer[.]wk$|shared_expert_gate$|router|[.]wg$|eh_proj$")


def in_block(name):
    return "*" in name.split(".")[:-1]


def ask(program, questions):
    """Kinds by the general rule and by the table, and other names, of (types, vocabularies, module, rows)."""
    text = "".join(f"{','.join(t)}\t{','.join(map(str, v))}\t{n}\t{r}\n" for t, v, n, r in questions)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def modules_of(row, left):
    """(facts of the class, name in the file, module, kind, rows, is a weight) of what may be quantized. left: layers
    that vLLM does not quantize; in numbered blocks they are most of a model, which transformers loads quantized."""
    for facts in row["classes"].values():
        for file, key, kind, rows, parent in facts["tensors"]:
            weight, module = file.endswith(".weight"), key.rpartition(".")[0]
            name = file[:-7] if weight else file
            if kind == "linear" and (parent, module.rpartition(".")[2]) in left and not in_block(general(name)):
                kind = "unquantized"
            yield facts, name, module, kind, rows, weight


def matches(name, pattern):
    """The components of the pattern if it matches, as architecture.c does; `name` may hold stars for numbers."""
    parts, wanted = name.split("."), pattern.removeprefix("^").split(".")
    if len(wanted) > len(parts) or pattern.startswith("^") and len(wanted) != len(parts):
        return 0
    return len(wanted) if all(w in ("*", p) for w, p in zip(wanted[::-1], parts[::-1])) else 0


def shortest(name, others):
    """The shortest pattern of two components or more for a module that matches none of the others."""
    parts = name.split(".")
    for count in range(min(2, len(parts)), len(parts)):
        pattern = ".".join(parts[-count:])
        if parts[-count] != "*" and not any(matches(other, pattern) for other in others):
            return pattern
    return "^" + name


def components(name):
    return {part for part in name.split(".") if part != "*"}


def needed(modules, answers):
    """Names of modules that are quantized, and whether the initializers of a class read their weight; and the shortest
    list of components for .needs_weight: "" for none, "*" for all."""
    quantized = collections.defaultdict(bool)
    for (facts, name, module, _, _, weight), (_, kind, *_) in zip(modules, answers):
        if weight and kind == "linear":
            quantized[general(name)] |= general(module) in facts["reads"]
    reads, others = ([n for n, read in quantized.items() if read is wanted] for wanted in (True, False))
    if not reads or not others:
        return quantized, "*" if reads else ""
    chosen, usable = [], {c for n in reads for c in components(n)} - {c for n in others for c in components(n)}
    while any(not components(n) & set(chosen) for n in reads):
        rest = [n for n in reads if not components(n) & set(chosen)]
        best = max(sorted(usable), key=lambda c: sum(c in components(n) for n in rest), default=None)
        if best is None or not any(best in components(n) for n in rest):
            return quantized, "*"
        chosen.append(best)
    return quantized, "|".join(chosen)


def row_of(program, row, left):
    """What the table has to say about a model type: {column: [patterns]}."""
    modules = list(modules_of(row, left))
    answers = ask(program, [([], [], name, rows) for _, name, _, _, rows, _ in modules])
    general_rule, truth = collections.defaultdict(set), collections.defaultdict(set)
    for (_, name, _, kind, _, weight), answer in zip(modules, answers):
        if weight:
            truth[general(name)].add(kind)
            general_rule[general(name)].add(answer[0] == "linear")
    linear = {n for n, kinds in truth.items() if kinds & {"linear", "experts"}}
    stay = {n: next(KEEP[k] for k in KEEP if k in kinds) for n, kinds in truth.items() if kinds & set(KEEP)}
    names = collections.defaultdict(dict)
    for name, kind in stay.items():
        if True in general_rule[name]:
            names[kind][shortest(name, linear - {name})] = None
    for name in linear - set(stay):
        if False in general_rule[name] and in_block(name) and not STAY.search(name):
            names["linear"][shortest(name, set(stay))] = None
    for facts in row["classes"].values():  # heads that are not in the file if they are tied
        for head in map(general, facts["heads"]):
            composite = len(facts["types"]) > 1 and head.endswith(".lm_head")
            if head != "lm_head" and not composite and not any(matches(head, p) for p in names["head"]):
                names["head"][head if "." in head else "^" + head] = None
    found = {kind: sorted(p for p in patterns if p[0] != "^" or p[1:] not in patterns)
             for kind, patterns in names.items() if patterns}
    renames = renames_of(modules)
    return {**found, **({"renames": renames} if renames else {})}


# ---- Names of modules ------------------------------------------------------------------------------------------------


def apply(name, a, b):
    """The name with the components `a` replaced by `b`, as architecture.c does; None if they are not in it."""
    anchored, a, parts = a.startswith("^"), a.removeprefix("^").split("."), name.split(".")
    for at in range(1 if anchored else len(parts) - len(a) + 1):
        run = parts[at:at + len(a)]
        if len(run) == len(a) and all(x == y or x == "*" and (y.isdigit() or y == "*") for x, y in zip(a, run)):
            stars = iter([y for x, y in zip(a, run) if x == "*"])
            new = [next(stars) if part == "*" else part for part in b.split(".")] if b else []
            return ".".join(parts[:at] + new + parts[at + len(a):])
    return None


def generalize(name, module):
    """Both names with stars for the numbers that they share, in order."""
    a, b, at = name.split("."), module.split("."), 0
    for i, component in enumerate(a):
        found = next((j for j in range(at, len(b)) if b[j] == component), None) if component.isdigit() else None
        if found is not None:
            a[i] = b[found] = "*"
            at = found + 1
    return ".".join(a), ".".join(b)


def candidates(name, module):
    """FROM and TO that turn the name into the module's, from the least context to the most, to the left first."""
    a, b = name.split("."), module.split(".")
    tail = start = 0
    while tail < min(len(a), len(b)) and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    while start < min(len(a), len(b)) - tail and a[start] == b[start]:
        start += 1
    spans = [(i, 0) for i in range(start, -1, -1)] + [(0, k) for k in range(1, tail + 1)]
    for begin, more in spans:
        old, new = a[begin:len(a) - tail + more], b[begin:len(b) - tail + more]
        if old and (new or begin == 0) and old.count("*") >= new.count("*"):
            yield ".".join(old), ".".join(new)
            if begin == 0:
                yield "^" + ".".join(old), ".".join(new)


def renames_of(modules):
    """FROM>TO of the linear layers whose module has another name than the file, each right for every name."""
    pairs = collections.defaultdict(set)
    for _, name, module, kind, _, _ in modules:
        if kind in LINEAR_KINDS:
            name, module = generalize(name, module)
            pairs[name].add(module)
    rules = {}
    for name, targets in pairs.items():
        for module in sorted(targets):
            if module == name or any(apply(name, a, b) == module for a, b in rules):
                continue
            fits = (pair for pair in candidates(name, module) if apply(name, *pair) == module and all(
                apply(other, *pair) in (None, *wanted) for other, wanted in pairs.items()))
            rules[next(fits, ("^" + name, module))] = None
    return sorted(f"{a}>{b}" for a, b in rules)


# ---- The file --------------------------------------------------------------------------------------------------------

COLUMNS = {**{kind: f"names[MODULE_{kind.upper()}]" for kind in KINDS}, "renames": "renames"}
HEADER = """/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rows of struct architecture by the classes of transformers 5.17 and vLLM 0.32, written by scripts/architectures.py:
 * what the general rule of architecture.c gets wrong, how transformers calls modules, and what does not load. The last
 * rows have the types that need nothing, and those that vLLM lacks. */
"""


def known_types():
    with open(TABLE, encoding="utf-8") as file:
        rows = re.findall(r"\.types = ((?:\"[^\"]*\"\s*)+)", file.read())
    return set(" ".join(re.findall(r'"([^"]*)"', " ".join(rows))).split())


def wrapped(name, value):
    """A field of a row, in lines of at most 120 columns. A FROM>TO that is too long is cut behind its sign."""
    lines, most = [""], 112 - len(name)
    for word in value.split(" "):
        pieces = re.split("(?<=>)", word, maxsplit=1) if len(word) > most else [word]
        for piece in [*pieces[:-1], pieces[-1] + " "]:
            if lines[-1] and len(lines[-1]) + len(piece) > most:
                lines.append("")
            lines[-1] += piece
    lines[-1] = lines[-1].rstrip()
    return f".{name} = " + ("\n" + " " * (len(name) + 5)).join(f'"{line}"' for line in lines)


def write_table(program, facts, left, lacks):
    """Writes the rows of all types, those of the same contents as one."""
    types = collections.defaultdict(list)
    for kind, row in sorted({**dict.fromkeys(UNBUILT), **facts}.items()):
        fields = row_of(program, row, left) if row else {}
        types[tuple((COLUMNS[k], " ".join(fields[k])) for k in COLUMNS if k in fields)].append(kind)
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(HEADER)
        for fields, kinds in sorted(types.items(), key=lambda item: (not item[0], item[1])):
            for first in range(0, len(kinds), 200):        # C99 has strings of at most 4095 bytes
                lines = [wrapped("types", " ".join(kinds[first:first + 200])), *(wrapped(*field) for field in fields)]
                file.write("{" + ",\n ".join(lines) + "},\n")
        file.write("/* vLLM has no class of them. */\n")
        for first in range(0, len(lacks), 200):
            file.write("{" + wrapped("types", " ".join(sorted(lacks)[first:first + 200])) + ",\n .lacks_vllm = true},\n")


# ---- Tests -----------------------------------------------------------------------------------------------------------


def faults(program, row, left, lacks):
    """What the table says wrongly about the names of a model type. lacks: vLLM has no class of it; None: unknown."""
    modules = list(modules_of(row, left))
    wanted, linear = collections.defaultdict(set), set()
    for facts, name, module, kind, _, _ in modules:
        wanted[name].add(module)
        if kind in ("linear", "experts"):
            linear.add(name)
    answers = ask(program, [(f["types"], f["vocabularies"], n, r) for f, n, _, _, r, _ in modules])
    if lacks is not None and any(("v" in answer[2]) != lacks for answer in answers):
        yield f"vLLM {'lacks' if lacks else 'has'} it, the table says otherwise"
    quantized, needs = needed(modules, answers)
    loses = False
    for (facts, name, _, _, _, weight), (_, found, letters, *_) in zip(modules, answers):
        how = facts["converted"].get(general(f"{name}.weight" if weight else name), "does nothing")
        loses |= how == "loses" and "e" not in letters
        for word in ("splits", "joins"):
            if weight and found == "linear" and (how == word) != (word[0] in letters):
                yield f"{name}: transformers {how}, .{word} says otherwise"
    if any("p" in letters for _, _, letters, *_ in answers) != loses:
        yield f"transformers {'does not find' if loses else 'finds'} quantized experts, .plain_experts says otherwise"
    for (_, name, _, _, _, weight), (_, found, letters, *_) in zip(modules, answers):
        if weight and found == "linear" and quantized[general(name)] and "w" not in letters:
            yield f"{name}: the initializers read its weight: .needs_weight = \"{needs}\""
        if weight and "w" in letters and not any(quantized.values()) and not row["whole"]:
            yield f"{name}: .needs_weight has it, and the initializers read no weight"
    for (facts, name, module, _, _, weight), (_, found, letters, *_) in zip(modules, answers):
        if weight and found == "linear" and general(module) in facts["shared"] and "t" not in letters:
            yield f"{name} shares its weight with other layers, .ties says otherwise"
    for (facts, name, module, kind, _, weight), (_, found, _, *others) in zip(modules, answers):
        if weight and kind in KEEP and name not in linear and found == "linear":
            yield f"{name} is a {kind}, the table says linear"
        if weight and kind in ("linear", "experts") and found not in ("linear", "experts") and in_block(
                general(name)) and not STAY.search(name) and general(module) not in facts["shared"]:
            yield f"{name} is {kind}, the table says {found}"
        if kind in LINEAR_KINDS and module != name and module not in others:
            yield f"{name} is the module {module}, the table says {' '.join(others) or 'so, too'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--facts")
    parser.add_argument("--vllm")
    parser.add_argument("--only", default=".*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    if options.facts and os.path.exists(options.facts):
        with open(options.facts, encoding="utf-8") as file:
            facts = json.load(file)
    else:
        facts = collect_all(options.only, options.jobs)
        if options.facts:
            with open(options.facts, "w", encoding="utf-8") as file:
                json.dump(facts, file)
    facts = {k: v for k, v in sorted(facts.items()) if re.fullmatch(options.only, k)}
    left = unquantized(options.vllm) if options.vllm else set()
    lacks = lacking(options.vllm, facts) if options.vllm else set()
    if options.write:
        write_table(options.kinds, {k: v for k, v in facts.items() if v["classes"]}, left, lacks)
        return 0
    known, passed, failed = known_types(), 0, 0
    for kind, row in facts.items():
        row["whole"] = bool(row["failed"])
        found = list(faults(options.kinds, row, left, kind in lacks if options.vllm else None))
        errors = [e for e in row["failed"].values() if "ImportError" in e]
        if not row["classes"] and errors:
            print(f"skipped: {kind}: {errors[0]}")
            continue
        if kind not in known:
            found.insert(0, "is a new model type: --write adds it")
        if not row["classes"]:
            found.insert(0, f"no class is built: {next(iter(row['failed'].values()), 'it has none')}")
        passed, failed = passed + (not found), failed + bool(found)
        if found:
            print(f"FAIL {kind}: " + "\n     ".join(found if options.verbose else found[:4]))
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
