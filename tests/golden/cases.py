#!/usr/bin/env python3
"""Reads golden suites and compares results with them, for the tests of the Python package and of upstream's releases.

Needs only numpy. tests/test_golden_observers.c does the same in C for the library and the program."""
import json, os, struct
import numpy as np

NP = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
      "U8": "u1", "BOOL": "u1",
      "F8_E4M3": "u1", "F8_E5M2": "u1"}
HERE = os.path.dirname(os.path.abspath(__file__))
META = {"n_batches", "warns", "has_g_idx", "has_global_scale", "scale_out_dtype", "zero_point_out_dtype", "total_steps",
        "upstream_gap", "importance",
        "n_imatrix_activations", "qparams_after_each_batch", "num_bins_final", "observer", "base_name", "fused",
        "dst_nbins", "upsample_rate", "op_name"}


ZERO_SIGNS = set()


def read(path):
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    out = {}
    for k, v in head.items():
        if k == "__metadata__":
            continue
        a, b = v["data_offsets"]
        out[k] = (v["dtype"],
                  np.frombuffer(raw, dtype=NP[v["dtype"]], count=(b - a) // np.dtype(NP[v["dtype"]]).itemsize,
                                offset=8 + n + a).reshape(v["shape"]))
    return out


def write(path, tensors):
    head, blobs, off = {}, [], 0
    for k, (dt, a) in tensors.items():
        b = np.ascontiguousarray(a).tobytes()
        head[k] = {"dtype": dt, "shape": list(a.shape), "data_offsets": [off, off + len(b)]}
        blobs.append(b)
        off += len(b)
    h = json.dumps(head).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(blobs))


def e4m3(u):
    u = u.astype(np.int64)
    s, e, m = np.where(u & 128, -1.0, 1.0), (u >> 3) & 15, u & 7
    v = np.where(e == 0, m * 2.0 ** -9, (1 + m / 8.0) * 2.0 ** (e - 7.0))
    return np.where((u & 127) == 127, np.nan, s * v)


def value(t):
    dt, a = t
    if dt == "BF16":
        return (np.atleast_1d(a).astype(np.uint32) << 16).view(np.float32).astype(np.float64).reshape(a.shape)
    if dt == "F8_E4M3":
        return e4m3(a)
    return a.astype(np.float64)


def same(x, y):
    """Bit for bit. NaN are equal: their sign and payload are those of the machine's instructions."""
    return ((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))


def zero_signs():
    with open(os.path.join(HERE, "zero_signs.txt")) as f:
        return {tuple(line.split()) for line in f if line.strip() and line[0] != "#"}


def ties(case, T):
    """True for qparams whose best error is shared by another step to within 2e-6: those may differ."""
    out = None
    for k, key in case["expect"].items():
        if not k.startswith("errors"):
            continue
        e = value(T[key])
        m = (e <= e.min(axis=0) * (1 + 2e-6)).sum(axis=0) > 1
        out = m if out is None else out | m
    return out


def compared(q, rule):
    return rule != "platform" and not q.startswith(("errors", "best_", "edge_first_last", "aux", "range_val"))


def dtype_ok(q, want, got, cfg):
    """Floating results carry upstream's dtype; integers may be of any width; values of fp8 may come as F32 or
    F8_E4M3."""
    if not q.startswith(("scale", "zero_point", "min_val", "max_val", "global_scale")):
        return True
    if "float8" in str(cfg.get("scale_out_dtype")) + str(cfg.get("zero_point_out_dtype")):
        return True
    flt = ("F32", "BF16", "F16", "F64")
    return got == want if want in flt else got not in flt


def check(case, T, got):
    bad = []
    tie = ties(case, T) if any("argmin-tie" in r for r in case["compare"].values()) else None
    for q, key in case["expect"].items():
        rule = case["compare"].get(q, "exact")
        if not compared(q, rule):
            continue
        if q == "edge_sample" and "hist_edges" in got:  # every 37th edge, and the last
            edges = got["hist_edges"][1]
            got[q] = (got["hist_edges"][0], np.append(edges[::37], edges[-1]))
        if q not in got:
            bad.append(f"{q}: missing (output has {', '.join(sorted(got)) or 'nothing'})")
            continue
        e, g = value(T[key]), value(got[q])
        if not dtype_ok(q, T[key][0], got[q][0], case["config"]):
            bad.append(f"{q}: dtype {got[q][0]}, expected {T[key][0]}")
            continue
        if e.size != g.size:
            bad.append(f"{q}: shape {list(g.shape)}, expected {list(e.shape)}")
            continue
        if list(e.shape) != list(g.shape) and e.size > 1:
            bad.append(f"{q}: shape {list(g.shape)}, expected {list(e.shape)}")
            continue
        g = g.reshape(e.shape)
        ok = same(e, g)
        if (case["name"], q) in ZERO_SIGNS:
            if ((e != g) | ok).all():
                bad.append(f"{q}: is in zero_signs.txt, but has the signs of upstream")
            ok = ok | (e == g)
        if rule == "bin-tie" or rule == "exact-if-histogram-exact":
            ok = ok | (np.abs(e - g) <= 1e-5 * np.maximum(np.abs(e), 1e-30)) | (np.abs(e - g) <= 2)
        if "rel" in rule:
            tol, _, rest = rule.split("rel")[1].partition("+ abs")
            least = float(rest.split("*")[0] or 0)
            if rest.endswith("*range"):
                least *= float(np.ptp(value(got["hist_edges"]) if "hist_edges" in got else e))
            ok = ok | (np.abs(e - g) <= float(tol) * np.maximum(np.abs(e), 1e-37) + least)
        if "argmin-tie" in rule and tie is not None:
            m = tie.reshape(e.shape) if tie.size == e.size else np.full(e.shape, bool(tie.any()))
            ok = ok | m
        if not ok.all():
            i = int(np.argmin(ok.ravel()))
            bad.append(f"{q}: {int((~ok).sum())} of {ok.size} differ; at {i} got {g.ravel()[i]!r}, expected "
                       f"{e.ravel()[i]!r} ({rule})")
    return bad


def case_is_of(case, classes):
    return case["upstream"].split()[-1] in classes


def preset(suite, case):
    if suite == "trt_2026_11":
        return "modelopt." + case["upstream"].split()[-1]
    if suite in ("aiedge", "nncf"):
        return suite + "." + case["upstream"].split()[-1]
    if suite == "ort_static":
        return "ort." + case["upstream"].split()[-1]
    if suite == "ort":
        return "ort." + case["config"]["method"].capitalize() + "Calibrater"
    if suite == "torchao":
        return "torchao." + case["config"]["cls"]
    if suite.startswith("llmc"):
        o = case["config"]["observer"]
        return "llmc." + {"MinMaxObserver": "minmax", "MovingAverageMSEObserver": "mse"}.get(o, o)
    name = case["upstream"].split()[-1] if suite.startswith("quark") else case["upstream"].split()[0].split(".")[-1]
    if suite == "torch_histogram":
        name = "HistogramObserver"
    return ("quark." if suite.startswith("quark") else "torch.") + name
