#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of qobs audit on GGUF files: faults are put into a sound file one by one, and the audit finds each and nothing
else.

    test_gguf_audit.py QOBS
"""
import json
import math
import os
import struct
import sys

import cli
from cli import check, equal
from gguf_files import F32, I32, STRING, U16, U32, gguf
from test_gguf_writer import Reader, f16, imatrix, numbers

KEYS = [("general.architecture", STRING, "llama"), ("general.type", STRING, "model"), ("llama.block_count", U32, 2),
        ("llama.embedding_length", U32, 256), ("llama.expert_count", U32, 4), ("llama.attention.head_count", U32, 8),
        ("llama.attention.head_count_kv", U32, 2), ("tokenizer.ggml.tokens", STRING, list("abcdefgh"))]
K, EXPERTS, NORM, BIAS = ("blk.0.attn_k.weight", "blk.1.ffn_up_exps.weight", "blk.1.attn_norm.weight",
                          "blk.0.attn_q.bias")


def f32(count):
    return struct.pack(f"<{count}f", *numbers(count))


def layer(i):
    return {f"blk.{i}.attn_norm.weight": (0, [256], f32(256)), f"blk.{i}.attn_q.weight": (1, [8, 256], f16(2048, i)),
            f"blk.{i}.attn_q.bias": (0, [8], f32(8)), f"blk.{i}.attn_k.weight": (1, [4, 256], f16(1024, i)),
            f"blk.{i}.attn_v.weight": (1, [4, 256], f16(1024, 9 + i)),
            f"blk.{i}.ffn_gate_inp.weight": (0, [4, 256], f32(1024)),
            f"blk.{i}.ffn_up_exps.weight": (1, [4, 2, 256], f16(2048, 20 + i))}


def make_sound(scheme="Q4_K_M", *words):
    tensors = {"token_embd.weight": (1, [8, 256], f16(2048, 30)), "output_norm.weight": (0, [256], f32(256)),
               **layer(0), **layer(1)}
    cli.write("in.gguf", gguf(KEYS, tensors))
    run = cli.run("quantize", "in.gguf", "--scheme", scheme, "-o", "out.gguf", "--replace", *words)
    equal((run.returncode, run.stderr), (0, ""), f"quantize {scheme}")


def audit(path="out.gguf", *words, status=None):
    run = cli.run("audit", path, "--json", *words)
    if status is not None:
        equal(run.returncode, status, f"audit {path} {words}: {run.stdout}{run.stderr}")
    return run.returncode, json.loads(run.stdout) if run.stdout else run.stderr


def parts(path):
    """Keys and tensors of a file, to be changed and written again."""
    file = Reader(path)
    return list(file.keys), {n: [kind, list(shape), file.content(n)] for n, (kind, shape, _) in file.tensors.items()}


def set_key(name, kind, value):
    def change(keys, tensors):
        at = [k[0] for k in keys].index(name)
        keys[at] = name, kind, value
    return change


def drop_key(name):
    return lambda keys, tensors: keys.pop([k[0] for k in keys].index(name))


def drop(name):
    return lambda keys, tensors: tensors.pop(name)


def put(name, at, value):
    return lambda keys, tensors: tensors[name].__setitem__(2, tensors[name][2][:at] + value
                                                           + tensors[name][2][at + len(value):])


def rename(old, new):
    return lambda keys, tensors: tensors.__setitem__(new, tensors.pop(old))


def add(name, tensor):
    return lambda keys, tensors: tensors.__setitem__(name, list(tensor))


def drop_layer(keys, tensors):
    for name in [n for n in tensors if n.startswith("blk.1.")]:
        del tensors[name]


def fewer_experts(keys, tensors):
    kind, shape, data = tensors[EXPERTS]
    tensors[EXPERTS] = [kind, [3] + shape[1:], data[:len(data) // 4 * 3]]


def zeros(name):
    return lambda keys, tensors: tensors[name].__setitem__(2, bytes(len(tensors[name][2])))


def other_file(keys, tensors):
    """The blocks of Q6_K in a file that says Q4_K_M."""
    make_sound("Q6_K")
    tensors.clear()
    tensors.update(parts("out.gguf")[1])


HALF_NAN, HALF_INF = struct.pack("<e", math.nan), struct.pack("<e", -math.inf)
# A fault: the module of the finding, words of it, and the change.
FAULTS = {
    "a scale is NaN": (K, "1 of 8 scales are not finite, the first in block 2", put(K, 288, HALF_NAN)),
    "a scale is infinite": (K, "1 of 8 scales are not finite, the first in block 0", put(K, 0, HALF_INF)),
    "a minimum is infinite": (K, "1 of 8 scales are not finite, the first in block 3", put(K, 434, HALF_INF)),
    "a scale of an expert is NaN": (EXPERTS, "the first in block 7", put(EXPERTS, 7 * 144, HALF_NAN)),
    "a norm has NaN": (NORM, "1 of 256 numbers are not finite, the first in element 5",
                       put(NORM, 20, struct.pack("<f", math.nan))),
    "a bias is infinite": (BIAS, "1 of 8 numbers", put(BIAS, 0, struct.pack("<f", math.inf))),
    "the file type is another": ("", "general.file_type says Q8_0", set_key("general.file_type", U32, 7)),
    "the file type is that of the source": ("", "general.file_type says F16", set_key("general.file_type", U32, 1)),
    "the tensors are those of another file": ("", "general.file_type says Q4_K_M", other_file),
    "the version of blocks is missing": ("", "quantization_version is missing",
                                         drop_key("general.quantization_version")),
    "the version of blocks is another": ("", "quantization_version is another",
                                         set_key("general.quantization_version", U32, 1)),
    "the version of blocks is no number": ("", "quantization_version is another",
                                           set_key("general.quantization_version", F32, 2.0)),
    "the architecture is missing": ("", "has no general.architecture", drop_key("general.architecture")),
    "a layer is missing": ("", "layer 1 has no tensor: llama.block_count says 2", drop_layer),
    "block_count is larger": ("", "layer 2 has no tensor: llama.block_count says 3",
                              set_key("llama.block_count", U32, 3)),
    "block_count is smaller": ("blk.1.attn_k.weight", "is one of 7 tensors of other layers: llama.block_count says 1",
                               set_key("llama.block_count", U32, 1)),
    "a tensor is of a layer that is not there": ("blk.2.attn_k.weight", "is one of 1 tensors of other layers",
                                                 rename(K, "blk.2.attn_k.weight")),
    "an expert is missing": (EXPERTS, "has 3 experts, but llama.expert_count says 4", fewer_experts),
    "there are more tokens than embeddings": ("token_embd.weight", "has 8 rows, but tokenizer.ggml.tokens says 9",
                                              set_key("tokenizer.ggml.tokens", STRING, list("abcdefghi"))),
    "the embeddings have another width": ("token_embd.weight", "has 256 columns, but llama.embedding_length says 512",
                                          set_key("llama.embedding_length", U32, 512)),
    "a norm is in blocks": ("blk.0.ffn_norm.weight", "is Q4_K; no scheme makes blocks",
                            add("blk.0.ffn_norm.weight", (12, [256], bytes(144)))),
    "a bias is in blocks": ("blk.0.attn_k.bias", "is Q8_0; no scheme makes blocks",
                            add("blk.0.attn_k.bias", (8, [32], bytes(34)))),
}
# The same with --against.
DIFFERENCES = {
    "a tensor is missing": (K, "is missing; the original has it in F16", drop(K)),
    "a norm is missing": (NORM, "is missing; the original has it in F32", drop(NORM)),
    "a tensor is new": ("blk.0.attn_k.bias", "is not in the original", add("blk.0.attn_k.bias", (0, [4], bytes(16)))),
    "a bias has other bytes": (BIAS, "is F32 as in the original, but its bytes differ", put(BIAS, 28, bytes(4))),
    "a tensor has another shape": (K, "has another shape", lambda k, t: t[K].__setitem__(1, [2, 512])),
    "a tensor is zero": (K, "100 %, which zeros do not exceed", zeros(K)),
    "the sign of scales is lost": (K, "zeros do not exceed", lambda k, t: [
        put(K, b * 144 + at, bytes([t[K][2][b * 144 + at] ^ 0x80]))(k, t) for b in range(4) for at in (1, 3)]),
    "tensors have each other's names": (K, "zeros do not exceed", lambda k, t: t.update(
        {K: t["blk.1.attn_v.weight"], "blk.1.attn_v.weight": t[K]})),
}


def test_sound():
    make_sound()
    report = audit(status=0)[1]
    equal((report["findings"], report.get("notes")), ([], None), "the sound file")
    equal({x["name"]: x["format"] for x in report["layers"]}["token_embd.weight"], "Q6_K", "layers have their types")
    equal(len(report["layers"]), 9, "layers: the tensors in blocks")
    report = audit("out.gguf", "--against", "in.gguf", status=0)[1]
    check(all(0.001 < x["relative_error"] < 0.1 for x in report["layers"]), "each has its error", report["layers"])
    with open("r.json", "w", encoding="utf-8") as file:
        file.write(cli.fine("again", "quantize", "in.gguf", "--scheme", "Q4_K_M", "-o", "x.gguf", "--json", "-"))
    with open("r.json", encoding="utf-8") as file:
        quantized = {x["name"]: x["relative_error"] for x in json.load(file)["layers"]}
    for x in report["layers"]:
        check(abs(x["relative_error"] - quantized[x["name"]]) < 1e-9, f"{x['name']}: the error that quantize reports")
    table = cli.fine("the table", "audit", "out.gguf", "--against", "in.gguf")
    check(table.startswith("9 quantized layers, 0 findings\n") and table.count(" %  blk.") >= 8, "the table", table)


def damaged(what, fault, *words):
    module, text, change = fault
    make_sound()
    keys, tensors = parts("out.gguf")
    change(keys, tensors)
    cli.write("bad.gguf", gguf(keys, tensors))
    report = audit("bad.gguf", *words, status=3)[1]
    found = [f for f in report["findings"] if f["module"] == module and text in f["finding"]]
    check(len(found) >= 1, f"{what}: {text}", report["findings"])
    return report["findings"]


def test_seeded():
    for what, fault in FAULTS.items():
        found = damaged(what, fault)
        equal(len(found), 1, f"{what}: nothing else is found {found}")


def test_against():
    for what, fault in DIFFERENCES.items():
        found = damaged(what, fault, "--against", "in.gguf")
        equal(len({f["module"] for f in found} - {"blk.1.attn_v.weight"}), 1, f"{what}: of one tensor {found}")


# The place of the scales of a block: bytes of the block, offsets, a scale that is none.
SCALES = {"Q4_0": (18, [0], HALF_NAN), "Q4_1": (20, [0, 2], HALF_INF), "Q5_0": (22, [0], HALF_INF),
          "Q5_1": (24, [0, 2], HALF_NAN), "Q8_0": (34, [0], HALF_INF), "Q2_K": (84, [80, 82], HALF_NAN),
          "Q3_K": (110, [108], HALF_INF), "Q4_K": (144, [0, 2], HALF_NAN), "Q5_K": (176, [0, 2], HALF_INF),
          "Q6_K": (210, [208], HALF_NAN), "IQ4_NL": (18, [0], HALF_INF), "IQ4_XS": (136, [0], HALF_NAN),
          "TQ1_0": (54, [52], HALF_INF), "TQ2_0": (66, [64], HALF_NAN), "Q1_0": (18, [0], HALF_INF),
          "Q2_0": (18, [0], HALF_NAN), "MXFP4": (17, [0], b"\xff"), "NVFP4": (36, [0, 1, 2, 3], b"\x7f"),
          "F16": (2, [0], HALF_NAN), "BF16": (2, [0], b"\x80\x7f")}


def test_scales_of_types():
    """Every scale of the last block of a tensor, in all types that are made."""
    for type_, (size, offsets, wrong) in SCALES.items():
        keys = [k for k in KEYS if k[0] != "tokenizer.ggml.tokens"]
        cli.write("in.gguf", gguf(keys, {"blk.0.ffn_up.weight": (0, [3, 512], f32(1536))} | layer(1)))
        cli.fine(type_, "quantize", "in.gguf", "--scheme", "F32" if type_ == "F32" else "Q8_0", "--tensor-type",
                 f"ffn_up.weight={type_}", "-o", "out.gguf", "--replace")
        file = Reader("out.gguf")
        equal(audit()[1]["findings"], [], f"{type_}: sound")
        _, _, offset = file.tensors["blk.0.ffn_up.weight"]
        following = min([o for _, _, o in file.tensors.values() if o > offset] + [len(file.data) - file.start])
        blocks = (following - offset) // size
        for at in offsets:
            place = file.start + offset + (blocks - 1) * size + at
            cli.write("bad.gguf", file.data[:place] + wrong + file.data[place + len(wrong):])
            found = audit("bad.gguf", status=3)[1]["findings"]
            check(len(found) == 1 and found[0]["module"] == "blk.0.ffn_up.weight"
                  and f"1 of {blocks * len(offsets)} " in found[0]["finding"]
                  and found[0]["finding"].endswith(f" {blocks - 1}"), f"{type_}: the scale at {at}", found)


def test_grids():
    """Types that are not read have their scales checked and are not compared."""
    sizes = {"IQ2_XXS": (16, 66), "IQ2_XS": (17, 74), "IQ3_XXS": (18, 98), "IQ1_S": (19, 50), "IQ3_S": (21, 110),
             "IQ2_S": (22, 82), "IQ1_M": (29, 56)}
    make_sound()
    for name, (number, size) in sizes.items():
        keys, tensors = parts("out.gguf")
        tensors[K] = [number, [4, 256], bytes(4 * size)]
        cli.write("grid.gguf", gguf(keys, tensors))
        report = audit("grid.gguf", "--against", "in.gguf", status=0)[1]
        check(f"1 tensors are not compared, such as '{K}'" in str(report["notes"]), f"{name}: a note", report["notes"])
        wrong = bytes(52) + struct.pack("<HH", 0xC000, 0x7000) if name == "IQ1_M" else HALF_NAN + bytes(size - 2)
        tensors[K][2] = bytes(2 * size) + wrong + bytes(size)
        cli.write("grid.gguf", gguf(keys, tensors))
        found = audit("grid.gguf", status=3)[1]["findings"]
        check(len(found) == 1 and "1 of 4 scales are not finite, the first in block 2" in found[0]["finding"],
              f"{name}: a scale that is not finite", found)


def test_choices_of_users():
    """Types that a user chooses are no faults; a note counts them."""
    cli.write("imatrix.gguf", imatrix({K: ([1, 256], [float(i + 1) for i in range(256)], [3])}))
    for words, note in ((["--pure"], True), (["--tensor-type", "attn_k=Q8_0"], True), ([], False),
                        (["--search", "optimal"], False)):
        make_sound("Q4_K_M", *words)
        report = audit("out.gguf", "--against", "in.gguf", status=0)[1]
        equal("notes" in report, note, f"{words}: a note {report.get('notes')}")
        check(not note or "other types than the mixture of Q4_K_M" in str(report["notes"]), f"{words}: its words")
    for scheme in ("Q2_K", "Q3_K_L", "Q5_K_S", "Q8_0", "IQ4_XS", "MXFP4_MOE", "NVFP4", "BF16", "F32", "TQ2_0"):
        make_sound(scheme)
        report = audit("out.gguf", "--against", "in.gguf")[1]
        equal(report["findings"], [], f"{scheme}: no finding")
        check("notes" not in report, f"{scheme}: no note", report.get("notes"))
    make_sound()
    for name, change in (("missing", drop_key("general.file_type")),
                         ("that of no scheme", set_key("general.file_type", U32, 1024))):
        keys, tensors = parts("out.gguf")
        change(keys, tensors)
        cli.write("x.gguf", gguf(keys, tensors))
        check(f"general.file_type is {name}" in str(audit("x.gguf", status=0)[1]["notes"]), f"{name}: a note")


def test_layers_of_drafts():
    """Files of drafts begin at a later layer, those of models may lack the layers of drafts."""
    make_sound()
    for what, first, more in (("a draft alone", "blk.0.", []), ("a model without its draft", "blk.1.",
                                                                [("llama.nextn_predict_layers", U32, 1)])):
        keys, tensors = parts("out.gguf")
        cli.write("x.gguf", gguf(keys + more, {n: t for n, t in tensors.items() if not n.startswith(first)}))
        equal(audit("x.gguf", status=0)[1]["findings"], [], what)


def test_parts():
    make_sound()
    keys, tensors = parts("out.gguf")
    names = list(tensors)

    def write(second, count=len(names)):
        for i, part in enumerate((names[:5], second)):
            more = [("split.no", U16, i), ("split.count", U16, 2), ("split.tensors.count", I32, count)]
            cli.write(f"p-{i + 1:05}-of-00002.gguf",
                      gguf((keys if i == 0 else []) + more, {n: tensors[n] for n in part}))
    write(names[5:])
    equal(audit("p-00001-of-00002.gguf", "--against", "in.gguf", status=0)[1]["findings"], [], "parts")
    equal(audit("out.gguf", "--against", "p-00001-of-00002.gguf", status=0)[1]["findings"], [], "against parts")
    for what, second, count, word in (("a tensor in two parts", names[4:], len(names) + 1, "in two parts"),
                                      ("a tensor that the count has", names[6:], len(names), "split.tensors.count")):
        write(second, count)
        cli.refused(what, [word], "audit", "p-00001-of-00002.gguf")
    os.remove("p-00002-of-00002.gguf")
    cli.refused("a part is missing", ["p-00002-of-00002.gguf"], "audit", "p-00001-of-00002.gguf")


def quantized(data, scheme="Q8_0", *words):
    cli.write("bad.gguf", data)
    return cli.run("quantize", "bad.gguf", "--scheme", scheme, "-o", "new.gguf", "--json", "r.json", *words)


def test_publish():
    """A fault of the blocks keeps an output from its name, unless it is asked for."""
    make_sound()
    keys, tensors = parts("out.gguf")
    put(K, 0, HALF_NAN)(keys, tensors)
    data = gguf(keys, tensors)
    for words in (["--tensor-type", "attn_k=Q4_K"], ["--tensor-type", "attn_k=Q4_K", "--keep-findings"]):
        keep = len(words) > 2
        run = quantized(data, "Q8_0", *words)
        equal(run.returncode, 3, f"{words}: exit status")
        check(K in run.stderr and "1 of 8 scales" in run.stderr, f"{words}: the message", run.stderr)
        check(keep or "--keep-findings" in run.stderr, "the way out", run.stderr)
        equal(os.path.exists("new.gguf"), keep, f"{words}: the output")
    with open("r.json", encoding="utf-8") as file:
        equal([f["module"] for f in json.load(file)["findings"]], [K], "--keep-findings: the report")
    equal([f["module"] for f in audit("new.gguf", status=3)[1]["findings"]], [K], "the audit of the output")
    cli.write("old.gguf", b"old")
    run = cli.run("quantize", "bad.gguf", "--scheme", "Q8_0", *words[:2], "-o", "old.gguf", "--replace")
    equal((run.returncode, cli.read("old.gguf")), (3, b"old"), "--replace: the old file stays")
    cli.fine("types as they were chosen", "quantize", "in.gguf", "--scheme", "Q4_K_M", "--tensor-type", ".=Q8_0", "-o",
             "types.gguf")


# Faults of an input stay in its output, and a warning names them: keys and copies.
DOUBTS = {name: FAULTS[name] for name in (
    "a norm has NaN", "a bias is infinite", "a layer is missing", "block_count is larger", "block_count is smaller",
    "an expert is missing", "there are more tokens than embeddings", "the embeddings have another width",
    "a bias is in blocks")}


def test_doubts():
    make_sound()
    for what, (module, text, change) in DOUBTS.items():
        keys, tensors = parts("in.gguf")
        change(keys, tensors)
        run = quantized(gguf(keys, tensors), "Q4_K_M", "--pure", "--replace")
        equal(run.returncode, 0, f"{what}: exit status {run.stderr}")
        with open("r.json", encoding="utf-8") as file:
            report = json.load(file)
        words = f"{module}: " if module else ""
        check(report["findings"] == [] and any(w.startswith(words) and text in w for w in report["warnings"]),
              f"{what}: a warning", report)
        check(f"warning: {words}" in run.stderr and text in run.stderr, f"{what}: it is printed", run.stderr)
        found = audit("new.gguf", status=3)[1]["findings"]
        check([f["module"] for f in found] == [module] and text in found[0]["finding"], f"{what}: its audit", found)


def test_odd_shapes():
    """Models whose columns no block divides, of one dimension, tied, of experts: nothing is found in their outputs."""
    odd = {"token_embd.weight": (0, [8, 160], f32(1280)), "output_norm.weight": (0, [160], f32(160)),
           "blk.0.attn_q.weight": (1, [7, 100], f16(700)), "blk.0.ffn_down.weight": (1, [160, 96], f16(15360)),
           "blk.0.ffn_up_exps.weight": (1, [4, 3, 160], f16(1920)), "blk.0.ssm_a": (0, [8], f32(8)),
           "blk.0.ssm_conv1d.weight": (0, [5, 4], f32(20)), "blk.0.shortconv.conv.weight": (1, [5, 3], f16(15)),
           "rope_freqs.weight": (0, [16], f32(16)), "cls.bias": (0, [3], f32(3))}
    keys = [("general.architecture", STRING, "llama"), ("llama.block_count", U32, 1), ("llama.expert_count", U32, 4),
            ("llama.embedding_length", U32, 160), ("llama.attention.head_count", U32, [4])]
    for tied in (True, False):
        cli.write("odd.gguf", gguf(keys, odd if tied else odd | {"output.weight": (1, [8, 160], f16(1280))}))
        for scheme in ("Q4_K_M", "Q4_0", "Q8_0", "Q6_K", "IQ4_XS", "MXFP4_MOE", "Q3_K_S", "BF16"):
            name = f"{scheme}, {'tied' if tied else 'untied'}"
            run = cli.run("quantize", "odd.gguf", "--scheme", scheme, "-o", "new.gguf", "--replace",
                          *([] if scheme == "BF16" else ["--tensor-type", "attn_q=F16"]))
            equal(run.returncode, 0, f"{name}: {run.stderr}")
            equal(audit("new.gguf", "--against", "odd.gguf", status=0)[1]["findings"], [], name)


def test_refused():
    make_sound()
    cli.write("rows.txt", b"llama\n")
    cli.refused("rows of architectures", ["architectures", "GGUF"], "audit", "out.gguf", "--architectures", "rows.txt")
    data = cli.read("out.gguf")
    cli.write("cut.gguf", data[:-100])
    cli.refused("data that is cut off", ["cut.gguf", "cut off"], "audit", "cut.gguf")
    cli.refused("an original that is cut off", ["cut.gguf", "cut off"], "audit", "out.gguf", "--against", "cut.gguf")
    keys, tensors = parts("out.gguf")
    twice = gguf(keys, {**tensors, "blk.0.attn_x.weight": tensors[K]}).replace(b"blk.0.attn_x.weight", K.encode())
    cli.write("twice.gguf", twice)
    cli.refused("a tensor that is there twice", [K, "twice"], "audit", "twice.gguf")
    cli.write("x.safetensors", cli.st_bytes({}))
    cli.refused("an original of another kind", ["x.safetensors", "safetensors file"], "audit", "out.gguf", "--against",
                "x.safetensors")
    for n in cli.thread_counts():
        equal(audit("out.gguf", "--against", "in.gguf", "--threads", n), audit("out.gguf", "--against", "in.gguf"),
              f"the same report with {n} threads")


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if getattr(v, "__module__", None) == __name__}))
