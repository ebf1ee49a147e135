# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Rows of architectures by the installed transformers and vLLM, for `qobs quantize --architectures FILE`.

    python -m libqobs.architectures [MODEL_DIR | --all] -o rows.json [--vllm PACKAGE_DIR]

Every class of transformers that has the model's type, or with --all any, is built on the meta device: no weights, some
seconds a type. Its modules say what each matrix is (nn.Linear, nn.Embedding, Conv1D, router, head). Its conversions say
which name it has in the file, what they split and join, and whether they find quantized experts. It ties some layers.
Its initializers say whether packed weights load: they fail at a linear layer without a weight, or do not. The sources
of vLLM are read (_vllm_sources.py): which architectures it has, and what it builds without a quant_config.
"""
import argparse, collections, importlib.util, json, multiprocessing, os, re, signal, sys

from . import _vllm_sources

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
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


def configuration(kind, mapping, directory=None):
    """The configuration of a class: that of the directory, or the default one."""
    if directory:
        found = mapping[kind].from_pretrained(directory)
        vars(found).pop("quantization_config", None)
        return found
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
    found = {p: torch.zeros(2, 4, 4) for p in converter.source_patterns if re.search(r"_packed\$?$", p)}
    try:
        for operation in converter.operations[1:]:
            found = operation.convert(found, converter.source_patterns, converter.target_patterns, config=model.config)
        return True
    except Exception:
        return False


def quantized_mapping(model, quantizer, mapping):
    """The conversions of a quantized model. From 5.24 on transformers builds none that splits a module that it finds
    unquantized; these stay as they are for an unquantized model."""
    try:
        return mapping.get_model_conversion_mapping(model, hf_quantizer=quantizer)
    except ValueError:
        every = []
        for one in mapping.get_model_conversion_mapping(model):
            try:
                every += quantizer.update_weight_conversions([one], model)
            except ValueError:
                every.append(one)
        return every


def conversions_of(model, tensors, quantizer, modules):
    """What becomes of quantized modules as transformers loads them: {name, numbers as stars: "splits", "joins" or, if
    it does not find experts, "loses"}. The name is that of a tensor in the file."""
    import torch
    core, mapping = modules[3:]
    every = quantized_mapping(model, quantizer, mapping)
    renamings = [c for c in every if isinstance(c, core.WeightRenaming)]
    converters = [c for c in every if isinstance(c, core.WeightConverter)]
    found = {}
    for name, key, kind, *_ in tensors:
        module = name.removesuffix(".weight")
        if kind == "experts" and not re.search(r"[.]\d+[.][^.]+$", module):       # one tensor, which the program splits
            module = f"{module.rpartition('.')[0]}.0.down_proj"
        elif kind not in ("linear", "experts") or module == name:
            continue
        one = None
        for part in ("weight_shape", "weight"):
            pattern = core.rename_source_key(f"{module}.{part}", renamings, converters)[1]
            one = one or next((c for c in converters if pattern in c.source_patterns), None)
            if kind == "experts":
                break
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
    kind, names, directory = task
    row = {"classes": {}, "failed": {}}
    runnable = {v for maps in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
                               modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES) for v in maps.values()}
    for name in names:
        signal.alarm(SECONDS)
        try:
            with torch.device("meta"):
                model = getattr(transformers, name)(configuration(kind, CONFIG_MAPPING, directory))
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


def collect_all(wanted, jobs, directory=None):
    """Facts of these model types; None: of all. The first is built with the configuration of the directory."""
    from transformers.models.auto import modeling_auto
    tasks = [(k, v, directory if wanted and k == wanted[0] else None) for k, v in classes(modeling_auto).items()
             if wanted is None and k not in UNBUILT or wanted and k in wanted]
    if jobs == 1:
        return dict(map(collect, tasks))
    with multiprocessing.Pool(jobs) as pool:
        return dict(sorted(pool.imap_unordered(collect, tasks, chunksize=4)))


# ---- Facts of vLLM ---------------------------------------------------------------------------------------------------

# vLLM 0.32 tries these by way of transformers' classes, and fails: a name, an attention that it cannot replace.
NOT_RUN = ("modernbert-decoder", "recurrent_gemma")


def vllm_package(path=None):
    """The directory of vLLM's package and its version; (None, None) if there is none."""
    if path is None:
        spec = importlib.util.find_spec("vllm")
        path = spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else None
    if path is None:
        return None, None
    with open(os.path.join(path, "_version.py"), encoding="utf-8") as file:
        version = re.search(r"^(?:__version__ = )?version = '([^'+]*)", file.read(), re.MULTILINE) or [None, "0"]
    return path, version[1]


# ---- Rows ------------------------------------------------------------------------------------------------------------

KINDS = ["linear", "head", "table", "router", "conv1d", "kept"]
KEEP = {**{kind: kind for kind in KINDS if kind != "linear"}, "other": "kept"}
LINEAR_KINDS = ("linear", "head", "router")  # nn.Linear, or a router that may be one
COLUMNS = [*KINDS, "experts", "stacked_experts", "vllm_keeps", "needs_weight", "splits", "joins", "ties",
           "plain_experts", "lacks_vllm", "lacks_transformers", "renames"]
# Runtimes do not quantize these linear layers, in any model.
STAY = {"router": re.compile(r"shared_expert_gate$|router|[.]wg$"),
        "kept": re.compile(r"weights_proj$|indexer[.]wk$|eh_proj$")}


def in_block(name):
    return "*" in name.split(".")[:-1]


def modules_of(row):
    """(facts of the class, name in the file, module, kind, rows, is a weight) of what may be quantized."""
    for facts in row["classes"].values():
        for file, key, kind, rows, _ in facts["tensors"]:
            weight = file.endswith(".weight")
            yield facts, file[:-7] if weight else file, key.rpartition(".")[0], kind, rows, weight


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


def cover(wanted, others):
    """Runs of components that every wanted name has and no other one; "*" if there are no others, or no such runs."""
    if not wanted or not others:
        return ["*"] if wanted else []
    chosen, rest = [], set(wanted)
    usable = {r for n in wanted for r in _vllm_sources.runs(n)} - {r for n in others for r in _vllm_sources.runs(n)}
    while rest:
        best = max(sorted(usable, key=lambda r: (r.count("."), r)), default=None,
                   key=lambda r: sum(_vllm_sources.has_run(n, r) for n in rest))
        if best is None or not any(_vllm_sources.has_run(n, best) for n in rest):
            return ["*"]
        chosen.append(best)
        rest = {n for n in rest if not _vllm_sources.has_run(n, best)}
    return sorted(chosen)


def kinds_of(modules):
    """What the modules of the files are, by name: linear ones, and the kinds of those that stay."""
    truth = collections.defaultdict(set)
    for _, name, _, kind, _, weight in modules:
        if weight:
            truth[general(name)].add(kind)
    linear = {n for n, kinds in truth.items() if kinds & {"linear", "experts"}}
    stay = {n: next(KEEP[k] for k in KEEP if k in kinds) for n, kinds in truth.items() if kinds & set(KEEP)}
    for name in linear - set(stay):
        kind = next((k for k, pattern in STAY.items() if pattern.search(name)), None)
        stay.update({name: kind} if kind else {})
    return linear, stay


def row_of(row, keeps=(), lacks=False, rule=None):
    """What the table has to say about a model type: {column: [patterns] or True}. rule(modules) says which modules the
    general rule takes for linear; without it every module is named."""
    modules = list(modules_of(row))
    linear, stay = kinds_of(modules)
    right, names = rule(modules) if rule else {}, collections.defaultdict(dict)
    for name, kind in stay.items():
        if True in right.get(name, {True}):
            names[kind][shortest(name, linear - set(stay))] = None
    for name in linear - set(stay):
        if False in right.get(name, {False}) and in_block(name):
            names["linear"][shortest(name, set(stay))] = None
    for facts in row["classes"].values():  # heads that are not in the file if they are tied
        for head in map(general, facts["heads"]):
            composite = len(facts["types"]) > 1 and head.endswith(".lm_head")
            head = shortest(head, linear - set(stay) - {head}) if "*" in head else head
            if head != "lm_head" and not composite and not any(matches(head, p) for p in names["head"]):
                names["head"][head if "." in head or head[0] == "^" else "^" + head] = None
    found = {kind: sorted(p for p in patterns if p[0] != "^" or p[1:] not in patterns)
             for kind, patterns in names.items() if patterns}
    found.update(loading_of(modules, {n for n in linear if n not in stay}, lacks))
    found.update({"vllm_keeps": sorted(keeps), "renames": renames_of(modules), "lacks_vllm": lacks})
    return {column: found[column] for column in COLUMNS if found.get(column)}


def loading_of(modules, quantized, lacks):
    """How transformers loads quantized modules: the columns from experts to ties."""
    marks = collections.defaultdict(set)
    loses, whole = False, {}
    for facts, name, module, kind, _, weight in modules:
        how = facts["converted"].get(general(f"{name}.weight" if weight else name))
        if how == "loses":
            loses = True
            if not re.search(r"[.][*0-9]+[.][^.]+$", general(name)):
                whole[general(name if weight else name.rpartition(".")[0]).rpartition(".")[2]] = None
        elif weight and general(name) in quantized:
            marks[how].add(general(name))
        if weight and general(name) in quantized:
            if general(module) in facts["reads"]:
                marks["reads"].add(general(name))
            if general(module) in facts["shared"]:
                marks["shared"].add(general(name))
    columns = {"needs_weight": "reads", "splits": "splits", "joins": "joins", "ties": "shared"}
    found = {column: cover(marks[how], quantized - marks[how]) for column, how in columns.items()}
    if loses and whole and lacks:
        return {**found, "experts": sorted(whole)}
    return {**found, "plain_experts": loses}


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


def plain(name):
    """The name of a class, as both runtimes have it: some write other cases, or underscores."""
    return name.split()[0].replace("_", "").lower()


def vllm_of(package, facts, every=True):
    """What vLLM says: {architecture: [runs of components that it keeps]}, and the types that it lacks. Not every: the
    architectures of the facts alone."""
    wanted = None if every else {plain(name) for row in facts.values() for name in row["classes"]}
    kept = {name: _vllm_sources.keeps(row.get("unquantized", []), row.get("quantized", []))
            for name, row in _vllm_sources.architectures(package, wanted).items()}
    names = {plain(name) for name in kept}
    lacks = {kind for kind, row in facts.items() if not any(plain(name) in names for name in row["classes"]) and (
        kind in NOT_RUN or not any(c["backend"] for c in row["classes"].values()))}
    return kept, lacks


def rows_of(facts, package, every):
    """Rows of the types, in the form of the JSON file."""
    kept, lacks = vllm_of(package, facts, every) if package else ({}, set())
    kept = {plain(name): keeps for name, keeps in kept.items()}
    rows = []
    for kind, row in facts.items():
        if row["classes"]:
            keeps = {run for name in row["classes"] for run in kept.get(plain(name), ())}
            rows.append({"types": [kind], **row_of(row, keeps, kind in lacks)})
    return rows


def types_of(directory):
    """The model types of a configuration and its parts."""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        return list(dict.fromkeys(v for k, v in listed(json.load(file)) if k == "model_type"))


def document(model=None, vllm=None, jobs=1):
    """What the file says about the types of a model, or with None about all: a dict for JSON."""
    import transformers
    package, version = vllm_package(vllm)
    facts = collect_all(types_of(model) if model else None, jobs, model)
    rows = rows_of(facts, package, not model)
    return {"transformers": transformers.__version__, "vllm": version or "0", "architectures": rows}


def main():
    parser = argparse.ArgumentParser(prog="python -m libqobs.architectures", description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", help="a directory with a config.json: its types alone")
    parser.add_argument("--all", action="store_true", help="every type of transformers; some minutes")
    parser.add_argument("-o", "--out", required=True, help="the file to write")
    parser.add_argument("--vllm", metavar="PACKAGE_DIR", help="the directory of vLLM's package; else the installed one")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once; default 1")
    parser.add_argument("--installed", action="store_true",
                        help=argparse.SUPPRESS)  # libqobs.quantize asks for the file
    options = parser.parse_args()
    if bool(options.model) == options.all:
        parser.error("either MODEL_DIR or --all is needed")
    found = document(options.model, options.vllm, options.jobs)
    wanted = types_of(options.model)[:1] if options.model else []
    if wanted and not any(wanted[0] in row["types"] for row in found["architectures"]):
        parser.exit(1, f"python -m libqobs.architectures: transformers {found['transformers']} builds no class of "
                       f"{wanted[0]!r}\n")
    if options.installed:
        found["source"] = "installed"
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
