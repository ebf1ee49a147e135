# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""quantize, finish and audit on a small model."""
import hashlib
import json
import os
import struct
import threading
import warnings

import numpy as np
import pytest
import libqobs as qobs

MODULES = [f"model.layers.{i}.self_attn.{m}_proj" for i in range(3) for m in "qkv"]


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        raw = array.tobytes()
        dtype = {"float32": "F32", "uint16": "BF16"}[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    generator = np.random.default_rng(0)
    tensors = {f"{m}.weight": generator.standard_normal((64, 128), dtype=np.float32) for m in MODULES}
    write_tensors(folder / "model.safetensors", tensors | {"lm_head.weight": np.ones((8, 128), np.float32)})
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def tensors(path):
    """Name -> dtype, shape and bytes of each tensor of a file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], raw[8 + length:][slice(*t["data_offsets"])]) for n, t in header.items()}


def test_quantize_and_audit(model, tmp_path):
    seen = []
    report = qobs.quantize(model, tmp_path / "out", "W4A16", progress=seen.append, threads=2)
    assert sorted(layer["name"] for layer in report["layers"]) == sorted(MODULES)
    assert all(0 < layer["relative_error"] < 0.2 for layer in report["layers"])
    assert seen[-1].bytes_done == seen[-1].bytes_total > 0 and seen[-1].stage == "quantize"
    assert {p.layer for p in seen} >= set(MODULES) and not any(p.searches for p in seen)
    assert [p.share for p in seen] == sorted(p.share for p in seen) and seen[-1].share == 1
    found = qobs.audit(tmp_path / "out", model, attest=tmp_path / "statement")
    assert found["findings"] == [] and len(found["layers"]) == len(MODULES)
    assert found["codes_not_nearest"] == 0 < found["codes_compared"] and found["reproduced"] is True
    statement = json.loads((tmp_path / "statement").read_text())
    hashes = {s["name"]: s["digest"]["sha256"] for s in statement["subject"]}
    assert hashes == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / "out").iterdir()}
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert config["format"] == "pack-quantized" and config["ignore"] == ["lm_head"]
    config["ignore"] = []
    (tmp_path / "out" / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": config}))
    mended = qobs.audit(tmp_path / "out", out=tmp_path / "mended")
    assert mended["findings"] == [] and [m["module"] for m in mended["mended"]] == ["lm_head"]
    config = json.loads((tmp_path / "mended" / "config.json").read_text())["quantization_config"]
    assert config["ignore"] == ["lm_head"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rounding", ["nearest", "descent"])
def test_progress_counts_the_work_of_searches(model, tmp_path, threads, rounding):
    seen, generator = [], np.random.default_rng(1)
    inputs = {f"{m}.input": generator.standard_normal((300, 128), dtype=np.float32) for m in MODULES}
    write_tensors(tmp_path / "inputs.safetensors", inputs)
    qobs.quantize(model, tmp_path / "out", "W4A16", preset="qobs.local_hessian", settings={"rounding": rounding},
                  importance=[tmp_path / "inputs.safetensors"], progress=seen.append, threads=threads)
    shares = [p.share for p in seen]
    assert all(p.searches for p in seen) and shares == sorted(shares) and shares[0] == 0 and abs(shares[-1] - 1) < 1e-9
    assert seen[-1].bytes_done == seen[-1].bytes_total and [p.layer for p in seen][0] in MODULES
    steps = {m: 0 for m in MODULES}  # alike in size
    for before, p in zip(seen, seen[1:]):
        if p.layer in steps:
            steps[p.layer] += p.share - before.share
    assert min(steps.values()) == pytest.approx(max(steps.values())) and sum(steps.values()) > 0.9


def test_threads_and_parts_give_the_same_bytes(model, tmp_path):
    options = {"preset": "llmc.memoryless_mse", "settings": {"group_size": 64, "symmetric": False}}
    qobs.quantize(model, str(tmp_path / "one"), "w4a16", threads=1, **options)
    qobs.quantize(model, tmp_path / "seven", "W4A16", threads=7, **options)
    for i in (2, 1):
        qobs.quantize(model, tmp_path / "parts", "W4A16", part=(i, 2), **options)
    report = qobs.finish(tmp_path / "parts")
    assert len(report["layers"]) == len(MODULES)
    # the name of a group is the scheme as it was typed, unless settings change it
    assert files(tmp_path / "one") == files(tmp_path / "seven") == files(tmp_path / "parts")


def test_a_model_that_is_fetched(model, tmp_path):
    """Members of a set lie in three shards; two are there at a time."""
    generator, where = np.random.default_rng(1), {}
    (model / "model.safetensors").unlink()
    for shard in range(3):
        weights = {f"{m}.weight": generator.standard_normal((64, 128), dtype=np.float32) for m in MODULES[shard::3]}
        write_tensors(model / f"model-{shard}.safetensors", weights)
        where.update(dict.fromkeys(weights, f"model-{shard}.safetensors"))
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (tmp_path / "none").mkdir()
    qobs.quantize(model, tmp_path / "one", "NVFP4A16")
    command, seen = f"set -- *.safetensors; test $# -lt 3 && cp '{model}'/{{}} .", []
    report = qobs.quantize(tmp_path / "none", tmp_path / "two", "NVFP4A16", fetch=command, progress=seen.append)
    assert len(report["layers"]) == len(MODULES) and files(tmp_path / "one") == files(tmp_path / "two")
    assert {"fetch", "quantize"} == {p.stage for p in seen} and not list((tmp_path / "none").iterdir())
    shares = [p.share for p in seen]
    assert shares == sorted(shares) and abs(shares[-1] - 1) < 1e-9
    with pytest.raises(qobs.SystemFailure, match="fetch: model-0.safetensors.*3 times"):
        qobs.quantize(tmp_path / "none", tmp_path / "three", "NVFP4A16",
                      fetch=f"test {{}} != model-0.safetensors || exit 1; {command}")
    assert not (tmp_path / "three").exists()


def test_targets_and_ignore(model, tmp_path):
    report = qobs.quantize(model, tmp_path / "out", "W8A8", targets=["re:.*q_proj", "re:.*k_proj"],
                           ignore="re:.*1.*k_proj", allow_mixed_sets=True)
    assert {layer["name"] for layer in report["layers"]} == {m for m in MODULES if "v_proj" not in m} - {MODULES[4]}


def test_activations_and_states(model, tmp_path):
    inputs = {f"{m}.input": np.random.default_rng(1).standard_normal((5, 128), dtype=np.float32) for m in MODULES}
    write_tensors(tmp_path / "inputs.safetensors", inputs)
    (tmp_path / "states").mkdir()
    for name, array in inputs.items():
        observer = qobs.Observer(
            "llmc.static_minmax base_name=input type=float num_bits=8 strategy=tensor").observe(array)
        (tmp_path / "states" / f"{name}.qobs").write_bytes(observer.save())
    qobs.quantize(model, tmp_path / "a", "FP8", activations=[tmp_path / "inputs.safetensors"])
    qobs.quantize(model, tmp_path / "b", "FP8", states=[tmp_path / "states"])
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert qobs.audit(tmp_path / "a")["findings"] == []


@pytest.mark.parametrize("error, words, options", [
    (qobs.InvalidArgumentError, "W4A17", {"scheme": "W4A17"}),
    (qobs.InvalidArgumentError, "exactly one", {}),
    (qobs.InvalidArgumentError, "compat", {"scheme": "W4A16", "compat": "other"}),
    (qobs.InvalidArgumentError, "FP8_DYNAMIC", {"scheme": "FP8"}),
    (qobs.InvalidArgumentError, "threads", {"scheme": "W4A16", "threads": 0}),
    (qobs.InvalidArgumentError, "part", {"scheme": "W4A16", "part": (3, 2)}),
    (qobs.InvalidArgumentError, "nothing", {"recipe": "nothing"}),
])
def test_refusals(model, tmp_path, error, words, options):
    with pytest.raises(error, match=words):
        qobs.quantize(model, tmp_path / "out", **options)
    assert os.listdir(tmp_path) == ["model"]


def test_refusals_of_finish_and_audit(model, tmp_path):
    with pytest.raises(qobs.InvalidArgumentError, match="out.parts"):
        qobs.finish(tmp_path / "out")
    with pytest.raises(qobs.InvalidArgumentError, match="quantization_config"):
        qobs.audit(model)


def test_calibrate_checkpoint(model, tmp_path):
    """The scales of quantize, byte for byte, from a directory and from its file."""
    out, settings = tmp_path / "scales.safetensors", {"group_size": 32, "symmetric": False}
    report = qobs.calibrate_checkpoint(model, out, "W4A16", presets="llmc.memoryless_mse", settings=settings)
    assert report["missing"] == 0 and report["error"] < report["error_before"]
    qobs.quantize(model, tmp_path / "quantized", "W4A16", preset="llmc.memoryless_mse", settings=settings)
    scales, stored = tensors(out), {}
    for file in sorted((tmp_path / "quantized").glob("*.safetensors")):
        stored.update(tensors(file))
    wanted = {name: value for name, value in stored.items() if name.endswith("weight_scale")}
    assert wanted and {name: scales[name] for name in wanted} == wanted
    report = qobs.calibrate_checkpoint(model, tmp_path / "fp8.safetensors", "FP8")
    assert report["missing"] == len(report["layers"])
    with pytest.raises(qobs.InvalidArgumentError, match="base name"):
        qobs.calibrate_checkpoint(model, out, "W4A16", presets={"bias": "llmc.minmax"})


def test_an_exception_in_progress_stops_the_run(model, tmp_path):
    for threads in (1, 3):
        with pytest.raises(ZeroDivisionError):
            qobs.quantize(model, tmp_path / "out", "W4A16", threads=threads, progress=lambda p: 1 // 0)
        assert os.listdir(tmp_path) == ["model"]


def test_runs_at_once(model, tmp_path):
    runs = [threading.Thread(target=qobs.quantize, args=(model, tmp_path / f"out-{i}", "W4A16")) for i in range(8)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    first = files(tmp_path / "out-0")
    assert first and all(files(tmp_path / f"out-{i}") == first for i in range(8))


@pytest.mark.parametrize("ignore", [["q_proj"], "q_proj", "['q_proj']", "q_proj,k_proj", ["q_proj", "lm_head"]])
def test_what_nothing_uses_is_a_warning(model, tmp_path, ignore):
    """Status 3 of the program: a warning at the line of the caller, and a member of the report."""
    with pytest.warns(qobs.IncompleteWarning, match="q_proj") as caught:
        report = qobs.quantize(model, tmp_path / "out", "W8A8", ignore=ignore)
    assert [str(w.message) for w in caught if w.category is qobs.IncompleteWarning] == report["unused"] != []
    assert all(w.filename == __file__ for w in caught) and len(report["layers"]) == len(MODULES)
    with warnings.catch_warnings():
        warnings.simplefilter("error", qobs.IncompleteWarning)
        with pytest.raises(qobs.IncompleteWarning, match="q_proj"):
            qobs.calibrate_checkpoint(model, tmp_path / "scales", "W8A8", ignore=ignore)
        with pytest.raises(qobs.IncompleteWarning, match="left_out"):
            qobs.quantize(model, tmp_path / "none", "W8A8", targets=["lm_head"], ignore=["lm_head"])


def test_what_is_missing_is_a_warning(model, tmp_path):
    (tmp_path / "model" / "old.bin").write_bytes(b"weights")
    with pytest.warns(qobs.Warning, match="old.bin"):
        assert any("old.bin" in text for text in qobs.quantize(model, tmp_path / "out", "W8A8")["warnings"])
    with pytest.warns(qobs.IncompleteWarning, match="9 scales"):
        qobs.calibrate_checkpoint(model, tmp_path / "scales", "FP8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (tmp_path / "model" / "old.bin").unlink()
        qobs.quantize(model, tmp_path / "again", "W8A8")


CONFIG = {"config_groups": {"ints": {"targets": ["Linear"],
                                     "weights": {"num_bits": 4, "group_size": 64, "strategy": "group",
                                                 "type": "int", "symmetric": True}}},
          "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"]}
RECIPE = """
default_stage:
  default_modifiers:
    QuantizationModifier:
      targets: [Linear]
      ignore: [lm_head]
      scheme: W8A8
"""


def test_configurations_and_recipes_in_every_form(model, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    tree = {"default_stage": {"default_modifiers": {"QuantizationModifier": {"targets": ["Linear"],
                                                                             "ignore": ["lm_head"],
                                                                             "scheme": "W8A8"}}}}
    outs = {"config": [tmp_path / "config.json", CONFIG], "recipe": [str(tmp_path / "recipe.yaml"), RECIPE, tree]}
    for name, forms in outs.items():
        made = []
        for i, form in enumerate(forms):
            qobs.quantize(model, tmp_path / f"{name}-{i}", **{name: form})
            report = qobs.calibrate_checkpoint(model, tmp_path / f"{name}-{i}.safetensors", **{name: form})
            assert report["scheme"] == (name if i else str(form))
            made.append((files(tmp_path / f"{name}-{i}"), tensors(tmp_path / f"{name}-{i}.safetensors")))
            assert b"/" not in (tmp_path / f"{name}-{i}.safetensors").read_bytes()[:200]
        assert all(one == made[0] for one in made)
    for options, words in (({"config": {"config_groups": {"a": {"weights": {"num_bit": 4}}}}}, "^config: "),
                           ({"recipe": "a:\n  b: [1"}, "^recipe: "), ({"config": {}}, "^config: ")):
        with pytest.raises(qobs.InvalidArgumentError, match=words) as failure:
            qobs.quantize(model, tmp_path / "out", **options)
        assert "/tmp" not in str(failure.value)


def test_what_is_not_known_is_a_warning(model, tmp_path):
    """Also a search without its inputs, and a plan without sensitivity."""
    with pytest.warns(qobs.IncompleteWarning, match="importance"):
        qobs.quantize(model, tmp_path / "a", "W4A16", preset="llmc.imatrix_mse")
    with pytest.warns(qobs.IncompleteWarning, match="sensitivity"):
        qobs.plan(model, ["W4A16", "W8A16"])
    (model / "config.json").write_text('{"model_type": "nobody_knows", "architectures": ["NobodyKnows"]}')
    with pytest.warns(qobs.IncompleteWarning, match="nobody_knows"):
        assert qobs.quantize(model, tmp_path / "b", "W8A8")["knowledge"]["unknown"] == "nobody_knows"


def test_unknown_architecture(model, tmp_path):
    (model / "config.json").write_text('{"model_type": "totally_new"}')
    with pytest.warns(qobs.IncompleteWarning, match="'totally_new' is not among the models that were tried"):
        report = qobs.quantize(model, tmp_path / "out", "W8A16")
    assert report["knowledge"]["unknown"] == "totally_new" and report["runtimes"] == []
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps({"transformers": "5.99.0", "vllm": "0.77.0", "architectures": [
        {"types": ["totally_new"], "kept": [MODULES[0].split(".")[-1]]}]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error", qobs.IncompleteWarning)
        report = qobs.quantize(model, tmp_path / "out", "W8A16", architectures=rows, replace=True)
    assert report["knowledge"] == {"source": "file", "transformers": "5.99.0", "vllm": "0.77.0"}
    assert MODULES[0] not in [layer["name"] for layer in report["layers"]]
