# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Sensitivity of a running model against gradients of its weights, and plans of its states."""
import json
import struct

import pytest
import libqobs as qobs

torch = pytest.importorskip("torch")
SEED, ROWS, COLUMNS, LENGTH = 3, 32, 64, 5


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj = torch.nn.Linear(COLUMNS, ROWS, bias=False)
        self.down_proj = torch.nn.Linear(ROWS, COLUMNS, bias=False)

    def forward(self, x):
        return x + self.down_proj(input=torch.tanh(self.up_proj(x)))


class Model(torch.nn.Module):
    def __init__(self, checkpointed=False):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(2))
        self.lm_head = torch.nn.Linear(COLUMNS, 8, bias=False)
        self.checkpointed = checkpointed

    def forward(self, x, attention_mask=None):
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.lm_head(x)


def make_model(**options):
    torch.manual_seed(0)
    model = Model(**options)
    with torch.no_grad():  # numbers of a checkpoint
        for p in model.parameters():
            p.copy_(p.bfloat16())
    return model


@pytest.fixture
def batches():
    torch.manual_seed(1)
    return [torch.randn(n, LENGTH, COLUMNS) for n in (2, 3, 1)]


def collect(model, batches, **kwargs):
    with qobs.calibration(model, "W4A16", sensitivity=True, seed=SEED) as c, torch.no_grad():
        outputs = [model(batch, **kwargs) for batch in batches]
    return c, outputs


def labels_of(logits, sequence):
    generator = torch.Generator().manual_seed(SEED + sequence)
    return torch.multinomial(logits.softmax(-1).flatten(0, -2), 1, generator=generator).view(logits.shape[:-1])


def expected(batches):
    """Mean squares by name, from the gradient of each weight by each sequence."""
    model, sums, counts = make_model(), {}, [0, 0]
    inputs = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.register_forward_hook(lambda m, a, k, y, n=name: inputs.__setitem__(n, a[0] if a else k["input"]),
                                         with_kwargs=True)
    sequence = 0
    for batch in batches:
        labels = labels_of(model(batch).detach(), sequence)
        for i, x in enumerate(batch):
            model.zero_grad()
            model(x[None]).log_softmax(-1).gather(-1, labels[i][None, :, None]).sum().backward()
            half = (sequence + i) % 2
            counts[half] += 1
            for name, seen in inputs.items():
                row = model.get_submodule(name).weight.grad.square().sum(1) / seen.square().sum()
                key = f"{name}.sensitivity_{'ab'[half]}"
                sums[key] = sums.get(key, 0) + row.detach()
        sequence += len(batch)
    return {key: value / counts["ab".index(key[-1])] for key, value in sums.items()}


def sensitivity(c):
    return {name: torch.as_tensor(o.read("imatrix_sum")) / int(o.read("imatrix_count"))
            for name, o in c.observed().items() if "sensitivity" in name}


def assert_close(got, want):
    assert sorted(got) == sorted(want)
    for name in want:
        torch.testing.assert_close(got[name].flatten(), want[name], rtol=1e-4, atol=1e-10)


def test_it_is_that_of_gradients_of_weights(batches):
    plain = make_model()
    with torch.no_grad():
        outputs = [plain(batch) for batch in batches]
    model = make_model()
    c, observed = collect(model, batches)
    assert all(torch.equal(a, b) for a, b in zip(outputs, observed))
    assert_close(sensitivity(c), expected(batches))
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    seen = {name: int(o.read("imatrix_count")) for name, o in c.observed().items() if name.endswith(".importance")}
    assert set(seen.values()) == {6 * LENGTH}


def test_checkpointed_activations_give_the_same(batches):
    c, _ = collect(make_model(checkpointed=True), batches)
    assert_close(sensitivity(c), expected(batches))
    assert {int(o.read("imatrix_count")) for n, o in c.observed().items() if n.endswith(".importance")} == {6 * LENGTH}


def test_masked_tokens_have_no_labels(batches):
    mask = torch.ones(2, LENGTH)
    whole, _ = collect(make_model(), batches[:1], attention_mask=mask)
    plain, _ = collect(make_model(), batches[:1])
    assert_close(sensitivity(whole), sensitivity(plain))
    none, _ = collect(make_model(), batches[:1], attention_mask=0 * mask)
    assert all(not v.any() for v in sensitivity(none).values())


def test_ranks_merge(batches):
    whole, _ = collect(make_model(), batches)
    with qobs.calibration(make_model(), "W4A16", sensitivity=True, seed=SEED) as first:
        first._sensitivity._model(batches[0])
    with qobs.calibration(make_model(), "W4A16", sensitivity=True, seed=SEED) as second:
        second._sensitivity._sequence = 2  # its sequences follow those of the first rank
        for batch in batches[1:]:
            second._sensitivity._model(batch)
    for name, observer in first.observers.items():
        observer.merge(second.observers[name])
    assert_close(sensitivity(first), sensitivity(whole))


def test_refusals(batches):
    model = make_model()
    with qobs.calibration(model, "W4A16", sensitivity=True), torch.inference_mode():
        with pytest.raises(qobs.InvalidArgumentError, match="inference_mode"):
            model(batches[0])
    with qobs.calibration(model.layers[0], "W4A16", sensitivity=True, targets=["down_proj"]), torch.no_grad():
        with pytest.raises(RuntimeError):
            model.layers[0](torch.randn(2, 3, 1))
        assert not torch.is_grad_enabled()
    for seed in (-1, 1 << 64, "x"):
        with pytest.raises((qobs.InvalidArgumentError, TypeError)):
            qobs.calibration(model, "W4A16", sensitivity=True, seed=seed)


# ---- Plans -----------------------------------------------------------------------------------------------------------

def write_model(directory, model):
    directory.mkdir()
    header, data = {}, b""
    for name, tensor in model.state_dict().items():
        raw = tensor.bfloat16().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (directory / "config.json").write_text('{"model_type": "llama"}')
    return directory


def kl_of(model, quantized, batches):
    with torch.no_grad():
        before, after = (torch.cat([m(b).log_softmax(-1).flatten(0, 1) for b in batches]) for m in (model, quantized))
    return (before.exp() * (before - after)).sum(-1).mean().item()


def test_plan_predicts_and_chooses(tmp_path):
    torch.manual_seed(1)
    batches = [torch.randn(8, LENGTH, COLUMNS) for _ in range(32)]
    model = make_model()
    directory = write_model(tmp_path / "model", model)
    c, _ = collect(model, batches)
    settings = {"group_size": 32}
    schemes = ["W3A16", "W4A16", "W6A16"]
    report = c.plan(directory, schemes, preset="llmc.memoryless_minmax", settings=settings)
    assert report["warnings"] == [] and [s["scheme"] for s in report["schemes"]] == schemes
    for scheme in report["schemes"]:
        bits = int(scheme["scheme"][1])
        quantized = make_model()
        with torch.no_grad():
            for name, p in quantized.named_parameters():
                if name.startswith("layers"):
                    w = p.view(p.shape[0], -1, 32)
                    scale = (w.abs().amax(-1, keepdim=True) * 2 / (2 ** bits - 1)).bfloat16().float()
                    p.copy_(((w / scale).round().clamp(-2 ** (bits - 1), 2 ** (bits - 1) - 1) * scale).view_as(p))
        assert scheme["kl"] == pytest.approx(kl_of(model, quantized, batches), rel=.25)
    recipe = tmp_path / "recipe.yaml"
    mixture = c.plan(directory, schemes, preset="llmc.memoryless_minmax", settings=settings, budget=5.1,
                     out=recipe)["mixture"]
    assert mixture["optimal"] and mixture["bits"] <= 5.1
    assert len({m["scheme"] for m in mixture["layers"]}) > 1
    made = qobs.quantize(directory, tmp_path / "out", recipe=recipe)
    assert sum(layer["bytes_after"] for layer in made["layers"]) == mixture["bytes"]
    stages = set()
    states = tmp_path / "states"
    c.save(states)
    again = qobs.plan(directory, schemes, states=[states], settings={"W3A16.group_size": 32, "W4A16.group_size": 32,
                                                                     "W6A16.group_size": 32}, budget=5.1,
                      progress=lambda p: stages.add(p.stage))
    assert again["mixture"] == mixture and stages == {"plan"}


def test_plan_takes_the_diagonal_of_a_hessian(tmp_path, batches):
    model = make_model()
    directory = write_model(tmp_path / "model", model)
    found = []
    for importance in (True, "qobs.local_hessian group_size=32"):
        with qobs.calibration(model, "W4A16", sensitivity=True, importance=importance, seed=SEED) as c:
            for batch in batches:
                model(batch)
        found.append(c.plan(directory, ["W4A16"], preset="llmc.memoryless_minmax", settings={"group_size": 32}))
    assert found[1]["schemes"][0]["kl"] == pytest.approx(found[0]["schemes"][0]["kl"], rel=1e-5)


def test_plan_refuses(tmp_path, batches):
    model = make_model()
    directory = write_model(tmp_path / "model", model)
    with pytest.raises(qobs.InvalidArgumentError, match="schemes"):
        qobs.plan(directory, [])
    with pytest.raises(qobs.InvalidArgumentError, match="budget"):
        qobs.plan(directory, ["W8A16"], settings={"group_size": 32}, budget=9)
    for limit in (-1, float("nan"), float("inf")):
        with pytest.raises(qobs.InvalidArgumentError, match="max_kl"):
            qobs.plan(directory, ["W8A16"], settings={"group_size": 32}, max_kl=limit)
    report = qobs.plan(directory, ["W8A16"], settings={"group_size": 32})
    assert report["schemes"][0]["kl"] is None and "sensitivity" in report["warnings"][0]
