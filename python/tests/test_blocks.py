# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Calibration block by block against that of the model in memory, byte for byte, and after every interruption."""
import contextlib
import filecmp
import io
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

import libqobs as qobs
import pytest
from libqobs import blocks

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", "5")

KILLS = int(os.environ.get("QOBS_KILLS", 20))
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 64}
# The property of a model that others lack -> its configuration
MODELS = {
    "plain": lambda: transformers.LlamaConfig(**SMALL),
    "tied, two kinds of masks and positions": lambda: transformers.Gemma3TextConfig(
        **SMALL, head_dim=16, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=8, tie_word_embeddings=True),
    "experts that are merged and renamed": lambda: transformers.MixtralConfig(**SMALL, num_local_experts=4),
    "dense and sparse blocks": lambda: transformers.DeepseekV3Config(
        **{**SMALL, "num_key_value_heads": 4}, first_k_dense_replace=1, n_routed_experts=8, n_group=2, topk_group=1,
        num_experts_per_tok=2, moe_intermediate_size=32, q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=8,
        qk_nope_head_dim=8, v_head_dim=16),
    "projections before and after": lambda: transformers.OPTConfig(
        hidden_size=64, ffn_dim=128, num_hidden_layers=3, num_attention_heads=4, vocab_size=128, word_embed_proj_dim=32,
        max_position_embeddings=64),
    "two kinds of blocks": lambda: transformers.BambaConfig(
        **SMALL, attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, mamba_n_groups=1,
        mamba_chunk_size=16),
}
OPTIONS = {"W8A8": {"scheme": "W8A8_STATIC"}, "FP8": {"scheme": "FP8", "ignore": []},
           "importance": {"scheme": "W4A16", "importance": True},
           "Hessian": {"scheme": "W4A16", "importance": "qobs.local_hessian group_size=32 hessian_block_size=128"},
           "KV cache": {"scheme": "FP8", "kv_cache": True}}


def batches():
    generator = torch.Generator().manual_seed(1)
    found = [{"input_ids": torch.randint(3, 128, (2, 12 + 3 * i), generator=generator)} for i in range(3)]
    found[1]["attention_mask"] = torch.ones_like(found[1]["input_ids"])
    found[1]["attention_mask"][1, :4] = 0
    return found


def saved(config, folder):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    for p in model.parameters():
        p.data.normal_(0, 0.1)
    model.save_pretrained(folder)
    return str(folder)


def in_memory(folder, given, states=None, **options):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    model.config.use_cache = False
    observed = qobs.calibrate(model, given, **options)
    if states is not None:
        observed.save(states)
    return observed


def assert_same(states, expected):
    names = sorted(os.listdir(expected))
    assert sorted(os.listdir(states)) == sorted([*names, "run.json"])
    assert filecmp.cmpfiles(states, expected, names, shallow=False)[1:] == ([], []), "states differ"


def assert_same_model(out, expected):
    assert filecmp.cmp(out / "model.safetensors", expected / "model.safetensors", shallow=False)


# calibration() finds no k_proj in latent attention
PAIRS = [(kind, options) for kind in MODELS for options in OPTIONS
         if (kind, options) != ("dense and sparse blocks", "KV cache")]


@pytest.mark.parametrize("kind, options", PAIRS)
def test_states_are_those_of_the_model_in_memory(kind, options, tmp_path):
    folder, options = saved(MODELS[kind](), tmp_path / "model"), OPTIONS[options]
    in_memory(folder, batches(), tmp_path / "expected", **options)
    report = qobs.calibrate_blocks(folder, batches(), states=tmp_path / "states", **options)
    assert_same(tmp_path / "states", tmp_path / "expected")
    after = "ignore" in options or kind == "projections before and after"  # something is observed after the blocks
    assert report["blocks"] == 3 and report["run"] == 3 + after and report["batches"] == 3
    assert sorted(os.listdir(tmp_path)) == ["expected", "model", "states"]


def test_states_quantize_the_model(tmp_path):
    folder = saved(MODELS["experts that are merged and renamed"](), tmp_path / "model")
    in_memory(folder, batches(), scheme="FP8").quantize(folder, tmp_path / "expected", fill_experts="max")
    qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")
    qobs.quantize(folder, tmp_path / "out", "FP8", states=[tmp_path / "states"], fill_experts="max")
    assert_same_model(tmp_path / "out", tmp_path / "expected")


# ---- Ranks -----------------------------------------------------------------------------------------------------------

WORKER = """
import sys, torch
import libqobs as qobs
sys.path.insert(0, sys.argv[1])
import test_blocks as t
import torch.distributed as dist
torch.set_num_threads(1)
folder, rank, ranks, address = sys.argv[2:]
rank, ranks = int(rank), int(ranks)
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
mine = t.batches()[rank::ranks]
for number, (_, kind) in enumerate(t.OF_RANKS):
    model, options = f"{folder}/{number}", t.OPTIONS[kind]
    qobs.calibrate_blocks(f"{model}/model", mine, states=f"{model}/states", group=True, **options)
    observed = t.in_memory(f"{model}/model", mine, **options)
    qobs.distributed.merge(observed.observers.values())
    if rank == 0:
        observed.save(f"{model}/expected")
dist.destroy_process_group()
"""
OF_RANKS = [*zip(MODELS, ("W8A8", "importance", "FP8", "W8A8", "Hessian", "KV cache")),
            ("experts that are merged and renamed", "Hessian")]


def address():
    """Where processes of torch.distributed meet."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{s.getsockname()[1]}"


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks(ranks, tmp_path):
    """Each has a share of the batches, and some experts get no token of one."""
    for number, (kind, _) in enumerate(OF_RANKS):
        saved(MODELS[kind](), tmp_path / str(number) / "model")
    where = address()
    processes = [subprocess.Popen([sys.executable, "-c", WORKER, os.path.dirname(__file__), tmp_path, str(rank),
                                   str(ranks), where], stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
    errors = [process.communicate()[1] for process in processes]
    assert not any(process.returncode for process in processes), errors
    for number in range(len(OF_RANKS)):
        folder = tmp_path / str(number)
        assert_same(folder / "states", folder / "expected")
        assert sorted(os.listdir(folder)) == ["expected", "model", "states"]


# ---- Interruptions ---------------------------------------------------------------------------------------------------

class Stopped(Exception):
    pass


def stop_after(monkeypatch, method, calls):
    """The calibration ends in the given call of a method of its directory."""
    store = sys.modules["libqobs._block_store"].Store
    own, count = getattr(store, method), [0]

    def stopping(self, *args):
        count[0] += 1
        if count[0] == calls:
            raise Stopped
        return own(self, *args)
    monkeypatch.setattr(store, method, stopping)


@pytest.mark.parametrize("method, calls, run", [
    ("put", 1, 4), ("put", 5, 3), ("end_hidden", 2, 3), ("add_states", 1, 4), ("add_states", 3, 2),
    ("drop_hidden", 2, 2), ("add_states", 4, 1), ("publish", 1, 0), ("remove", 1, 0)])
def test_an_interrupted_calibration_goes_on(method, calls, run, tmp_path, monkeypatch):
    """Blocks whose states are complete do not run again."""
    folder = saved(MODELS["plain"](), tmp_path / "model")
    in_memory(folder, batches(), tmp_path / "expected", **OPTIONS["FP8"])
    stop_after(monkeypatch, method, calls)
    with pytest.raises(Stopped):
        qobs.calibrate_blocks(folder, batches(), states=tmp_path / "states", **OPTIONS["FP8"])
    monkeypatch.undo()
    report = qobs.calibrate_blocks(folder, batches(), states=tmp_path / "states", **OPTIONS["FP8"])
    assert report["run"] == run
    assert_same(tmp_path / "states", tmp_path / "expected")
    assert sorted(os.listdir(tmp_path)) == ["expected", "model", "states"]


# A line of its input is a run, in a process of its own; it writes the number of that process, and how it has ended.
KILLED = """
import os, sys, torch, transformers
import libqobs as qobs
sys.path.insert(0, sys.argv[1])
import {module} as t
transformers.LlamaForCausalLM
for line in sys.stdin:
    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        t.{function}(sys.argv[2], sys.argv[3])
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Killer:
    """Runs a function of a test file for a model and a directory, and kills it."""

    def __init__(self, function, *paths):
        program = KILLED.format(module=function.__module__, function=function.__name__)
        command = [sys.executable, "-c", program, os.path.dirname(__file__), *map(str, paths)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, seconds):
        """Exit status after some seconds, and how long it took."""
        print(file=self.process.stdin, flush=True)
        child, begin = int(self.process.stdout.readline()), time.monotonic()
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(child, signal.SIGKILL)
        return int(self.process.stdout.readline()), time.monotonic() - begin

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0


def kill_again_and_again(function, folder, out, check):
    """Runs until it was killed often enough at random moments; check: of a run that has come to its end."""
    killer, chance, killed, whole = Killer(function, folder, out), random.Random(3), 0, 0
    longest = killer.run(600)[1]
    while killed < KILLS or not os.path.exists(out):
        if os.path.exists(out):
            check()
            shutil.rmtree(out)
            whole += 1
        status, _ = killer.run(chance.uniform(0, longest) if killed < KILLS else 600)
        assert status in (0, -signal.SIGKILL)
        killed += status != 0
    check()
    killer.close()
    print(f"{killed} kills, {whole + 1} complete runs")


def calibrate_with_hessian(folder, states):
    qobs.calibrate_blocks(folder, batches(), states=states, **OPTIONS["Hessian"])


def test_kills(tmp_path):
    """Killed at random moments again and again, it ends with the bytes of an undisturbed run."""
    folder, states = saved(MODELS["plain"](), tmp_path / "model"), tmp_path / "states"
    in_memory(folder, batches(), tmp_path / "expected", **OPTIONS["Hessian"])
    kill_again_and_again(calibrate_with_hessian, folder, states, lambda: assert_same(states, tmp_path / "expected"))


def begun(tmp_path, monkeypatch, blocks=2):
    """A calibration that has ended after some blocks."""
    folder = saved(MODELS["plain"](), tmp_path / "model")
    stop_after(monkeypatch, "begin_hidden", blocks + 1)
    with pytest.raises(Stopped):
        qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")
    monkeypatch.undo()
    return folder


def contents(folder):
    return {os.path.join(at, name): open(os.path.join(at, name), "rb").read()
            for at, _, names in os.walk(folder) for name in names}


@pytest.mark.parametrize("name, scheme, change, options", [
    ("scheme", "W8A8_STATIC", lambda b: b, {}), ("scheme", "FP8", lambda b: b, {"preset": "llmc.minmax"}),
    ("batches", "FP8", lambda b: b[:2], {}),
    ("batches", "FP8", lambda b: [*b[:2], {"input_ids": b[2]["input_ids"] + 1}], {}),
    ("load", "FP8", lambda b: b, {"load": {"attn_implementation": "eager"}})])
def test_something_else_does_not_go_on(name, scheme, change, options, tmp_path, monkeypatch):
    folder = begun(tmp_path, monkeypatch)
    before = contents(tmp_path / "states.blocks")
    said = f"^{name}: .* was begun with .*; go on with that, or remove it"
    with pytest.raises(qobs.InvalidArgumentError, match=said):
        qobs.calibrate_blocks(folder, change(batches()), scheme, states=tmp_path / "states", **options)
    assert contents(tmp_path / "states.blocks") == before
    assert qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")["run"] == 1


def test_a_model_that_has_changed(tmp_path, monkeypatch):
    folder = begun(tmp_path, monkeypatch)
    with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
        file.truncate(os.path.getsize(file.name) - 100)
    with pytest.raises(qobs.InvalidArgumentError, match="model_dir: .*transformers cannot load it"):
        qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")
    saved(transformers.LlamaConfig(**{**SMALL, "intermediate_size": 192}), folder)
    with pytest.raises(qobs.InvalidArgumentError, match="model_dir: .* was begun with"):
        qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")


@pytest.mark.parametrize("cut", [lambda size: size // 2, lambda size: 0, None])
def test_a_file_that_was_cut_meanwhile(cut, tmp_path, monkeypatch):
    """The error says what to remove, and complete blocks are not lost by that."""
    folder = begun(tmp_path, monkeypatch)
    in_memory(folder, batches(), tmp_path / "expected", scheme="FP8")
    hidden = tmp_path / "states.blocks" / "rank-0" / "hidden-00001"
    path = hidden / "000002.pt"
    if cut is None:
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)
    else:
        os.truncate(path, cut(path.stat().st_size))
    with pytest.raises(qobs.InvalidArgumentError, match=f"{path}: has .*; remove that folder and run it again"):
        qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")
    shutil.rmtree(hidden)
    assert qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")["run"] == 1
    assert_same(tmp_path / "states", tmp_path / "expected")


def test_a_state_that_was_cut_meanwhile(tmp_path, monkeypatch):
    folder = begun(tmp_path, monkeypatch)
    path = tmp_path / "states.blocks" / "block-00000" / "3.qobs"
    os.truncate(path, 10)
    with pytest.raises(qobs.InvalidArgumentError, match=f"{path}: has 10 bytes and had"):
        qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")


@pytest.mark.parametrize("limit", [100, 2000, 4000])
def test_a_full_disk(limit, tmp_path):
    """It fails with an OSError, and goes on when there is room."""
    folder = saved(MODELS["plain"](), tmp_path / "model")
    in_memory(folder, batches(), tmp_path / "expected", scheme="FP8")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(OSError):
            qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")
    assert_same(tmp_path / "states", tmp_path / "expected")


def test_two_processes(tmp_path, monkeypatch):
    folder = begun(tmp_path, monkeypatch)
    store = sys.modules["libqobs._block_store"].Store(str(tmp_path / "states"), 0)
    os.makedirs(tmp_path / "states.blocks" / "rank-0", exist_ok=True)
    store._take()
    with pytest.raises(qobs.InvalidArgumentError, match="states: another process is at work in .*states.blocks"):
        qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")
    store.close()
    qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")


def test_complete_states_stay(tmp_path):
    folder = saved(MODELS["plain"](), tmp_path / "model")
    assert qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")["run"] == 3
    before = contents(tmp_path / "states")
    assert qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")["run"] == 0
    with pytest.raises(qobs.InvalidArgumentError, match="scheme: .* holds states of .*; remove it or choose another"):
        qobs.calibrate_blocks(folder, batches(), "W8A8_STATIC", states=tmp_path / "states")
    assert contents(tmp_path / "states") == before
    os.remove(tmp_path / "states" / "run.json")
    with pytest.raises(FileExistsError, match="states is not empty"):
        qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")


# ---- Models that cannot run so ---------------------------------------------------------------------------------------

class Loop(transformers.LlamaForCausalLM):
    """Runs its blocks twice."""

    def forward(self, input_ids=None, **kwargs):
        first = self.model(input_ids=input_ids, use_cache=False).last_hidden_state
        return self.model(inputs_embeds=first, use_cache=False)


class Skips(transformers.LlamaForCausalLM):
    """Adds what its first block returns to what its last one returns."""

    def forward(self, input_ids=None, **kwargs):
        h = self.model.embed_tokens(input_ids)
        positions = self.model.rotary_emb(h, torch.arange(h.shape[1])[None])
        first = h = self.model.layers[0](h, position_embeddings=positions)
        h = self.model.layers[1](h, position_embeddings=positions) + first
        return self.model.layers[2](h, position_embeddings=positions)


class Draws(transformers.LlamaForCausalLM):
    """Adds noise."""

    def forward(self, input_ids=None, **kwargs):
        h = self.model.embed_tokens(input_ids)
        return self.model(inputs_embeds=h + torch.randn_like(h), use_cache=False)


class Counts(transformers.LlamaForCausalLM):
    """Changes a buffer in each call."""

    def forward(self, input_ids=None, **kwargs):
        self.model.rotary_emb.inv_freq += 1
        return self.model(input_ids=input_ids, use_cache=False)


@pytest.mark.parametrize("cls, reason", [
    (Loop, r"model.layers.0 runs where (no other|model.layers.1) is expected"),
    (Skips, "model.layers.2 reads what earlier"), (Draws, "draws random numbers"),
    (Counts, "keeps a state in its buffers")])
def test_models_that_are_refused(cls, reason, tmp_path, monkeypatch):
    folder = saved(MODELS["plain"](), tmp_path / "model")
    monkeypatch.setattr(sys.modules["transformers"], cls.__name__, cls, raising=False)  # it replaces itself
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": [cls.__name__]}))
    with pytest.raises(qobs.UnsupportedError, match=f"{cls.__name__} cannot run block by block: .*{reason}"):
        qobs.calibrate_blocks(folder, batches(), "FP8", states=tmp_path / "states")
    assert not os.path.exists(tmp_path / "states")


def test_an_encoder_and_a_decoder(tmp_path):
    config = transformers.T5Config(d_model=64, d_ff=64, num_layers=2, num_heads=4, vocab_size=128)
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    with pytest.raises(qobs.UnsupportedError, match="T5ForConditionalGeneration .* an encoder and a decoder"):
        qobs.calibrate_blocks(tmp_path / "model", batches(), "FP8", states=tmp_path / "states")


@pytest.mark.parametrize("error, words, arguments", [
    (qobs.InvalidArgumentError, "model_dir: .*nowhere is no directory", {"model_dir": "nowhere"}),
    (TypeError, "model_dir: is 3", {"model_dir": 3}), (TypeError, "states: is 3", {"states": 3}),
    (TypeError, "batches: is 'text'", {"batches": "text"}), (qobs.NoDataError, "no batch", {"batches": []}),
    (qobs.InvalidArgumentError, "sensitivity: needs gradients", {"sensitivity": True}),
    (qobs.InvalidArgumentError, "group: torch.distributed is not initialized", {"group": True}),
    (qobs.InvalidArgumentError, "scheme: 'FP9' is unknown", {"scheme": "FP9"}),
    (qobs.InvalidArgumentError, "files lack .*k_proj", {"lost": "k_proj"})])
def test_wrong_arguments(error, words, arguments, tmp_path):
    folder = saved(MODELS["plain"](), tmp_path / "model")
    if "lost" in arguments:
        from safetensors.torch import load_file, save_file
        tensors = load_file(os.path.join(folder, "model.safetensors"))
        save_file({k: v for k, v in tensors.items() if arguments["lost"] not in k},
                  os.path.join(folder, "model.safetensors"), {"format": "pt"})
        arguments = {}
    given = {"model_dir": folder, "batches": batches(), "scheme": "FP8", "states": tmp_path / "states", **arguments}
    with pytest.raises(error, match=words):
        qobs.calibrate_blocks(given.pop("model_dir"), given.pop("batches"), **given)
    assert not os.path.exists(tmp_path / "states")


# ---- Command ---------------------------------------------------------------------------------------------------------

@pytest.fixture
def words(tmp_path):
    """A model with a tokenizer, and a text."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = saved(MODELS["plain"](), tmp_path / "model")
    vocabulary = {word: i for i, word in enumerate(["?", "a", "b", "c", "d", "e"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder)
    chance = random.Random(1)
    (tmp_path / "text").write_text(" ".join(chance.choice("abcde") for _ in range(200)))
    return folder


def run(folder, tmp_path, *arguments, states=True):
    """Exit status, output and errors of the command."""
    output, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            blocks.main([folder, "--text", str(tmp_path / "text"), "--samples", "6", "--length", "16",
                         *(["--states", str(tmp_path / "states")] * states), *map(str, arguments)])
        except SystemExit as end:
            status = end.code
    return status, output.getvalue(), errors.getvalue()


def ids(folder, tmp_path, together):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer((tmp_path / "text").read_text(), return_tensors="pt").input_ids
    return list(tokens[0, :96].reshape(6, 16).split(together))


@pytest.mark.parametrize("memory, together", [((), 1), (("--memory", "100K"), 3), (("--memory", "1G"), 6)])
def test_command(memory, together, words, tmp_path):
    """It writes the states of samples that run together as far as the memory goes, and quantizes with them."""
    found = run(words, tmp_path, "--scheme", "FP8", "-o", tmp_path / "out", *memory)
    assert found[0] == 0, found
    given = ids(words, tmp_path, together)
    assert f"6 samples of 16 tokens from text in {len(given)} batches" in found[1] and "21 layers quantized" in found[1]
    observed = in_memory(words, given, tmp_path / "expected", scheme="FP8")
    assert_same(tmp_path / "states", tmp_path / "expected")
    observed.quantize(words, tmp_path / "again")
    assert_same_model(tmp_path / "out", tmp_path / "again")


def test_command_with_a_hessian(words, tmp_path):
    importance = "qobs.local_hessian group_size=32 hessian_block_size=64"
    found = run(words, tmp_path, "--scheme", "W4A16", "--importance", importance, "-o", tmp_path / "out")
    assert found[0] == 0, found
    observed = in_memory(words, ids(words, tmp_path, 1), scheme="W4A16", importance=importance)
    observed.quantize(words, tmp_path / "again")
    assert_same_model(tmp_path / "out", tmp_path / "again")


@pytest.mark.parametrize("text, arguments", [
    ("scheme: 'FP9' is unknown", ["--scheme", "FP9"]), ("--memory: is 'much'", ["--memory", "much"]),
    ("fewer than one sample", ["--length", "1000"])])
def test_command_refuses(text, arguments, words, tmp_path):
    found = run(words, tmp_path, *arguments)
    assert found[0] == 2 and text in found[2]
    assert not os.path.exists(tmp_path / "states")
