# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Hessians of a running model: their numbers, and the checkpoint they give beside recorded activations."""
import os

import pytest
import libqobs as qobs

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from libqobs import record  # noqa: E402

SAMPLES = torch.randint(0, 256, (8, 1, 32), generator=torch.Generator().manual_seed(1))
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = transformers.LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=1, vocab_size=256,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)


def observe(model, samples, *args, **options):
    with qobs.calibration(model, *args, **options) as c, torch.no_grad():
        for sample in samples:
            model(sample)
    return c


def files(directory):
    names = sorted(n for n in os.listdir(directory) if n.endswith(".safetensors"))
    return {name: (directory / name).read_bytes() for name in names}


@pytest.mark.parametrize("settings, size", [
    ("", 128), (" group_size=32", 32), (" group_size=32 hessian_block_size=64", 64),
    (" group_size=64 hessian_block_size=24", 24)])
def test_a_hessian_is_the_mean_product(model, settings, size):
    inputs = []
    name = "model.layers.0.mlp.down_proj"
    layer = model.get_submodule(name)
    hook = layer.register_forward_pre_hook(lambda m, a: inputs.append(a[0].double().reshape(-1, 256)))
    c = observe(model, SAMPLES, "W4A16", importance="qobs.local_hessian" + settings)
    hook.remove()
    x = torch.cat(inputs)
    full, found = x.T @ x / len(x), c.hessian()[name]
    starts = [s for g in range(0, 256, 64) for s in range(g, g + 64, 24)] if size == 24 else list(range(0, 256, size))
    assert found.dtype == torch.float64 and found.shape == (len(starts), size, size)
    for block, start in zip(found, starts):
        end = min(start + size, (start // 64 + 1) * 64) if size == 24 else start + size
        width = end - start
        assert torch.allclose(block[:width, :width], full[start:end, start:end], rtol=1e-5, atol=1e-9)
        assert not block[width:].any() and not block[:, width:].any()
    assert c.scales() == {}
    with pytest.raises(qobs.InvalidArgumentError, match="hessian"):
        c.importance()


@pytest.mark.parametrize("scheme, settings", [
    ("W4A16", {}), ("W4A16_ASYM", {"group_size": 32, "hessian_block_size": 64}), ("W3A16", {"signed_scale": True}),
    ("NVFP4A16", {}), ("W8A8", {}), ("W4A16", {"hessian_block_size": 256, "rounding": "descent"})])
def test_files_are_those_of_recorded_activations(folder, model, scheme, settings, tmp_path):
    with record.recording(model, tmp_path / "activations") as r, torch.no_grad():
        for sample in SAMPLES:
            model(sample)
    report = qobs.quantize(folder, tmp_path / "recorded", scheme, preset="qobs.local_hessian", settings=settings,
                           importance=r.files)
    words = "".join(f" {k}={str(v).lower()}" for k, v in settings.items())
    c = observe(model, SAMPLES, scheme, importance="qobs.local_hessian" + words)
    own = c.quantize(folder, tmp_path / "hooks")
    assert files(tmp_path / "hooks") == files(tmp_path / "recorded")
    assert all(layer["search"]["weighted"] for layer in own["layers"])
    assert [layer["search"] for layer in own["layers"]] == [layer["search"] for layer in report["layers"]]
    assert [layer.get("rounding") for layer in own["layers"]] == [layer.get("rounding") for layer in report["layers"]]
    assert all(("rounding" in settings) == ("rounding" in layer) for layer in own["layers"])


def test_saved_states_merge(folder, model, tmp_path):
    """Two machines see half of the tokens each. Sums of several batches differ in their last bits."""
    for i in range(2):
        half = observe(model, SAMPLES[4 * i:4 * i + 4], "W4A16", importance="qobs.local_hessian")
        half.save(tmp_path / f"states-{i}")
    report = qobs.quantize(folder, tmp_path / "merged", "W4A16", preset="qobs.local_hessian",
                           states=[tmp_path / "states-0", tmp_path / "states-1"])
    once = observe(model, SAMPLES, "W4A16", importance="qobs.local_hessian").quantize(folder, tmp_path / "once")
    for layer, other in zip(report["layers"], once["layers"]):
        assert layer["search"]["error"] == pytest.approx(other["search"]["error"], rel=1e-4)


def test_states_serve_every_rounding(folder, model, tmp_path):
    """States do not depend on how codes are rounded later."""
    c = observe(model, SAMPLES, "W4A16", importance="qobs.local_hessian hessian_block_size=256")
    c.save(tmp_path / "states")
    settings = {"hessian_block_size": 256, "rounding": "descent", "rounding_passes": 2}
    report = qobs.quantize(folder, tmp_path / "saved", "W4A16", preset="qobs.local_hessian", settings=settings,
                           states=[tmp_path / "states"])
    assert all(layer["rounding"]["error"] < 0.9 * layer["rounding"]["error_before"] for layer in report["layers"])
    c.quantize(folder, tmp_path / "hooks", settings={"rounding": "descent", "rounding_passes": 2})
    assert files(tmp_path / "hooks") == files(tmp_path / "saved")


def test_a_hessian_of_other_groups_is_refused(folder, model, tmp_path):
    observe(model, SAMPLES[:1], "W4A16", importance="qobs.local_hessian").save(tmp_path / "states")
    with pytest.raises(qobs.InvalidArgumentError, match="its setting group_size is 128"):
        qobs.quantize(folder, tmp_path / "out", "W4A16", preset="qobs.local_hessian", settings={"group_size": 64},
                      states=[tmp_path / "states"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scheme, importance, words", [
    ("FP8", "qobs.local_hessian", "FP8"), ("MXFP8", "qobs.local_hessian", "MXFP8"), ("W4A16", "llmc.mse", "llmc.mse"),
    ("W4A16", "qobs.local_hessian passes=101", "passes"), ("W4A16", "qobs.local_hessian nothing=1", "nothing")])
def test_refusals(model, scheme, importance, words):
    with pytest.raises(qobs.InvalidArgumentError, match=words):
        qobs.calibration(model, scheme, importance=importance)


def test_without_a_hessian(model):
    c = observe(model, SAMPLES[:1], "W4A16", importance=True)
    assert len(c.importance()) == 7
    with pytest.raises(qobs.InvalidArgumentError, match="qobs.local_hessian"):
        c.hessian()
