# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""What calibration() and its like take: schemes, configurations, recipes, names of layers; and what they refuse."""
import json
import signal
import warnings

import pytest
import libqobs as qobs
from libqobs import record
from two_blocks import batches, model  # noqa: F401, fixtures

torch = pytest.importorskip("torch")

INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "tensor"}
ROWS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
CONFIG = {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"], "config_groups": {
    "group_0": {"targets": ["Linear"], "weights": ROWS, "input_activations": {**INT8, "dynamic": False}}}}
RECIPE = """
quant_stage:
  quant_modifiers:
    QuantizationModifier:
      ignore: [lm_head]
      targets: Linear
      scheme: W8A8_STATIC
"""


@pytest.fixture
def folder(model, tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    qobs._safetensors.write(str(path / "model.safetensors"), dict(model.state_dict()))
    (path / "config.json").write_text('{"model_type": "llama"}')
    return path


def tensors(path):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], raw[8 + length:][slice(*t["data_offsets"])]) for n, t in header.items()}


def forms(tmp_path):
    """Static int8 in every form."""
    (tmp_path / "quant.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.json").write_text(json.dumps({"model_type": "llama", "quantization_config": CONFIG}))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    tree = {"QuantizationModifier": {"ignore": ["lm_head"], "config_groups": CONFIG["config_groups"]}}
    return {"scheme": {"scheme": "W8A8_STATIC"}, "in lower case": {"scheme": "w8a8_static"},
            "scheme as config": {"config": "W8A8_STATIC"}, "dictionary": {"config": CONFIG},
            "first": {"scheme": CONFIG},
            "path": {"config": tmp_path / "quant.json"}, "text of a path": {"scheme": str(tmp_path / "quant.json")},
            "config.json": {"config": tmp_path / "model.json"}, "recipe": {"recipe": tmp_path / "recipe.yaml"},
            "recipe as config": {"config": str(tmp_path / "recipe.yaml")}, "text of a recipe": {"recipe": RECIPE},
            "first, text": {"scheme": RECIPE}, "tree of a recipe": {"recipe": tree}}


def test_static_int8_in_every_form(model, batches, folder, tmp_path):
    outs = {}
    for name, form in forms(tmp_path).items():
        if "recipe" in name or name == "first, text":
            pytest.importorskip("yaml")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            c = qobs.calibrate(model, batches, **form)
            c.quantize(folder, tmp_path / name)
        scales = c.scales()
        stored = outs[name] = tensors(tmp_path / name / "model.safetensors")
        assert len(scales) == 8 and stored["layers.0.q_proj.weight"][0] == "I8", name
        for key, scale in scales.items():
            assert stored[key] == ("BF16", [1], scale.view(torch.uint8).numpy().tobytes()), (name, key)
        assert qobs.audit(tmp_path / name)["findings"] == []
    assert all(out == outs["scheme"] for out in outs.values())
    x = torch.cat(batches).abs().max().float()
    assert abs(c.scales()["layers.0.q_proj.input_scale"].item() / (x.item() / 127.5) - 1) < 2 ** -7


def test_static_int8_with_zero_points(model, batches, folder, tmp_path):
    c = qobs.calibrate(model, batches, "W8A8_STATIC_ASYM")
    c.quantize(folder, tmp_path / "out")
    stored, scales = tensors(tmp_path / "out" / "model.safetensors"), c.scales()
    assert len(scales) == 16
    for key, value in scales.items():
        assert stored[key][1:] == ([1], value.view(torch.uint8).numpy().tobytes()), key


def test_groups_of_a_configuration(model, batches):
    """Names come before classes; a group without static inputs is not observed."""
    fp8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor"}
    config = {"ignore": ["re:layers.1.v_proj"], "kv_cache_scheme": None, "config_groups": {
        "a": {"targets": ["Linear"], "weights": ROWS, "input_activations": INT8},
        "b": {"targets": ["re:layers.0.*"], "weights": fp8, "input_activations": fp8},
        "c": {"targets": ["lm_head"], "weights": ROWS,
              "input_activations": {**INT8, "strategy": "token", "dynamic": True}}}}
    c = qobs.calibrate(model, batches, config)
    types = {name.removesuffix(".input"): o.settings["type"] for name, o in c.observers.items()}
    wanted = {f"layers.0.{m}_proj": "float" for m in "qkvo"} | {f"layers.1.{m}_proj": "int" for m in "qko"}
    assert types == wanted
    assert set(qobs.calibration(model, {"config_groups": {"FP8": ["re:.*q_proj"], "W8A8": ["Linear"]}}).observers) == {
        f"layers.{i}.q_proj.input" for i in range(2)}


def test_importance_by_groups(model, batches, folder, tmp_path):
    """A Hessian of a configuration's groups is what quantize takes with it."""
    four = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
              "config_groups": {"a": {"targets": ["Linear"], "weights": four}}}
    c = qobs.calibrate(model, batches, config, importance="qobs.local_hessian")
    assert c.hessian()["layers.0.q_proj"].shape == (2, 32, 32)
    by_name = qobs.calibrate(model, batches, "W4A16", importance="qobs.local_hessian group_size=32")
    c.quantize(folder, tmp_path / "a")
    by_name.quantize(folder, tmp_path / "b")
    assert tensors(tmp_path / "a" / "model.safetensors") == tensors(tmp_path / "b" / "model.safetensors")


# ---- Refusals --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("function", [lambda m: qobs.calibration(m), lambda m: qobs.calibrate(m, []),
                                      lambda m: record.recording(m, "nowhere")])
@pytest.mark.parametrize("value", [None, 3, "model", [], torch.ones(2), torch.nn.Linear])
def test_no_model(function, value):
    with pytest.raises(TypeError, match="^model: is .*, a torch module is expected$"):
        function(value)


def test_no_model_and_no_torch():
    import subprocess
    import sys
    code = "import libqobs as qobs\ntry: qobs.calibration(None)\nexcept TypeError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "model: is None, a torch module is expected\n"


REFUSED = {
    "scheme": [{"scheme": 3}, {"scheme": []}, {"scheme": "W4A61"}, {"scheme": "nowhere.json"}, {"scheme": {}},
               {"scheme": "W4A16"}, {"scheme": {"config_groups": {}}}, {"scheme": "FP8", "config": CONFIG},
               {"scheme": {"GPTQModifier": {"scheme": "W4A16"}}}, {"scheme": "a: [1\nb: 2"}],
    "config": [{"config": 3}, {"config": {"config_groups": {"a": 3}}}, {"config": {"config_groups": 3}},
               {"config": {"config_groups": {"a": {"targets": 3, "input_activations": INT8}}}},
               {"config": {"config_groups": {"a": {"targets": ["Linear"], "input_activations": 3}}}},
               {"config": "nowhere.yaml"}, {"config": CONFIG, "recipe": RECIPE}],
    "recipe": [{"recipe": 3}, {"recipe": "nowhere"}, {"recipe": {}}],
    "targets": [{"targets": 3}, {"targets": [3]}, {"targets": ["nothing"]}, {"targets": ["re:["]},
                {"targets": {"a": 1}},
                {"targets": ["Linear"], "config": CONFIG}],
    "ignore": [{"ignore": 3}, {"ignore": [3]}, {"ignore": "re:("}],
    "preset": [{"preset": 3}, {"preset": "llmc.minmx"}], "kv_cache": [{"kv_cache": "no"}, {"kv_cache": True}],
    "queries": [{"queries": 1}], "sensitivity": [{"sensitivity": "no"}], "seed": [{"seed": -1, "sensitivity": True}],
    "importance": [{"importance": 3}, {"importance": "local_hessian"}, {"importance": "qobs.local_hessian num_bits=99",
                                                                        "scheme": "W4A16"}],
    "settings": [{"settings": 3}, {"settings": ["a=1"]}, {"settings": {3: 4}}],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument(model, name):
    for options in REFUSED[name]:
        with pytest.raises((TypeError, qobs.InvalidArgumentError)) as failure:
            qobs.calibration(model, **options)
        text = str(failure.value)
        assert text.startswith(name) and "\n" not in text, (options, text)
    assert not any(m._forward_hooks for m in model.modules())


def test_every_argument_is_tried():
    import inspect
    assert set(inspect.signature(qobs.calibration).parameters) - {"model"} == set(REFUSED)
    for name in inspect.signature(qobs.calibration).parameters:
        assert f"- {name} (" in qobs.calibration.__doc__ or f"    - {name} (" in qobs.calibration.__doc__, name


def test_batches(model, batches):
    for wrong in (None, 3, "ab", {"x": batches[0]}):
        with pytest.raises(TypeError, match="^batches: is"):
            qobs.calibrate(model, wrong)
    assert qobs.calibrate(model, (b for b in batches)).scales() == qobs.calibrate(model, tuple(batches)).scales()


def test_did_you_mean(model):
    for options, word in (({"scheme": "W4A61"}, "W4A16"), ({"scheme": "W8A8_STATC"}, "W8A8_STATIC"),
                          ({"preset": "llmc.minmx"}, "llmc.minmax"), ({"settings": "nonfinit=ignore"}, "nonfinite")):
        with pytest.raises(qobs.InvalidArgumentError, match=f"did you mean '{word}'"):
            qobs.calibration(model, **options)


@pytest.mark.parametrize("function", [lambda m, **o: qobs.calibration(m, **o),
                                      lambda m, **o: record.recording(m, "nowhere", **o)])
@pytest.mark.parametrize("options, words", [
    ({"ignore": ["q_proj"]}, "ignore: 'q_proj' matches no module.*'re:.*q_proj' finds 2"),
    ({"ignore": "['q_proj', 'lm_head']"}, "ignore: .*a list is expected: .'q_proj', 'lm_head'"),
    ({"ignore": "q_proj,k_proj"}, "a list is expected: .'q_proj', 'k_proj'"),
    ({"ignore": ["layers.0.q_proj", "*k_proj"]}, r"ignore: '\*k_proj' matches no module.*'re:.*k_proj' finds 2"),
    ({"targets": ["Linear", "v_proj"]}, "targets: 'v_proj' matches no linear layer.*'re:.*v_proj' finds 2"),
    ({"ignore": "nothing"}, "ignore: 'nothing' matches no module$")])
def test_what_nothing_uses_is_a_warning(model, function, options, words):
    with pytest.warns(qobs.IncompleteWarning, match=words) as caught:
        function(model, **options)
    assert len(caught) == 1


def test_one_name_in_place_of_a_list(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c = qobs.calibration(model, targets="re:.*q_proj", ignore="layers.0.q_proj")
        assert set(c.observers) == {"layers.1.q_proj.input"}
        assert set(qobs.calibration(model, targets={"lm_head"}, ignore=()).observers) == {"lm_head.input"}
        qobs.calibration(torch.nn.Sequential(torch.nn.Linear(4, 4)))  # the default of ignore is not the caller's
        qobs.calibration(model, ignore=["layers.0", "Block", "Model"])  # modules that are no linear layers


def test_settings_as_a_dictionary(model):
    for settings in ("averaging_constant=0.5", {"averaging_constant": 0.5}):
        c = qobs.calibration(model, preset="llmc.minmax", settings=settings)
        assert {o.settings["averaging_constant"] for o in c.observers.values()} == {0.5}


# ---- Ends ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", [{}, {"sensitivity": True}, {"importance": True}])
def test_keyboard_interrupt(model, batches, options):
    """Ctrl-C in the model ends the block: no hook is left, and gradients are as before."""
    def stop(module, args):
        signal.raise_signal(signal.SIGINT)
    handle = model.layers[1].o_proj.register_forward_pre_hook(stop)
    for function in (lambda: qobs.calibrate(model, batches, **options),
                     lambda: run(qobs.calibration(model, **options))):
        def run(c):
            with c:
                model(batches[0])
        with torch.no_grad():
            with pytest.raises(KeyboardInterrupt):
                function()
            assert not torch.is_grad_enabled()
    handle.remove()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(p.requires_grad for p in model.parameters()) and model.training


def test_keyboard_interrupt_while_recording(model, batches, tmp_path):
    with pytest.raises(KeyboardInterrupt), record.recording(model, tmp_path / "out") as r, torch.no_grad():
        model(batches[0])
        model.layers[1].register_forward_pre_hook(lambda *_: signal.raise_signal(signal.SIGINT))
        model(batches[1])
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["00000.safetensors"] and len(r.files) == 1
