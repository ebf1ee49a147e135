# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The examples for Ray, with two workers on this machine."""
import json
import os
import sys

import pytest
import libqobs as qobs

ray = pytest.importorskip("ray")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def examples(root):
    """The examples as modules, and a Ray of two processors."""
    folder = str(root / "examples" / "ray")
    sys.path.insert(0, folder)
    # Workers find the package where this process has found it.
    paths = os.pathsep.join([folder, os.path.dirname(os.path.dirname(qobs.__file__))])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
             runtime_env={"env_vars": {"PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}})
    import calibrate_actors
    import quantize_parts
    yield calibrate_actors, quantize_parts
    ray.shutdown()
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("model"))
    config = transformers.LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, vocab_size=256,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="200KB")
    return folder


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("scheme", ["FP8", "NVFP4"])
def test_actors_calibrate(examples, model, tmp_path, scheme):
    samples = torch.randint(0, 256, (12, 32), generator=torch.Generator().manual_seed(1)).tolist()
    (tmp_path / "tokens.json").write_text(json.dumps(samples))
    examples[0].main([model, str(tmp_path / "tokens.json"), str(tmp_path / "out"), "--scheme", scheme])
    torch.set_num_threads(1)
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    with qobs.calibration(network, scheme) as c, torch.no_grad():
        for sample in samples:
            network(torch.tensor([sample]), use_cache=False)
    c.quantize(model, tmp_path / "one")
    assert files(tmp_path / "out") == files(tmp_path / "one") != {}


def test_tasks_quantize_parts(examples, model, tmp_path, capsys):
    examples[1].main([model, str(tmp_path / "out")])
    assert "14 layers" in capsys.readouterr().out
    qobs.quantize(model, tmp_path / "one", "W4A16", preset="llmc.memoryless_mse")
    assert files(tmp_path / "out") == files(tmp_path / "one")
    assert len([name for name in files(tmp_path / "out") if name.endswith(".safetensors")]) > 2
