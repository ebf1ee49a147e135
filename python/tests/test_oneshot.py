# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibration of a running model against oneshot of llm-compressor: same scales, same files; memory; recordings."""
import json
import os
import threading

import pytest
import libqobs as qobs

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from libqobs import record  # noqa: E402

BATCHES, LENGTH = 64, 32
torch.set_num_threads(1)  # the bits of a matrix product in bfloat16 depend on the threads


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with a model of random weights; its tokenizer is never asked for anything but padding."""
    folder = tmp_path_factory.mktemp("model")
    config = transformers.LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, vocab_size=256,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def samples():
    return torch.randint(0, 256, (BATCHES, LENGTH), generator=torch.Generator().manual_seed(1)).tolist()


def load(folder):
    """With eager attention, as oneshot runs it: sdpa gives other bits."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")


def run(model, samples):
    with torch.no_grad():
        return [model(torch.tensor([sample]), use_cache=False).logits for sample in samples]


def oneshot(folder, samples, out, **options):
    llmcompressor = pytest.importorskip("llmcompressor")
    from datasets import Dataset
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from tokenizers import Tokenizer, models
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?")), unk_token="?", pad_token="a")
    dataset = Dataset.from_dict({"input_ids": samples, "attention_mask": [[1] * LENGTH] * len(samples)})
    recipe = QuantizationModifier(targets="Linear", ignore=["lm_head"], **options)
    llmcompressor.oneshot(model=load(folder), processor=tokenizer, dataset=dataset, recipe=recipe, pipeline="basic",
                          num_calibration_samples=len(samples), max_seq_length=LENGTH, output_dir=str(out))


def contents(loaded):
    return {n: (t.dtype, tuple(t.shape), bytes(t.reshape(-1).view(torch.uint8).numpy())) for n, t in loaded.items()}


def tensors(path):
    from safetensors.torch import load_file
    return contents(load_file(path))


def tensors_of_sets(path, folder):
    """An output of oneshot in FP8 whose fused sets are quantized with the largest of their scales, as vLLM reads
    them."""
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from safetensors.torch import load_file
    theirs, weights = load_file(path), load_file(folder / "model.safetensors")
    args = QuantizationArgs(num_bits=8, type="float", strategy="tensor")
    for layer in ("model.layers.0", "model.layers.1"):
        for names in (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj")):
            members = [f"{layer}.{name}.weight" for name in names]
            scale = torch.stack([theirs[m + "_scale"] for m in members]).max(0).values
            for m in members:
                theirs[m + "_scale"] = scale
                theirs[m] = quantize(weights[m], scale, torch.zeros_like(scale), args, dtype=torch.float8_e4m3fn)
    return contents(theirs)


KV_CACHE = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True,
            "observer": "static_minmax"}


@pytest.mark.parametrize("scheme, kv_cache", [("FP8", False), ("FP8", True), ("NVFP4", False)])
def test_scales_of_oneshot(folder, samples, tmp_path, scheme, kv_cache):
    oneshot(folder, samples, tmp_path / "theirs", scheme=scheme, kv_cache_scheme=KV_CACHE if kv_cache else None)
    model = load(folder)
    plain = run(model, samples)
    with qobs.calibration(model, scheme, kv_cache=kv_cache) as c:
        calibrated = run(model, samples)
    assert all(torch.equal(a, b) for a, b in zip(plain, calibrated)), "the model computes what it computed"
    assert all(torch.equal(a, b) for a, b in zip(plain, run(model, samples[:2]))), "and after it"
    theirs = tensors(tmp_path / "theirs" / "model.safetensors")
    if kv_cache and not any(name.endswith(".k_scale") for name in theirs):
        pytest.skip("this llm-compressor stores no scales of keys and values")
    c.write_scales(tmp_path / "scales.safetensors")
    scales = tensors(tmp_path / "scales.safetensors")
    assert len(scales) == 14 + 4 * kv_cache and scales.items() <= theirs.items()
    c.quantize(folder, tmp_path / "ours")
    if scheme == "FP8":
        theirs = tensors_of_sets(tmp_path / "theirs" / "model.safetensors", folder)
    assert tensors(tmp_path / "ours" / "model.safetensors") == theirs
    assert qobs.audit(tmp_path / "ours")["findings"] == []


def test_queries(folder, samples):
    """Queries as the attention function gets them. oneshot of llm-compressor 0.14 stores a q_scale that nothing has
    written, so that it cannot be compared."""
    model, largest = load(folder), {}
    interface = transformers.AttentionInterface()

    def attention(module, query, *args, **kwargs):
        largest[module] = torch.maximum(largest.get(module, torch.zeros(())), query.abs().max().float())
        return interface["sdpa"](module, query, *args, **kwargs)
    transformers.AttentionInterface.register("largest", attention)
    model.set_attn_implementation("largest")
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
    AttentionMaskInterface.register("largest", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    with qobs.calibration(model, "W4A16", queries=True) as c:
        run(model, samples[:4])
    wanted = {f"model.layers.{m.layer_idx}.self_attn.q_scale": (x.bfloat16() / 448) for m, x in largest.items()}
    assert {name: scale.item() for name, scale in c.scales().items()} == {n: s.item() for n, s in wanted.items()}
    assert len(wanted) == 2 and model.config._attn_implementation == "largest"


@pytest.mark.parametrize("scheme", ["W4A16", "NVFP4"])
def test_importance_of_oneshot(folder, samples, tmp_path, scheme):
    """W4A16 and NVFP4 whose weights are searched with the importance of columns."""
    from compressed_tensors.quantization import preset_name_to_scheme
    group = preset_name_to_scheme(scheme, ["Linear"])
    group.weights.observer = "imatrix_mse"
    oneshot(folder, samples, tmp_path / "theirs", config_groups={"group_0": group})
    model = load(folder)
    with qobs.calibration(model, scheme, importance=True) as c:
        run(model, samples)
    import llmcompressor
    version = None if llmcompressor.__version__.startswith("0.14.0") else {"version": "2026-10"}
    c.quantize(folder, tmp_path / "ours", settings=version)
    assert tensors(tmp_path / "ours" / "model.safetensors") == tensors(tmp_path / "theirs" / "model.safetensors")
    c.quantize(folder, tmp_path / "unweighted", preset="llmc.memoryless_minmax")
    assert tensors(tmp_path / "unweighted" / "model.safetensors") != tensors(tmp_path / "ours" / "model.safetensors")


def test_importance_of_two_machines(folder, samples, tmp_path):
    """States of two calibrations merge to those of one that sees all samples."""
    model, states = load(folder), []
    for i in range(2):
        with qobs.calibration(model, "NVFP4", importance=True) as part:
            run(model, samples[i::2])
        states.append(tmp_path / f"states-{i}")
        part.save(states[-1])
    with qobs.calibration(model, "NVFP4", importance=True) as c:
        run(model, samples)
    c.quantize(folder, tmp_path / "one")
    qobs.quantize(folder, tmp_path / "two", "NVFP4", preset="llmc.imatrix_mse", states=states)
    assert tensors(tmp_path / "one" / "model.safetensors") == tensors(tmp_path / "two" / "model.safetensors")


def test_importance_in_a_file_of_llama_cpp(folder, samples, tmp_path):
    """Names and file of gguf-py give what the observers give."""
    gguf = pytest.importorskip("gguf")
    import numpy as np
    model = load(folder)
    with qobs.calibration(model, "W4A16", importance=True) as c:
        run(model, samples[:4])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    writer = gguf.GGUFWriter(str(tmp_path / "imatrix.gguf"), "llama")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["random"])
    for name, observer in c.observers.items():
        name = names.get_name(name.removesuffix(".importance") + ".weight", try_suffixes=(".weight",))
        writer.add_tensor(f"{name}.in_sum2", observer.read("imatrix_sum").numpy())
        writer.add_tensor(f"{name}.counts", np.array([[observer.read("imatrix_count").item()]], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    c.quantize(folder, tmp_path / "states")
    report = qobs.quantize(folder, tmp_path / "file", "W4A16", preset="llmc.imatrix_mse",
                           importance=[tmp_path / "imatrix.gguf"])
    assert len(report["layers"]) == 14 and all(layer["importance"] for layer in report["layers"])
    assert tensors(tmp_path / "file" / "model.safetensors") == tensors(tmp_path / "states" / "model.safetensors")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory(folder, samples):
    """Less than 64 MB beyond the model, however many batches run: the inputs of these would take 290 MB."""
    model = load(folder)
    batches = [torch.tensor(samples)] * 64
    with torch.no_grad():
        for batch in batches[:4]:  # torch's own buffers
            model(batch, use_cache=False)
        before, most, done = resident(), 0, threading.Event()

        def watch():
            nonlocal most
            while not done.wait(0.002):
                most = max(most, resident())
        watcher = threading.Thread(target=watch)
        watcher.start()
        with qobs.calibration(model, "FP8", importance=True, kv_cache=True) as c:
            for batch in batches:
                model(batch, use_cache=False)
        done.set()
        watcher.join()
    elements = sum(o.counts().elements for name, o in c.observers.items() if name.endswith(".input"))
    assert 2 * elements > 128 << 20 and most > 0
    assert most - before < 64 << 20, f"{(most - before) >> 20} MB"


def test_recording(folder, samples, tmp_path):
    model = load(folder)
    with record.recording(model, tmp_path / "activations", kv_cache=True) as r:
        run(model, samples[:3])
    with qobs.calibration(model, kv_cache=True) as c:
        run(model, samples[:3])
    assert r.files == [str(tmp_path / "activations" / f"0000{i}.safetensors") for i in range(3)]
    qobs.quantize(folder, tmp_path / "recorded", "FP8", activations=r.files)
    c.quantize(folder, tmp_path / "calibrated")
    assert tensors(
    tmp_path /
    "recorded" /
    "model.safetensors") == tensors(
        tmp_path /
        "calibrated" /
         "model.safetensors")
    with pytest.raises(FileExistsError), record.recording(model, tmp_path / "activations"):
        pass


def test_recorder_command(folder, samples, tmp_path, capsys):
    from tokenizers import Tokenizer, models, pre_tokenizers
    names = [chr(97 + i // 16) + chr(97 + i % 16) for i in range(256)]
    words = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="aa"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="aa").save_pretrained(tmp_path / "model")
    load(folder).save_pretrained(tmp_path / "model")
    text = tmp_path / "text"
    text.write_text(" ".join(names[token] for sample in samples[:3] for token in sample))
    record.main([str(tmp_path / "model"), "--text", str(text), "-o", str(tmp_path / "out"), "--length", str(LENGTH)])
    assert "3 files" in capsys.readouterr().out
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="auto")
    with record.recording(model, tmp_path / "again") as r:
        run(model, samples[:3])
    for i in range(3):
        assert tensors(tmp_path / "out" / f"0000{i}.safetensors") == tensors(r.files[i])


def test_recorder_without_a_tokenizer(folder, tmp_path, capsys):
    (tmp_path / "text").write_text("aa ab")
    with pytest.raises(SystemExit):
        record.main([str(folder), "--text", str(tmp_path / "text"), "-o", str(tmp_path / "out")])
    words = capsys.readouterr().err
    assert "no tokenizer" in words and "tokenizer.json" in words and "recording" in words
    assert not (tmp_path / "out").exists()


def test_attention_is_restored(folder, samples):
    """Also after a failure, and with eager attention."""
    for own in ("sdpa", "eager"):
        model = load(folder)
        model.set_attn_implementation(own)
        plain = run(model, samples[:1])[0]
        with pytest.raises(ZeroDivisionError), qobs.calibration(model, "W4A16", kv_cache=True) as c:
            assert torch.equal(run(model, samples[:1])[0], plain)
            raise ZeroDivisionError
        assert model.config._attn_implementation == own and torch.equal(run(model, samples[:1])[0], plain)
        assert {n.rsplit(".", 1)[1] for n in c.scales()} == {"k_scale", "v_scale"}
    from transformers import AttentionInterface
    assert not any(name.startswith("qobs") for name in AttentionInterface())


def test_states_are_readable(folder, samples, tmp_path):
    model = load(folder)
    with qobs.calibration(model, "W4A16", importance=True) as c:
        run(model, samples[:2])
    c.save(tmp_path / "states")
    names = json.loads((tmp_path / "states" / "states.json").read_text())["states"]
    assert set(names) == set(c.observers) and len(names) == 14
    state = qobs.Observer.load((tmp_path / "states" / names["model.layers.0.mlp.down_proj.importance"]).read_bytes())
    assert state.read("imatrix_count").item() == 2 * LENGTH
