# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Quantization block by block with the error of earlier layers in the rounding, against the formula in float64."""
import filecmp
import json
import os
import shutil
import subprocess
import sys

import libqobs as qobs
import pytest
from test_blocks import (SMALL, address, assert_same_model, batches, contents, kill_again_and_again,  # noqa: F401
                         run, saved, stop_after, words)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", "5")
ORDER = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
         "mlp.down_proj"]
STAGES = [ORDER[:3], ORDER[3:4], ORDER[4:6], ORDER[6:]]
SETTINGS = {"group_size": 32}
CACHED = {"kv_cache_scheme": {"num_bits": 8, "type": "float"}, "ignore": ["lm_head"],
          "config_groups": {"group": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32}}}}
MIXED = {"config_groups": {
    "a": {"targets": ["re:.*down_proj"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
    "b": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32}}}}
UNQUANTIZED = {"config_groups": {}, "kv_cache_scheme": {"num_bits": 8, "type": "float"}}


def model_at(tmp_path):
    return saved(transformers.LlamaConfig(**SMALL), tmp_path / "model")


def quantized_matrices(folder):
    from libqobs._quantized import Checkpoint, dequantize
    made = Checkpoint(str(folder))
    return {name: dequantize(made.of_module(name), made.scheme(name)).double() for name in made.quantized}


def inputs(model, names):
    """The inputs of layers for all batches, a row a token."""
    seen = {name: [] for name in names}
    handles = [model.get_submodule(name).register_forward_pre_hook(
        lambda module, args, name=name: seen[name].append(args[0].flatten(0, -2))) for name in names]
    with torch.no_grad():
        for batch in batches():
            model(**batch, use_cache=False)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(rows).double() for name, rows in seen.items()}


def corrected(x, y, w):
    """A and V by their definition."""
    count, n = y.shape
    a = y.T @ y / max(count, 1)
    a += torch.eye(n) * max(0.1, n / max(count, 1)) * (a.diagonal().mean() if count else 1)
    return a, w + w @ ((x - y).T @ y / max(count, 1)) @ torch.linalg.inv(a)


def objective(x, y, w, q):
    """(Q - V) A (Q - V)^T of a weight."""
    a, v = corrected(x, y, w)
    d = q - v
    return ((d @ a) * d).sum().item()


def both(folder):
    return [transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) for _ in range(2)]


def objectives_of(own, other, made, block, stage):
    names, found = [f"model.layers.{block}.{name}" for name in stage], {}
    x, y = (inputs(model, names[:1])[names[0]] for model in (own, other))
    for name in names:
        w = own.get_submodule(name).weight.data
        found[name] = objective(x, y, w.double(), made[name])
        other.get_submodule(name).weight.data = made[name].float()
    return found


def objectives(folder, out):
    """The objective of each layer, with whole models in float64 sums."""
    (own, other), made, found = both(folder), quantized_matrices(out), {}
    for block in range(SMALL["num_hidden_layers"]):
        for stage in STAGES:
            found |= objectives_of(own, other, made, block, stage)
    return found


def experts_of(model, block, given):
    """A layer of experts, and the arguments of its calls."""
    module, seen = model.model.layers[block].mlp.experts, []
    handle = module.register_forward_pre_hook(lambda module, args: seen.append(args[:2]))
    with torch.no_grad():
        for batch in given:
            model(**batch, use_cache=False)
    handle.remove()
    return module, *(torch.cat(part) for part in zip(*seen))


def objectives_of_experts(own, other, made, block):
    """Tokens are those of the router of the quantized model."""
    (first, x, _), (second, y, chosen) = (experts_of(model, block, batches()) for model in (own, other))
    found = {}
    for e in range(first.num_experts):
        mask, name = (chosen == e).any(-1), f"model.layers.{block}.mlp.experts.{e}"
        half = first.gate_up_proj.shape[1] // 2
        rows = [(f"{name}.gate_proj", slice(0, half)), (f"{name}.up_proj", slice(half, None))]
        for part, place in rows:
            w = first.gate_up_proj.data[e, place].double()
            found[part] = objective(x[mask].double(), y[mask].double(), w, made[part])
            second.gate_up_proj.data[e, place] = made[part].float()
        inner = [module._apply_gate(z[mask] @ module.gate_up_proj.data[e].T).double()
                 for module, z in ((first, x), (second, y))]
        found[f"{name}.down_proj"] = objective(*inner, first.down_proj.data[e].double(), made[f"{name}.down_proj"])
        second.down_proj.data[e] = made[f"{name}.down_proj"].float()
    return found


@pytest.mark.parametrize("scheme, settings", [
    ("W4A16", SETTINGS), ("W4A16_ASYM", {**SETTINGS, "num_bits": 3}), ("NVFP4A16", {}), ("MXFP4A16", {})])
def test_the_objective_is_that_of_the_formula(scheme, settings, tmp_path):
    """Inputs of each stage are those of the model whose weights before it are quantized."""
    folder = model_at(tmp_path)
    report = qobs.quantize_blocks(folder, tmp_path / "out", batches(), scheme, settings=settings)
    expected = objectives(folder, tmp_path / "out")
    assert {layer["name"] for layer in report["layers"]} == set(expected) and report["run"] == 3
    for layer in report["layers"]:
        found = layer["rounding"]
        # V is stored in bfloat16, as the weights are
        assert found["error"] == pytest.approx(expected[layer["name"]], rel=0.05), layer["name"]
        assert found["error"] <= found["error_before"]
    assert qobs.audit(tmp_path / "out", folder)["findings"] == []
    assert sorted(os.listdir(tmp_path)) == ["model", "out"]


@pytest.mark.parametrize("scheme, settings, group", [
    ("FP8_DYNAMIC", {}, (1, 0)), ("FP8_BLOCK", {"block_structure": "[16,32]"}, (16, 32)), ("FP8", {}, (0, 0)),
    ("MXFP8A16", {}, (1, 32))])
def test_floats_of_8_bits_are_nearest_to_the_corrected_weights(scheme, settings, group, tmp_path):
    """group: rows and columns of a scale, 0: all. A code is one of the two around V."""
    folder = model_at(tmp_path)
    qobs.quantize_blocks(folder, tmp_path / "out", batches(), scheme, settings=settings)
    (own, other), made = both(folder), quantized_matrices(tmp_path / "out")
    for block in range(SMALL["num_hidden_layers"]):
        for stage in STAGES:
            names = [f"model.layers.{block}.{name}" for name in stage]
            x, y = (inputs(model, names[:1])[names[0]] for model in (own, other))
            for name in names:
                _, v = corrected(x, y, own.get_submodule(name).weight.data.double())
                assert_nearest_floats(made[name], v, group)
                other.get_submodule(name).weight.data = made[name].float()
    assert not torch.equal(v, own.get_submodule(name).weight.data.double())
    assert qobs.audit(tmp_path / "out", folder)["findings"] == []


def assert_nearest_floats(q, v, group):
    """An e4m3 number has 3 bits of mantissa, and the smallest is 2^-9 of 448 steps; V was rounded to bfloat16."""
    rows, columns = (size or whole for size, whole in zip(group, v.shape))
    for i in range(0, v.shape[0], rows):
        for j in range(0, v.shape[1], columns):
            part, found = v[i:i + rows, j:j + columns], q[i:i + rows, j:j + columns]
            step = 2.0 ** -9 * part.abs().max() / 448 * 2  # a scale that is a power of two is at most twice as large
            assert ((found - part).abs() <= part.abs() * (2.0 ** -4 + 2.0 ** -7) + step).all()


@pytest.mark.parametrize("arguments", [{"scheme": CACHED}, {"scheme": "W4A16", "kv_cache": True},
                                       {"scheme": "FP8", "kv_cache": True}])
def test_scales_of_keys_and_values_are_those_of_the_quantized_model(arguments, tmp_path, monkeypatch):
    """Also after an interruption."""
    folder, settings = model_at(tmp_path), {} if arguments["scheme"] == "FP8" else SETTINGS
    stop_after(monkeypatch, "begin_hidden", 3)
    with pytest.raises(Exception, match="^$"):
        qobs.quantize_blocks(folder, tmp_path / "out", batches(), settings=settings, **arguments)
    monkeypatch.undo()
    assert qobs.quantize_blocks(folder, tmp_path / "out", batches(), settings=settings, **arguments)["run"] == 1
    model = both(folder)[0]
    put(model, quantized_matrices(tmp_path / "out"))
    expected = qobs.calibrate(model, batches(), "FP8", kv_cache=True).scales()
    from safetensors.torch import load_file
    found = load_file(tmp_path / "out" / "model.safetensors")
    names = [name for name in found if name.endswith((".k_scale", ".v_scale"))]
    assert len(names) == 6 and len({found[name].item() for name in names}) > 1
    for name in names:
        assert found[name].dtype == torch.bfloat16 and found[name].shape == (1,)
        assert found[name].float().item() == pytest.approx(expected[name].float().item(), rel=0.01), name
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert config["kv_cache_scheme"]["num_bits"] == 8
    assert qobs.audit(tmp_path / "out", folder)["findings"] == []


def outputs(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return torch.cat([model(**batch, use_cache=False).logits.log_softmax(-1).flatten(0, 1) for batch in batches()])


def test_outputs_are_nearer_than_without(tmp_path):
    """Of the model as transformers loads it, on the calibration's own tokens."""
    pytest.importorskip("compressed_tensors")
    folder = model_at(tmp_path)
    expected = outputs(folder)
    qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings=SETTINGS)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    wanted = "qobs.local_hessian group_size=32 hessian_block_size=1048576"
    qobs.calibrate(model, batches(), "W4A16", importance=wanted).quantize(
        folder, tmp_path / "plain", settings={"rounding": "descent"})
    own, plain = ((outputs(tmp_path / name) - expected).square().mean() for name in ("out", "plain"))
    assert own < plain


def test_files_are_those_of_quantize(tmp_path):
    """Names, dtypes, shapes and the configuration, but for codes and scales."""
    folder = model_at(tmp_path)
    qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings=SETTINGS)
    qobs.calibrate(transformers.AutoModelForCausalLM.from_pretrained(folder), batches(), "W4A16",
                   importance="qobs.local_hessian group_size=32 hessian_block_size=1048576").quantize(
                       folder, tmp_path / "plain", settings={"rounding": "descent"})
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tmp_path / "plain"))
    own, plain = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("out", "plain"))
    assert own == plain
    heads = []
    for name in ("out", "plain"):
        raw = (tmp_path / name / "model.safetensors").read_bytes()
        heads.append(raw[:8 + int.from_bytes(raw[:8], "little")])
    assert heads[0] == heads[1]


@pytest.mark.parametrize("method, calls, ran", [
    ("put", 1, 3), ("put", 5, 2), ("end_hidden", 2, 2), ("add_files", 1, 3), ("add_files", 3, 1), ("drop_hidden", 2, 1),
    ("remove", 1, None)])
def test_an_interrupted_run_goes_on(method, calls, ran, tmp_path, monkeypatch):
    folder = model_at(tmp_path)
    qobs.quantize_blocks(folder, tmp_path / "expected", batches(), "W4A16", settings=SETTINGS)
    stop_after(monkeypatch, method, calls)
    with pytest.raises(Exception, match="^$"):
        qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings=SETTINGS)
    monkeypatch.undo()
    if ran is not None:
        with pytest.raises(qobs.InvalidArgumentError, match="was begun with .*; go on with that, or remove it"):
            qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings={"group_size": 64})
        report = qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings=SETTINGS)
        assert report["run"] == ran and sorted(os.listdir(tmp_path)) == ["expected", "model", "out"]
    names = os.listdir(tmp_path / "expected")
    assert filecmp.cmpfiles(tmp_path / "out", tmp_path / "expected", names, shallow=False)[1:] == ([], [])


def quantize_to_4_bits(folder, out):
    qobs.quantize_blocks(folder, out, batches(), "W4A16", settings=SETTINGS)


def test_kills(tmp_path):
    folder, out = model_at(tmp_path), tmp_path / "out"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    quantize_to_4_bits(folder, tmp_path / "expected")
    torch.set_num_threads(threads)
    names = os.listdir(tmp_path / "expected")

    def check():
        assert sorted(os.listdir(out)) == sorted(names)
        assert filecmp.cmpfiles(out, tmp_path / "expected", names, shallow=False)[1:] == ([], [])
    kill_again_and_again(quantize_to_4_bits, folder, out, check)


FULL_DISK = """
import os, pathlib, subprocess, sys
import libqobs as qobs
sys.path.insert(0, sys.argv[1])
import test_corrected as t
folder, disk = sys.argv[2:]
size, kinds = 100, []

def mount(*options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join([*options, f"size={size}k"]), "tmpfs", disk], check=True)
mount()
while True:
    try:
        report = qobs.quantize_blocks(folder, f"{disk}/out", t.batches(), "W4A16", settings=t.SETTINGS)
        break
    except (OSError, qobs.SystemFailure) as failure:
        assert "No space left on device" in str(failure) and disk in str(failure), failure
        kinds.append(sorted(name for name in os.listdir(f"{disk}/out.blocks") if name.startswith(("b", "w"))))
    size += 25
    mount("remount")
assert os.listdir(disk) == ["out"] and report["run"] < 3 and len({str(kind) for kind in kinds}) > 3, (report, kinds)
t.assert_same_model(pathlib.Path(disk, "out"), pathlib.Path(folder, "..", "expected"))
"""


def test_a_full_disk(tmp_path):
    """A disk that is full at more and more moments: an error with the file, and the next run goes on."""
    unshare = ["unshare", "--map-root-user", "--mount"]
    os.mkdir(tmp_path / "disk")
    small = ["mount", "-t", "tmpfs", "tmpfs", str(tmp_path / "disk")]
    if not shutil.which("unshare") or subprocess.run([*unshare, *small], capture_output=True).returncode:
        pytest.skip("no small disk can be mounted")
    folder = model_at(tmp_path)
    qobs.quantize_blocks(folder, tmp_path / "expected", batches(), "W4A16", settings=SETTINGS)
    command = [*unshare, sys.executable, "-c", FULL_DISK, os.path.dirname(__file__), folder, str(tmp_path / "disk")]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_lost_hidden_states_are_made_of_the_codes(tmp_path, monkeypatch):
    """Blocks whose codes are complete are not quantized again."""
    folder = model_at(tmp_path)
    qobs.quantize_blocks(folder, tmp_path / "expected", batches(), "W4A16", settings=SETTINGS)
    stop_after(monkeypatch, "begin_hidden", 3)
    with pytest.raises(Exception, match="^$"):
        qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings=SETTINGS)
    monkeypatch.undo()
    path = tmp_path / "out.blocks" / "rank-0" / "hidden-00001" / "000001.pt"
    os.truncate(path, 100)
    before = contents(tmp_path / "out.blocks")
    said = f"{path}: has 100 bytes .*; remove that folder and run it again"
    with pytest.raises(qobs.InvalidArgumentError, match=said):
        qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings=SETTINGS)
    assert contents(tmp_path / "out.blocks") == before
    for name in os.listdir(path.parent):
        os.remove(path.parent / name)
    os.rmdir(path.parent)
    assert qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings=SETTINGS)["run"] == 1
    assert_same_model(tmp_path / "out", tmp_path / "expected")


BITS = """
import os, sys
import torch
sys.path.insert(0, sys.argv[1])
import libqobs as qobs
import test_corrected as t
from libqobs import _library
folder, out = sys.argv[2:]
torch.set_num_threads(1)
lib, made = _library.lib, 0
for i in range(lib.isa_count()):
    if lib.isa_usable(i):
        for threads in (1, 2, 7):
            assert lib.isa_select(lib.isa_name(i), None) == 0
            qobs.set_threads(threads)
            qobs.quantize_blocks(folder, os.path.join(out, str(made)), t.batches(), "W4A16", settings=t.SETTINGS)
            made += 1
print(made)
"""


def test_bits_do_not_depend_on_instruction_set_and_threads(tmp_path):
    """Sums over tokens are torch's, with one thread."""
    command = [sys.executable, "-c", BITS, os.path.dirname(__file__), model_at(tmp_path), str(tmp_path)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    count = int(made.stdout.split()[-1])
    assert count >= 3
    for i in range(1, count):
        assert_same_model(tmp_path / str(i), tmp_path / "0")


WORKER = """
import sys, torch
import libqobs as qobs
sys.path.insert(0, sys.argv[1])
import test_blocks as t
import torch.distributed as dist
torch.set_num_threads(1)
folder, out, address, rank = sys.argv[2:]
dist.init_process_group("gloo", init_method=address, rank=int(rank), world_size=2)
report = qobs.quantize_blocks(folder, out, t.batches()[int(rank)::2], "W4A16", settings={"group_size": 32}, group=True)
assert report["run"] == 3 and len(report["layers"]) == 21
dist.destroy_process_group()
"""


def test_ranks(tmp_path):
    """Sums of two processes are those of one, but for the order of additions."""
    folder, where = model_at(tmp_path), address()
    command = [sys.executable, "-c", WORKER, os.path.dirname(__file__), folder, str(tmp_path / "out"), where]
    processes = [subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    errors = [process.communicate()[1] for process in processes]
    assert not any(process.returncode for process in processes), errors
    qobs.quantize_blocks(folder, tmp_path / "one", batches(), "W4A16", settings=SETTINGS)
    one, two = (sum(objectives(folder, tmp_path / name).values()) for name in ("one", "out"))
    assert two == pytest.approx(one, rel=0.02) and not os.path.exists(tmp_path / "out.blocks")


@pytest.mark.parametrize("error, words, arguments", [  # noqa: F811
    (qobs.UnsupportedError, "scheme: has floats of 8 bits, .*, beside weights that are rounded", {"scheme": MIXED}),
    (qobs.UnsupportedError, "scheme: quantizes no weights; calibrate_blocks and", {"scheme": UNQUANTIZED}),
    (TypeError, "kv_cache", {"kv_cache": 3}),
    (qobs.InvalidArgumentError, "'rounding' is no setting of it",
     {"scheme": "FP8_DYNAMIC", "settings": {"rounding": "descent"}}),
    (qobs.UnsupportedError, "model_dir: lm_head is in no block; ignore=", {"ignore": []}),
    (TypeError, "out_dir: is 3", {"out_dir": 3}), (qobs.NoDataError, "no batch", {"batches": []}),
    (qobs.InvalidArgumentError, "group_size", {"settings": {"group_size": "much"}}),
    (FileExistsError, "is not empty", {"out_dir": "model"})])
def test_wrong_arguments(error, words, arguments, tmp_path):
    given = {"model_dir": model_at(tmp_path), "out_dir": tmp_path / "out", "batches": batches(), "scheme": "W4A16",
             **arguments}
    if given["out_dir"] == "model":
        given["out_dir"] = given["model_dir"]
    before = contents(tmp_path)
    with pytest.raises(error, match=words):
        qobs.quantize_blocks(**given)
    assert contents(tmp_path) == before


def few_tokens():
    """Fewer than experts."""
    return [{"input_ids": batches()[0]["input_ids"][:1, :4]}]


def with_experts(tmp_path, count=6):
    config = transformers.Qwen3MoeConfig(**SMALL, head_dim=16, num_experts=count, num_experts_per_tok=2,
                                         moe_intermediate_size=32)
    return saved(config, tmp_path / "model")


@pytest.mark.parametrize("most", [1 << 30, 1])
def test_the_objective_of_experts(most, tmp_path, monkeypatch):
    """Also of those that are taken one by one for their memory."""
    monkeypatch.setattr(sys.modules["libqobs._corrected"], "_MOST_SUMS", most)
    folder = with_experts(tmp_path)
    report = qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings=SETTINGS)
    (own, other), made, expected = both(folder), quantized_matrices(tmp_path / "out"), {}
    for block in range(SMALL["num_hidden_layers"]):
        for stage in STAGES[:2]:
            expected |= objectives_of(own, other, made, block, stage)
        expected |= objectives_of_experts(own, other, made, block)
    assert {layer["name"] for layer in report["layers"]} == set(expected)
    for layer in report["layers"]:
        # V is stored in bfloat16, as the weights are
        assert layer["rounding"]["error"] == pytest.approx(expected[layer["name"]], rel=0.05), layer["name"]
    assert qobs.audit(tmp_path / "out", folder)["findings"] == []


def test_an_expert_without_tokens_keeps_its_weights(tmp_path):
    folder = with_experts(tmp_path, 24)
    _, _, chosen = experts_of(both(folder)[0], 0, few_tokens())
    unseen = sorted(set(range(24)) - set(chosen.flatten().tolist()))
    qobs.quantize_blocks(folder, tmp_path / "out", few_tokens(), "W4A16", settings=SETTINGS)
    made, own = quantized_matrices(tmp_path / "out"), both(folder)[0].model.layers[0].mlp.experts
    for e in unseen:
        w, q = own.down_proj.data[e].double(), made[f"model.layers.0.mlp.experts.{e}.down_proj"]
        assert (q - w).norm() < 0.15 * w.norm()
    assert len(unseen) > 12


@pytest.mark.parametrize("scheme, make", [("NVFP4", model_at), ("W8A8_STATIC", model_at),
                                          ("W8A8_STATIC_ASYM", model_at), ("NVFP4", with_experts)])
def test_scales_of_inputs_are_those_of_the_quantized_model(scheme, make, tmp_path):
    folder = make(tmp_path)
    qobs.quantize_blocks(folder, tmp_path / "out", batches(), scheme, fill_experts="max")
    model = both(folder)[0]
    put(model, quantized_matrices(tmp_path / "out"))
    expected = qobs.calibrate(model, batches(), scheme, ignore=["lm_head"]).scales()
    from safetensors.torch import load_file
    found = load_file(tmp_path / "out" / "model.safetensors")
    of_inputs = [name for name in found if ".input_" in name]
    assert len(of_inputs) >= len(expected) > 20
    for name, value in expected.items():
        assert found[name].float().item() == pytest.approx(value.float().item(), rel=0.01, abs=1), name


def put(model, matrices):
    """Gives a model other matrices, by names in the files."""
    places = {name: sys.modules["libqobs._block_weights"].place_of(module)
              for name, module in qobs.calibration(model, "NVFP4").modules.items()}
    for name, matrix in matrices.items():
        places[name].weight.copy_(matrix)


def test_experts_without_tokens_need_scales_of_inputs(tmp_path):
    folder = with_experts(tmp_path, 24)
    with pytest.raises(qobs.InvalidArgumentError, match="fill"):
        qobs.quantize_blocks(folder, tmp_path / "out", few_tokens(), "NVFP4")


def test_command(words, tmp_path):  # noqa: F811
    found = run(words, tmp_path, "--scheme", "W4A16", "--corrected", "--set", "group_size=32", "-o", tmp_path / "out",
                states=False)
    assert found[0] == 0 and "21 layers of 3 blocks quantized" in found[1], found
    tokenizer = transformers.AutoTokenizer.from_pretrained(words)
    tokens = tokenizer((tmp_path / "text").read_text(), return_tensors="pt").input_ids
    given = list(tokens[0, :96].reshape(6, 16).split(1))
    qobs.quantize_blocks(words, tmp_path / "again", given, "W4A16", settings=SETTINGS)
    assert_same_model(tmp_path / "out", tmp_path / "again")


@pytest.mark.parametrize("text, arguments", [  # noqa: F811
    ("needs -o", ["--corrected"]), ("--importance: is not for --corrected", ["--corrected", "--importance", "-o", "o"]),
    ("--set belongs to --corrected", ["--states", "states", "--set", "group_size=32"]), ("--states is needed", []),
    ("KEY=VALUE", ["--corrected", "--set", "group_size", "-o", "out"])])
def test_command_refuses(text, arguments, words, tmp_path):
    found = run(words, tmp_path, *arguments, states=False)
    assert found[0] == 2 and text in found[2]
