# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibration of running models against observers that see the recorded activations."""
import json
import os
import struct

import pytest
import libqobs as qobs
from two_blocks import batches, model  # noqa: F401, fixtures

torch = pytest.importorskip("torch")


def run(calibration, model, batches):
    with calibration as c, torch.no_grad():
        outputs = [model(batch) for batch in batches]
    return c, outputs


def test_scales_are_those_of_the_inputs(model, batches):
    inputs = {}
    hooks = [m.register_forward_pre_hook(
        lambda m, a, k, n=n: inputs.setdefault(n, []).append(a[0] if a else k["input"]),
                                         with_kwargs=True)
             for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    plain = [model(batch) for batch in batches]
    for hook in hooks:
        hook.remove()
    c, outputs = run(qobs.calibration(model, "fp8"), model, batches)
    assert all(torch.equal(a, b) for a, b in zip(plain, outputs)), "the model computes what it computed"
    scales = c.scales()
    assert set(scales) == {f"{n}.input_scale" for n in inputs if n != "lm_head"}
    for name, scale in scales.items():
        amax = torch.stack([x.abs().max() for x in inputs[name.removesuffix(".input_scale")]]).max()
        assert torch.equal(scale.flatten(), (amax / 448).reshape(1)), name
    assert not any(m._forward_hooks for m in model.modules()), "no hook is left"


def test_global_scales_of_fused_layers(model, batches):
    scales = run(qobs.calibration(model, "NVFP4"), model, batches)[0].scales()
    for i in range(2):
        assert len({scales[f"layers.{i}.{m}_proj.input_global_scale"].item() for m in "qkv"}) == 1
    assert all(s.dtype == torch.float32 for s in scales.values())


def test_targets_and_ignore(model, batches):
    c = run(qobs.calibration(model, targets=["re:.*q_proj", "lm_head"], ignore=["re:layers.1"]), model, batches)[0]
    assert set(c.scales()) == {"layers.0.q_proj.input_scale", "lm_head.input_scale"}


def test_states_quantize_the_model(model, batches, tmp_path):
    tensors = {n: p.data for n, p in model.named_parameters()}
    folder = tmp_path / "model"
    folder.mkdir()
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    c = run(qobs.calibration(model, "FP8"), model, batches)[0]
    c.quantize(folder, tmp_path / "out")
    c.save(tmp_path / "states")
    qobs.quantize(folder, tmp_path / "again", "FP8", states=[tmp_path / "states"])
    out = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert out == (tmp_path / "again" / "model.safetensors").read_bytes()
    c.write_scales(tmp_path / "scales.safetensors")
    for path in (tmp_path / "scales.safetensors", tmp_path / "out" / "model.safetensors"):
        raw = path.read_bytes()
        (size,) = struct.unpack("<Q", raw[:8])
        entries = json.loads(raw[8:8 + size])
        for name, scale in c.scales().items():
            begin, end = entries[name]["data_offsets"]
            assert entries[name]["dtype"] == "BF16" and entries[name]["shape"] == [1]
            assert raw[8 + size + begin:8 + size + end] == scale.view(torch.uint8).numpy().tobytes(), name


def test_memory_does_not_grow(model, batches):
    c = qobs.calibration(model, "FP8")
    with c, torch.no_grad():
        model(batches[0])
        sizes = [len(o.save()) for o in c.observers.values()]
        for _ in range(20):
            model(batches[1])
    assert [len(o.save()) for o in c.observers.values()] == sizes


def test_hooks_go_when_the_model_fails(model, tmp_path):
    with pytest.raises(RuntimeError), qobs.calibration(model) as c:
        model(torch.ones(2, 3, dtype=torch.bfloat16))
    assert not any(m._forward_hooks for m in model.modules())
    for call in (lambda: c.save(tmp_path / "nowhere"), lambda: c.write_scales(tmp_path / "nowhere"), c.scales,
                 c.importance,
                 lambda: c.quantize(tmp_path, tmp_path / "nowhere")):
        with pytest.raises(qobs.NoDataError):
            call()
    assert os.listdir(tmp_path) == []


def test_a_save_that_fails_leaves_nothing(model, batches, tmp_path, monkeypatch):
    c, _ = run(qobs.calibration(model), model, batches)
    with pytest.raises(FileNotFoundError):
        c.save(tmp_path / "not" / "there")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(FileExistsError):
        c.save(tmp_path / "full")
    monkeypatch.setattr(json, "dump", lambda *a, **k: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        c.save(tmp_path / "states")
    assert os.listdir(tmp_path) == ["full"] and os.listdir(tmp_path / "full") == ["file"]
    monkeypatch.undo()
    (tmp_path / "empty").mkdir()
    c.save(tmp_path / "empty")
    assert len(os.listdir(tmp_path / "empty")) == 9


def test_importance_is_the_mean_square(model, batches):
    inputs = []
    hook = model.layers[1].o_proj.register_forward_pre_hook(lambda m, a: inputs.append(a[0].double().reshape(-1, 64)))
    c, _ = run(qobs.calibration(model, "W4A16", importance=True), model, batches)
    hook.remove()
    x = torch.cat(inputs)
    found = c.importance()
    assert len(found) == 8 and found["layers.1.o_proj"].dtype == torch.float32
    assert torch.allclose(found["layers.1.o_proj"].double(), (x * x).mean(0), rtol=1e-6)
    assert c.scales() == {}


def test_calibrate_runs_the_batches(model, batches):
    c, _ = run(qobs.calibration(model), model, batches)
    model.train()
    calls = qobs.calibrate(
    model, [
        batches[0], (batches[1],), [
            batches[2]], {
                "x": batches[3]}], "fp8", ignore=["lm_head"])
    assert calls.scales() == c.scales() and model.training
    with pytest.raises(qobs.NoDataError):
        qobs.calibrate(model, [])
    with pytest.raises(TypeError):
        qobs.calibrate(model, [{"y": batches[0]}])
    assert not any(m._forward_hooks for m in model.modules()) and model.training


def test_a_calibration_goes_on(model, batches):
    """Entered twice it sees what one sees; entered within itself it refuses."""
    c, _ = run(qobs.calibration(model), model, batches[:2])
    run(c, model, batches[2:])
    once, _ = run(qobs.calibration(model), model, batches)
    assert c.scales() == once.scales() and len(c.scales()) == 8
    with pytest.raises(qobs.InvalidArgumentError, match="running"), c, c:
        pass


@pytest.mark.parametrize("words, options", [("W4A16", {"scheme": "W4A16"}), ("targets", {"targets": ["nothing"]}),
                                            ("kv_cache", {"kv_cache": True})])
def test_refusals(words, options):
    with pytest.raises(qobs.InvalidArgumentError, match=words):
        qobs.calibration(torch.nn.Sequential(torch.nn.Linear(4, 4)), **options)


# ---- Names -----------------------------------------------------------------------------------------------------------

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 64}
IDS = torch.arange(24).reshape(2, 12) + 3


def saved(transformers, model, tmp_path):
    torch.manual_seed(0)
    model = model.to(torch.bfloat16).eval()
    for p in model.parameters():
        p.data.normal_(0, 0.1)
    model.save_pretrained(tmp_path / "model")
    return model


def quantized(model, tmp_path, **options):
    with qobs.calibration(model, "FP8", **options) as c, torch.no_grad():
        model(input_ids=IDS)
    c.quantize(tmp_path / "model", tmp_path / "out", ignore=options.get("ignore"), fill_experts="max")
    with open(tmp_path / "out" / "model.safetensors", "rb") as file:
        names = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return c, {n.removesuffix(".input_scale") for n in names if n.endswith(".input_scale")}


@pytest.mark.parametrize("wrap", [lambda m: torch.compile(m, backend="eager"), torch.nn.DataParallel])
def test_names_of_wrapped_models(wrap, tmp_path):
    transformers = pytest.importorskip("transformers", "5")
    model = saved(transformers, transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SMALL)),
                  tmp_path)
    wrapped = wrap(model)
    with torch.no_grad():
        wrapped(input_ids=IDS)  # torch.compile calls no hooks that come after the first run
    c, names = quantized(wrapped, tmp_path)
    assert all(o.counts().batches == 1 for o in c.observers.values())
    assert "model.layers.0.self_attn.q_proj" in names and len(names) == 7
    assert all(name.startswith("model.layers.0.") for name in c.observers)


def test_names_of_files(tmp_path):
    """Modules of LLaVA have other names in files; targets and ignore take both."""
    transformers = pytest.importorskip("transformers", "5")
    vision = transformers.CLIPVisionConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                                           num_attention_heads=4,
                                           image_size=28, patch_size=14)
    config = transformers.LlavaConfig(vision_config=vision, text_config=transformers.LlamaConfig(**SMALL))
    model = saved(transformers, transformers.LlavaForConditionalGeneration(config), tmp_path)
    own = {n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    ignore = ["re:model.vision_tower", "re:vision_tower", "re:.*multi_modal_projector", "re:.*lm_head"]
    c, names = quantized(model, tmp_path, ignore=ignore)
    assert len(names) == 7 and not names & own
    files = {n.rsplit(".", 1)[0] for n in c.observers}
    assert names == files
    with qobs.calibration(model, "FP8", targets=["re:.*language_model.*q_proj"]) as c, torch.no_grad():
        model(input_ids=IDS)
    assert len(c.observers) == 1


def test_a_layer_that_the_directory_lacks(model, batches, tmp_path):
    """The error names the layer as the model and as files call it."""
    c, _ = run(qobs.calibration(model, "FP8"), model, batches)
    other = {f"blocks.0.{n.split('.', 2)[2]}": w for n, w in model.state_dict().items() if n.startswith("layers.0")}
    os.mkdir(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    qobs._safetensors.write(str(tmp_path / "model" / "model.safetensors"), other)
    with pytest.raises(qobs.InvalidArgumentError,
                       match="'blocks.0.k_proj.input'.*'layers.0.q_proj', in files 'layers.0.q_proj'"):
        c.quantize(tmp_path / "model", tmp_path / "out")


@pytest.mark.parametrize("implementation", ["eager", "batched_mm"])
def test_experts_are_observed_one_by_one(implementation, tmp_path):
    """Experts of transformers 5 are parameters. Each has the scale of the tokens that reach it, under its name in
    files."""
    transformers = pytest.importorskip("transformers", "5")
    config = transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)
    model = saved(transformers, transformers.AutoModelForCausalLM.from_config(config), tmp_path)
    model.set_experts_implementation(implementation)
    layer = next(m for n, m in model.named_modules() if n.endswith("mlp.experts"))
    seen = []
    handle = layer.register_forward_pre_hook(lambda m, args: seen.append(args))
    c, names = quantized(model, tmp_path)
    handle.remove()
    states, chosen = seen[0][0], seen[0][1]
    prefix, scales = "model.layers.0.block_sparse_moe.experts", c.scales()
    reached = sorted(set(chosen.flatten().tolist()))
    assert len(names) == 4 + 3 * 4 and len(reached) > 1
    for e in reached:
        x = states[[e in row for row in chosen.tolist()]]
        gate, up = (x @ layer.gate_up_proj[e].T).chunk(2, -1)
        inner = torch.nn.functional.silu(gate) * up
        for name, value in (("w1", x), ("w3", x), ("w2", inner)):
            want = value.abs().max().float() / 448
            assert abs(scales[f"{prefix}.{e}.{name}.input_scale"].float().item() / want.item() - 1) < 2 ** -7


def test_sets_of_the_library():
    linear = ["a.q_proj", "a.k_proj", "a.v_proj", "a.o_proj", "b.in_proj_qkv", "b.in_proj_z", "c.fc1", "c.fc3",
              "d.k_proj"]
    assert qobs._checkpoint.fused_sets(linear) == [linear[:3], linear[4:6]]
    assert qobs._checkpoint.fused_sets(linear, "dots_ocr") == [linear[:3], linear[4:6], linear[6:8]]
    assert qobs._checkpoint.fused_sets([]) == []
