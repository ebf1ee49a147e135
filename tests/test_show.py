#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""`qobs show`: histogram, range and clipped share, recomputed in plain Python; the pictures.

    test_show.py QOBS [WRAPPER [ARGUMENT]...]     WRAPPER: a program that runs QOBS, such as an emulator

Needs the standard library only. Ends with `N passed, N failed`; exit status 1 if any failed.
"""
import xml.etree.ElementTree, zlib

from cli import *

source = random.Random(31)


def histogram(values, bins, low, high):
    """Computes torch.histc: every operation is rounded to float32."""
    counts = [0] * bins
    for v in values:
        counts[min(int(f32(f32(f32(f32(v) - low) * bins) / f32(high - low))), bins - 1)] += 1
    return counts


def show(*arguments):
    return json.loads(fine(" ".join(arguments), "show", "--json", *arguments))


def expect(what, got, values, bins, ranges, owner=lambda k: 0):
    """values: the elements shown; ranges: of every qparam; owner: the qparam of element k."""
    finite = [v for v in values if math.isfinite(v)]
    low, high = min(finite), max(finite)
    if low == high:
        low, high = low - 1, high + 1
    equal([got["first_edge"], got["last_edge"], got["elements"]], [low, high, len(finite)], f"{what}: edges")
    equal(got["counts"], histogram(finite, bins, low, high), f"{what}: counts")
    of = [ranges[owner(k)] for k in range(len(values))]
    below = sum(math.isfinite(v) and v < r[0] for v, r in zip(values, of))
    above = sum(math.isfinite(v) and v > r[1] for v, r in zip(values, of))
    equal([got["clipped_below"], got["clipped_above"], got["qparams"]], [below, above, len(ranges)], f"{what}: clipped")
    check(abs(got["clipped_share"] - (below + above) / len(finite)) <= 1e-12, f"{what}: share of it",
          str(got["clipped_share"]))
    equal([got["nan"], got["inf"]], [sum(map(math.isnan, values)), sum(map(math.isinf, values))], f"{what}: left out")
    spans = sorted(ranges, key=lambda r: r[1] - r[0])
    if len(ranges) == 1:
        equal(got["range"], list(ranges[0]), f"{what}: range")
    else:
        equal([r[1] - r[0] for r in (got["narrowest_range"], got["widest_range"])],
              [s[1] - s[0] for s in (spans[0], spans[-1])],
              f"{what}: ranges")


def tensor(dtype, count, spread=1.0):
    return [ROUND[dtype](source.gauss(0.3, spread) ** 3) for _ in range(count)]


def observed(preset, settings, specs, low, high):
    """Returns the range of qobs observe."""
    got = json.loads(fine("observe", "observe", "--json", "--preset", preset,
                          *[w for s in settings for w in ("--set", s)], *specs))
    return list(zip(got[low]["values"], got[high]["values"]))


def symmetric(ranges):
    return [(-max(abs(a), abs(b)), max(abs(a), abs(b))) for a, b in ranges]


# ---- Tests -----------------------------------------------------------------------------------------------------------

def test_one_range():
    for dtype in ("F32", "BF16", "F16"):
        values = tensor(dtype, 3000)
        write("x.safetensors", st_bytes({"x": (dtype, [30, 100], pack(dtype, values))}))
        got = show("--preset", "torch.MinMaxObserver", "x.safetensors:x")
        expect(f"min/max {dtype}", got, values, 240, [(min(values), max(values))])
        got = show("--preset", "torch.HistogramObserver", "--bins", "77", "x.safetensors")
        found = observed("torch.HistogramObserver", [], ["x.safetensors"], "new_min", "new_max")
        check(found[0][1] < max(values), f"{dtype}: the search has found a narrower range")
        expect(f"histogram observer {dtype}", got, values, 77, found)
        got = show("--preset", "torch.HistogramObserver", "--set", "qscheme=per_tensor_symmetric", "--set",
                   "dtype=qint8", "x.safetensors")
        found = observed("torch.HistogramObserver", ["qscheme=per_tensor_symmetric", "dtype=qint8"], ["x.safetensors"],
                         "new_min", "new_max")
        expect(f"symmetric histogram observer {dtype}", got, values, 240, symmetric(found))
        for preset, low, high in (("quark.PerTensorPercentileObserver", "min_val", "max_val"),
                                  ("quark.PerTensorMSEObserver", "min_val", "max_val"),
                                  ("modelopt.HistogramCalibrator", "amax", "amax"),
                                  ("modelopt.MseCalibrator", "amax", "amax")):
            found = observed(preset, [], ["x.safetensors"], low, high)
            expect(f"{preset} {dtype}", show("--preset", preset, "x.safetensors"), values, 240, symmetric(found))
    positive = [abs(v) + 1 for v in values]
    write("p.safetensors", st_bytes({"x": ("F32", [3000], pack("F32", positive))}))
    positive = list(map(f32, positive))
    most = max(positive)
    expect("positive numbers", show("--preset", "torch.MinMaxObserver", "p.safetensors"), positive, 240, [(0, most)])
    expect("amax", show("--preset", "modelopt.MaxCalibrator", "p.safetensors"), positive, 240, [(-most, most)])
    got = show("--preset", "modelopt.MaxCalibrator", "--set", "unsigned=true", "p.safetensors")
    expect("unsigned amax", got, positive, 240, [(0, most)])


def test_many_ranges():
    rows, columns, size = 24, 128, 32
    values = tensor("F32", rows * columns)
    write("w.safetensors", st_bytes({"w": ("F32", [rows, columns], pack("F32", values))}))
    for what, settings, owner in (("groups", ["num_bits=4", "group_size=32"], lambda k: k // size),
                                  ("channels", ["num_bits=4", "strategy=channel"], lambda k: k // columns),
                                  ("blocks", ["num_bits=4", "strategy=block", "block_structure=[8,64]"],
                                   lambda k: k // columns // 8 * 2 + k % columns // 64)):
        found = symmetric(observed("llmc.memoryless_mse", settings, ["w.safetensors"], "min_vals", "max_vals"))
        options = [w for s in settings for w in ("--set", s)]
        got = show("--preset", "llmc.memoryless_mse", *options, "w.safetensors")
        check(got["clipped_above"] > 0, f"{what}: the search clips")
        expect(what, got, values, 240, found, owner)
        for qparam in (0, len(found) - 1):
            own = [v for k, v in enumerate(values) if owner(k) == qparam]
            got = show("--preset", "llmc.memoryless_mse", *options, "--qparam", str(qparam), "w.safetensors")
            expect(f"{what}, qparam {qparam}", got, own, 240, [found[qparam]])
        refused(f"{what}, a qparam too many", ["--qparam", str(len(found))], "show", "--preset", "llmc.memoryless_mse",
                *options,
                "--qparam", str(len(found)), "w.safetensors")
    columnwise = observed("torch.PerChannelMinMaxObserver", ["ch_axis=1"], ["w.safetensors"], "min_val", "max_val")
    got = show("--preset", "torch.PerChannelMinMaxObserver", "--set", "ch_axis=1", "--qparam", "5", "w.safetensors")
    expect("a column", got, values[5::columns], 240, [columnwise[5]])


def test_powers_of_two():
    """The range is that of the number format under the scale, not that of the data."""
    rows, columns = 8, 96
    values = [ROUND["BF16"](v) for v in tensor("F32", rows * columns)]
    write("w.safetensors", st_bytes({"w": ("BF16", [rows, columns], pack("BF16", values))}))
    mx = ["type=float", "group_size=32", "scale_dtype=uint8"]
    for what, preset, settings, least, greatest, owner in (
            ("MXFP4", "llmc.memoryless_minmax", mx + ["num_bits=4"], -6, 6, lambda k: k // 32),
            ("MXFP8", "llmc.memoryless_minmax", mx + ["num_bits=8"], -448, 448, lambda k: k // 32),
            ("MX blocks", "quark.PerBlockMXObserver", ["dtype=fp4", "ch_axis=-1", "group_size=32", "scale_format=e8m0",
                                                       "scale_calculation_mode=floor"], -6, 6, lambda k: k // 32),
            ("int8", "quark.PerTensorPowOf2MinMaxObserver", ["dtype=int8"], -128, 127, lambda k: 0),
            ("uint8", "quark.PerTensorPowOf2MinMaxObserver", ["dtype=uint8", "symmetric=false"], 0, 255, lambda k: 0)):
        options = [w for s in settings for w in ("--set", s)]
        o = json.loads(fine(f"observe {what}", "observe", "--json", "--preset", preset, *options, "w.safetensors"))
        scales, zeros = o["scale"]["values"], o.get("zero_point", {"values": []})["values"]
        zeros = zeros or [0] * len(scales)
        check(all(math.frexp(s)[0] == 0.5 for s in scales), f"{what}: the scales are powers of two")
        got = show("--preset", preset, *options, "w.safetensors")
        expect(what, got, values, 240, [((least - z) * s, (greatest - z) * s) for s, z in zip(scales, zeros)], owner)
        if what in ("MXFP4", "MX blocks"):
            check(got["clipped_below"] + got["clipped_above"] > 0, f"{what}: clips")


def test_batches():
    batches = [tensor("F32", 600, 0.5 + i) for i in range(3)]
    write("x.safetensors", st_bytes({f"b{i}": ("F32", [6, 100], pack("F32", b)) for i, b in enumerate(batches)}))
    specs = [f"x.safetensors:b{i}" for i in range(3)]
    got = show("--preset", "llmc.minmax", "--base-name", "input", "--set", "averaging_constant=0.25", *specs)
    low = high = None
    for b in batches:
        low = min(b) if low is None else f32(f32(low * 0.75) + f32(min(b) * 0.25))
        high = max(b) if high is None else f32(f32(high * 0.75) + f32(max(b) * 0.25))
    expect("an average range of three batches", got, sum(batches, []), 240, symmetric([(low, high)]))
    check(got["clipped_above"] > 0 and got["title"].startswith("b0 F32 [6,100] and 2 more"), "batches: the title",
          got["title"])


def test_odd_values():
    values = tensor("F32", 300)
    holed = values[:50] + [math.nan] * 3 + values[50:] + [math.inf, -math.inf]
    write("x.npy", npy_bytes("<f4", [305], pack("F32", holed)))
    write("i.npy", npy_bytes("<f4", [2], pack("F32", [-math.inf, math.inf])))
    refused("nothing finite", ["no finite elements"], "show", "--preset", "llmc.minmax", "--set", "nonfinite=propagate",
            "i.npy")
    refused("NaN", ["x.npy", "3 NaN and 2 infinite"], "show", "--preset", "torch.MinMaxObserver", "x.npy")
    got = show("--preset", "torch.MinMaxObserver", "--set", "nonfinite=ignore", "x.npy")
    expect("NaN left out", got, holed, 240, [(min(values), max(values))])
    write("c.npy", npy_bytes("<f4", [9], pack("F32", [2.5] * 9)))
    expect("one value", show("--preset", "torch.MinMaxObserver", "--bins", "3", "c.npy"), [2.5] * 9, 3, [(0, 2.5)])
    write("e.npy", npy_bytes("<f4", [0], b""))
    refused("no elements", ["no elements"], "show", "--preset", "torch.HistogramObserver", "e.npy")
    turned = [source.gauss(0, 1) for _ in range(12)]
    write("t.npy", npy_bytes("<f8", [3, 4], pack("F64", turned), fortran=True))
    got = show("--preset", "llmc.memoryless_minmax", "--set", "strategy=channel", "--qparam", "1", "--bins", "1",
               "t.npy")
    row = turned[1::3]
    equal([got["first_edge"] , got["last_edge"], got["counts"]], [min(row), max(row), [4]],
          "a row of a matrix in Fortran order")


def test_text():
    write("x.safetensors", st_bytes({"x\x1b[31m": ("F32", [8], pack("F32", [-4, -1, -1, 0, 0, 0, 1, 4]))}))
    text = fine("text", "show", "--preset", "torch.MinMaxObserver", "--bins", "8", "x.safetensors")
    lines = text.splitlines()
    check("\x1b" not in text and lines[0].startswith("x?[31m F32 [8]"), "text: the name cannot reach the terminal",
          lines[0])
    bars = [line.split("|")[1].count("#") for line in lines[1:9]]
    equal(bars, [17, 0, 0, 34, 52, 17, 0, 17], "text: bars as long as the counts")
    check(lines[1].endswith("> range") and lines[8].endswith("< range"), "text: where the range begins and ends", text)
    check("range -4 to 4" in text and "0 of 8 elements are clipped" in text, "text: the summary", text)
    many = fine("many bins", "show", "--preset", "torch.MinMaxObserver", "--bins", "1000", "x.safetensors")
    equal(sum(line.split("|")[1].count("#") > 0 for line in many.splitlines()[1:41]), 5, "text: 25 bins a line")
    log = fine("--log", "show", "--preset", "torch.MinMaxObserver", "--bins", "8", "--log", "x.safetensors")
    equal([line.split("|")[1].count("#") for line in log.splitlines()[1:9]],
          [math.floor(52 * math.log(1 + n) / math.log(4)) for n in (1, 0, 0, 2, 3, 1, 0, 1)],
          "text: bars by the logarithm")


def compare(what, *arguments):
    return json.loads(fine(what, "show", "--json", *arguments))


def int4(values, scale, zero_point=0):
    return [(min(max(round(v / scale) + zero_point, -8), 7) - zero_point) * scale for v in values]


def relative(values, quantized, weights=None):
    weights = weights or [1.0] * len(values)
    return math.sqrt(sum(w * (q - v) ** 2 for w, v, q in zip(weights, values, quantized)) /
                     sum(w * v * v for w, v in zip(weights, values)))


def test_compare():
    """Ranges, scales, grids and errors of several observers, recomputed from those of qobs observe."""
    rows, columns = 6, 64
    values = [f32(source.gauss(0, 1) ** 3) for _ in range(rows * columns)]
    acts = [f32(source.gauss(0, 1 + c % 5)) for _ in range(50) for c in range(columns)]
    write("w.safetensors", st_bytes({"w": ("F32", [rows, columns], pack("F32", values)),
                                     "x": ("F32", [50, columns], pack("F32", acts))}))
    weights = [sum(v * v for v in acts[c::columns]) / 50 for c in range(columns)] * rows
    names = ["llmc.memoryless_minmax", "llmc.memoryless_mse norm=2", "torch.MinMaxObserver dtype=qint8"]
    settings = ["--set", "num_bits=4", "--set", "strategy=channel"]
    got = compare("three observers", "--compare", ", ".join(names), *settings, "w.safetensors:w", "--importance",
                  "w.safetensors:x")
    equal([c["observer"].split()[0] for c in got["compared"]], [n.split()[0] for n in names], "compare: observers")
    low, high = min(values), max(values)
    reach = max(-low, high)
    equal([got["elements"], got["first_edge"], got["last_edge"]], [len(values), -reach, reach],
          "compare: the bins cover data and ranges")
    equal(sum(got["counts"]), len(values), "compare: all elements are counted")
    for item, name in zip(got["compared"][:2], names):
        observer, *own = name.split()
        o = json.loads(fine(name, "observe", "--json", "--preset", observer, *[w for k in own for w in ("--set", k)],
                            *settings, "w.safetensors:w"))
        scales = o["scale"]["values"]
        quantized = sum((int4(values[r * columns:(r + 1) * columns], scales[r]) for r in range(rows)), [])
        ranges = symmetric(list(zip(o["min_vals"]["values"], o["max_vals"]["values"])))
        widest = max(range(rows), key=lambda r: ranges[r][1])
        equal([item["scale"], item["range"], item["qparams"]], [[min(scales), max(scales)], list(ranges[widest]), rows],
              f"{name}: scales and range")
        equal(item["grid"], [k * scales[widest] for k in range(-8, 8)], f"{name}: grid")
        clipped = sum(not ranges[k // columns][0] <= v <= ranges[k // columns][1] for k, v in enumerate(values))
        check(abs(item["clipped_share"] - clipped / len(values)) < 1e-12, f"{name}: clipped share")
        for key, want in (("error", relative(values, quantized)),
                          ("weighted_error", relative(values, quantized, weights))):
            check(abs(item[key] - want) < 1e-5 * want, f"{name}: {key}", f"got {item[key]}, expected {want}")
    last = got["compared"][2]
    equal([last["range"], len(last["grid"])], [[low, high], 256], "torch: range and grid, without the settings of llmc")
    check(last["error"] < got["compared"][1]["error"] < got["compared"][0]["error"], "compare: errors in their order")
    text = fine("a table", "show", "--compare", ",".join(names), *settings, "w.safetensors:w")
    check(all(n.split()[0] in text for n in names) and all(len(l) <= 80 for l in text.splitlines()),
          "compare: the table",
          text)
    check("has no num_bits, strategy\n" in text and "weighted" not in text, "compare: settings that one has not", text)
    weighted = fine("a table", "show", "--compare", names[0], *settings, "w.safetensors:w", "--importance",
                    "w.safetensors:x")
    check("error weighted\n" in weighted and "has no" not in weighted, "compare: a column for importance", weighted)
    for i, item in enumerate(got["compared"]):
        row = next(l for l in text.splitlines() if l.startswith("ABC"[i] + "  ") and " to " in l)
        check(f"{100 * item['error']:.3g} %" in row, f"compare: the error in row {i}", row)
    one = compare("one qparam", "--compare", names[0], *settings, "--qparam", "2", "w.safetensors:w")["compared"][0]
    row = values[2 * columns:3 * columns]
    check(abs(one["error"] - relative(row, int4(row, one["scale"][0]))) < 1e-5, "one qparam: its error")
    # qobs presets find the scale: the grid is that of the scale, and the error is below that of the others.
    best = compare("optimal", "--compare", f"{names[1]},qobs.mse_optimal", *settings, "w.safetensors:w")["compared"]
    check(0 < best[1]["error"] <= best[0]["error"] and best[1]["grid"], "compare: the optimum is best")
    # Calibrators without a scale: amax over the largest number of the format.
    amax = compare("amax", "--compare", "modelopt.MaxCalibrator,quark.PerTensorMinMaxObserver", "w.safetensors:w")
    equal(amax["compared"][0]["scale"][0], f32(reach / 127), "amax: the scale")
    check(all(0 < c["error"] < 0.1 for c in amax["compared"]), "amax: errors")
    refused("an unknown observer", ["--compare", "did you mean 'llmc.minmax'"], "show", "--compare", "llmc.minmx",
            "w.safetensors:w")
    refused("a setting that none has", ["num_bots"], "show", "--compare", names[0], "--set", "num_bots=4",
            "w.safetensors:w")
    refused("preset and compare", ["--preset", "--compare"], "show", "--compare", names[0], "--preset", "llmc.minmax",
            "w.safetensors:w")
    refused("nothing to compare", ["--compare"], "show", "--compare", "", "w.safetensors:w")
    refused("importance alone", ["--importance", "--compare"], "show", "--preset", "llmc.minmax", "--importance",
            "w.safetensors:x", "w.safetensors:w")
    write("y.npy", npy_bytes("<f4", [2, 3], bytes(24)))
    refused("importance of other columns", ["--importance", "3 columns"], "show", "--compare", names[0], "--importance",
            "y.npy", "w.safetensors:w")


BLUE, ORANGE = "rgb(20%,45%,70%)", "rgb(84%,37%,5%)"


def pixels(png):
    """Returns the rows of RGB triples of a PNG from cairo: 8 bits, no interlacing."""
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", png[16:29])
    data, at = b"", 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        check(zlib.crc32(kind + body) == struct.unpack(">I", png[at + 8 + length:at + 12 + length])[0],
              "PNG: checksums")
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    size = {2: 3, 6: 4}[colour]
    equal((depth, interlaced), (8, 0), "PNG: form")
    raw, rows, before = zlib.decompress(data), [], bytearray(width * size)
    for y in range(height):
        start = y * (width * size + 1)
        kind, line = raw[start], bytearray(raw[start + 1:start + 1 + width * size])
        for x in range(width * size):
            a, b, c = (line[x - size] if x >= size else 0), before[x], (before[x - size] if x >= size else 0)
            p = a + b - c
            line[x] = line[x] + (0, a, b, (a + b) // 2, min((abs(p - a), 0, a), (abs(p - b), 1, b),
                                                            (abs(p - c), 2, c))[2])[kind] & 255
        rows.append([tuple(line[x:x + 3]) for x in range(0, width * size, size)])
        before = line
    return rows


def test_pictures():
    write("x.safetensors", st_bytes({name: ("F32", [2000], pack("F32", [source.gauss(0, spread) for _ in range(2000)]))
                                     for name, spread in (("a", 1), ("b", 3))}))
    draw = ("show", "--preset", "torch.MovingAverageMinMaxObserver", "x.safetensors:a", "x.safetensors:b", "--bins",
            "100", "--out")
    if "without cairo" in run(*draw, "x.svg").stderr:
        refused("no pictures in this build", ["--out", "x.svg", "cairo"], *draw, "x.svg")
        return
    # With a leak checker: memory that fontconfig never frees is not a leak of qobs.
    write("suppressions", b"leak:libfontconfig\n")
    os.environ["LSAN_OPTIONS"] = "print_suppressions=0:suppressions=" + os.path.abspath("suppressions")
    got = show(*draw[1:-1])
    width = (got["last_edge"] - got["first_edge"]) / 100
    clipped = [got["first_edge"] + width * (i + 1) <= got["range"][0]
               or got["first_edge"] + width * i >= got["range"][1] for i in range(100)]
    want = [sum(n > 0 and c == which for n, c in zip(got["counts"], clipped)) for which in (False, True)]
    check(want[1] > 0, "some bars are clipped")
    equal(fine("SVG", *draw, "x.svg"), "", "SVG: prints nothing")
    text = read("x.svg").decode()
    equal(xml.etree.ElementTree.fromstring(text).tag.split("}")[1], "svg", "SVG: well-formed")
    equal([text.replace(" ", "").count(colour) - 1 for colour in (BLUE, ORANGE)], want,
          "SVG: a bar for each bin that is not empty, and one in the legend")
    fine("PNG", *draw, "x.PNG")
    rows = pixels(read("x.PNG"))
    equal((len(rows), len(rows[0])), (540, 960), "PNG: size")
    for colour, what in (((51, 115, 179), "bars"), ((214, 94, 13), "clipped bars"), ((255, 255, 255), "background")):
        check(sum(max(abs(a - b) for a, b in zip(p, colour)) <= 1 for row in rows for p in row) > 5, f"PNG: {what}")
    # A range beyond the data is drawn: two red lines, the right one far from the last bar.
    write("s.npy", npy_bytes("<f4", [4], pack("F32", [-40, -1, 0, 20])))
    fine("symmetric", "show", "--preset", "llmc.memoryless_minmax", "s.npy", "--out", "s.png")
    rows = pixels(read("s.png"))
    red = {x for row in rows for x, p in enumerate(row) if max(abs(a - b) for a, b in zip(p, (178, 26, 26))) <= 70}
    blue = {x for row in rows[150:] for x,
            p in enumerate(row) if max(abs(a - b) for a, b in zip(p, (51, 115, 179))) <= 1}
    check(min(red) < 100 and max(red) > 920 and max(blue) < 750, "a range beyond the data is drawn",
          f"red {min(red)} to {max(red)}, blue {min(blue)} to {max(blue)}")
    compare = ("show", "--compare", "llmc.memoryless_minmax,llmc.memoryless_mse", "x.safetensors:a")
    for path in ("c.svg", "c.png"):
        equal(fine(path, *compare, "--out", path), "", f"compare, {path}: prints nothing")
    rows = pixels(read("c.png"))
    for colour in ((0, 115, 178), (214, 94, 0)):
        check(sum(max(abs(a - b) for a, b in zip(p, colour)) <= 1 for row in rows for p in row) > 500,
              f"compare: a line in {colour}")
    files = sorted(os.listdir("."))
    for path, words, status in (("x.jpg", [".svg", ".png"], 2), ("none/x.svg", ["No such file"], 1),
                                (".svg", [".svg", ".png"], 2)):
        refused(f"a picture {path}", words, *draw, path, status=status)
    os.mkdir("lib")
    write("lib/libcairo.so.2", b"")
    paths = os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["LD_LIBRARY_PATH"] = os.path.abspath("lib") + ":" + paths
    refused("cairo that cannot be loaded", ["--out", "libcairo.so.2"], *draw, "y.svg", status=1)
    os.environ["LD_LIBRARY_PATH"] = paths
    os.mkdir("d.svg")
    refused("a picture onto a directory", ["d.svg", "directory"], *draw, "d.svg")
    equal(sorted(os.listdir(".")), sorted(files + ["d.svg", "lib"]), "pictures: nothing is left over")


def test_refused():
    write("x.safetensors", st_bytes({"x": ("F32", [2, 2], bytes(16)), "i": ("I32", [2], bytes(8))}))
    write("n.npy", npy_bytes("<f4", [2], pack("F32", [math.nan, 1.0])))
    refused("no preset", ["--preset"], "show", "x.safetensors:x")
    refused("no tensor", ["tensor"], "show", "--preset", "llmc.minmax")
    good = ("show", "--preset", "llmc.minmax", "x.safetensors:x")
    for option, values in (("--bins", ("0", "65537", "x", "")), ("--qparam", ("-1", "1.5")), ("--threads", ("0",)),
                           ("--isa", ("mmx",))):
        for value in values:
            refused(f"{option} '{value}'", [option, f"'{value}'"], *good, option, value)
    refused("unknown preset", ["--preset", "'llmc.best'"], "show", "--preset", "llmc.best", "x.safetensors:x")
    refused("bad setting", ["--set", "'bits'"], *good, "--set", "bits=4")
    refused("unknown base name", ["--base-name", "'bias'"], *good, "--base-name", "bias")
    refused("integers", ["I32"], "show", "--preset", "llmc.minmax", "x.safetensors:i")
    refused("no range", ["torch.FixedQParamsObserver", "range"], "show", "--preset", "torch.FixedQParamsObserver",
            "--set",
            "scale=0.5", "--set", "zero_point=0", "x.safetensors:x")
    write("w.safetensors", st_bytes({"w": ("F32", [2, 8], pack("F32", tensor("F32", 16)))}))
    refused("ranges under several names", ["w.safetensors", "ranges"], "show", "--preset", "llmc.minmax", "--set",
            "version=2025-09", "--set", "group_size=4", "w.safetensors")
    refused("NaN ranges", ["llmc.minmax", "no range"], "show", "--preset", "llmc.minmax", "--set",
            "nonfinite=propagate", "n.npy")
    refused("picture and JSON", ["--out", "--json"], *good, "--json", "--out", "x.svg")


if __name__ == "__main__":
    sys.exit(main(globals()))
