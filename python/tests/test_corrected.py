# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Quantization block by block with the error of earlier layers in the rounding, against the formula in float64."""
import filecmp
import json
import os
import subprocess
import sys

import libqobs as qobs
import pytest
from test_blocks import (SMALL, address, assert_same_model, batches, contents, run, saved, stop_after,  # noqa: F401
                         words)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", "5")
ORDER = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
         "mlp.down_proj"]
STAGES = [ORDER[:3], ORDER[3:4], ORDER[4:6], ORDER[6:]]
SETTINGS = {"group_size": 32}


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


def objectives(folder, out):
    """(Q - V) A (Q - V)^T of each layer, by its definition, with whole models in float64 sums."""
    own, other = (transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) for _ in range(2))
    made, found = quantized_matrices(out), {}
    for block in range(SMALL["num_hidden_layers"]):
        for stage in STAGES:
            names = [f"model.layers.{block}.{name}" for name in stage]
            x, y = inputs(own, names[:1])[names[0]], inputs(other, names[:1])[names[0]]
            count, n = y.shape
            a = y.T @ y / count
            a += torch.eye(n) * max(0.1, n / count) * a.diagonal().mean()
            for name in names:
                w = own.get_submodule(name).weight.data.double()
                v = w + w @ ((x - y).T @ y / count) @ torch.linalg.inv(a)
                d = made[name] - v
                found[name] = ((d @ a) * d).sum().item()
            for name in names:
                other.get_submodule(name).weight.data = made[name].float()
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
    (qobs.UnsupportedError, "scheme: .*FP8.*stores scales of activations", {"scheme": "FP8"}),
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


def test_experts_in_one_tensor(tmp_path):
    folder = saved(transformers.MixtralConfig(**SMALL, num_local_experts=4), tmp_path / "model")
    with pytest.raises(qobs.UnsupportedError, match="has experts in one tensor"):
        qobs.quantize_blocks(folder, tmp_path / "out", batches(), "W4A16", settings=SETTINGS)


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
    ("needs -o", ["--corrected"]), ("--kv-cache: is not for --corrected", ["--corrected", "--kv-cache", "-o", "out"]),
    ("--set belongs to --corrected", ["--states", "states", "--set", "group_size=32"]), ("--states is needed", []),
    ("KEY=VALUE", ["--corrected", "--set", "group_size", "-o", "out"])])
def test_command_refuses(text, arguments, words, tmp_path):
    found = run(words, tmp_path, *arguments, states=False)
    assert found[0] == 2 and text in found[2]
