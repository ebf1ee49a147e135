#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares checkpoint/model/transformers.inc with transformers and the sources of vLLM, or writes it anew.

    architecture_table.py KINDS [--write] [--facts FILE...] [--vllm PACKAGE] [--only REGEX] [--jobs N] [-v]

KINDS is build/tests/module_kinds, which says what the program takes a module for. python/libqobs/architectures.py finds
the rows; the table has those that the general rule gets wrong. Without --write every model type is a test, and with
--vllm every architecture of vLLM's registry: no module is quantized that vLLM builds unquantized. Ends with "N passed,
N failed". --facts FILE keeps what was found of transformers; if it exists, it is read instead. Several FILEs are of
several versions, the newest first, as --write needs it: the table has the names of all, and where they differ the
careful fact.
"""
import argparse, collections, json, os, re, subprocess, sys, types

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
package = types.ModuleType("libqobs")  # its modules without its libraries
package.__path__ = [os.path.join(TOP, "python", "libqobs")]
sys.modules["libqobs"] = package
from libqobs import _vllm_sources
from libqobs.architectures import (COLUMNS, KEEP, LINEAR_KINDS, STAY, UNBUILT, classes, collect_all, general, in_block,
                                   modules_of, plain, row_of, vllm_of, vllm_package)

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
TABLE = os.path.join(TOP, "checkpoint/model/transformers.inc")
KINDS = ("linear", "head", "table", "router", "conv1d", "kept", "experts", "stacked_experts")
LISTS = ("vllm_keeps", "needs_weight", "splits", "joins", "ties")  # whose entries | separates


def ask(program, questions):
    """Kinds by the general rule and by the table, and other names, of (types, vocabularies, module, rows)."""
    text = "".join(f"{','.join(t)}\t{','.join(map(str, v))}\t{n}\t{r}\n" for t, v, n, r in questions)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def stays(name):
    return any(pattern.search(name) for pattern in STAY.values())


def general_rule(program):
    """The function for row_of that says which modules the general rule takes for linear ones."""
    def rule(modules):
        found = collections.defaultdict(set)
        answers = ask(program, [([], [], name, rows) for _, name, _, _, rows, _ in modules])
        for (_, name, _, _, _, weight), answer in zip(modules, answers):
            if weight:
                found[general(name)].add(answer[0] == "linear")
        return found
    return rule


def read_facts(paths, only, jobs):
    """{"transformers": version, "types": facts}; those of older versions are more classes of the same types."""
    import transformers
    from transformers.models.auto import modeling_auto
    found = []
    for path in paths or [None]:
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found.append(json.load(file))
            continue
        wanted = [kind for kind in classes(modeling_auto) if re.fullmatch(only, kind) and kind not in UNBUILT]
        found.append({"transformers": transformers.__version__, "types": collect_all(wanted, jobs)})
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(found[-1], file)
    types = dict(found[0]["types"])
    for one in found[1:]:
        for kind, row in one["types"].items():
            old = {f"{name} {one['transformers']}": facts for name, facts in row["classes"].items()}
            new = types.get(kind, {"classes": {}, "failed": row["failed"]})
            types[kind] = {"classes": {**new["classes"], **old}, "failed": new["failed"]}
    return {"transformers": found[0]["transformers"],
            "types": {k: v for k, v in sorted(types.items()) if re.fullmatch(only, k)}}


# ---- The table -------------------------------------------------------------------------------------------------------

HEADER = """/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rows of struct architecture by the classes of transformers and the sources of vLLM, written by
 * scripts/architecture_table.py: what the general rule of architecture.c gets wrong, how transformers calls modules,
 * and what does not load. Then the types that need nothing, and classes that vLLM has and transformers has not. */
#define TABLE_TRANSFORMERS "{transformers}"
#define TABLE_VLLM "{vllm}"
"""


def known_names(column):
    with open(TABLE, encoding="utf-8") as file:
        rows = re.findall(rf"\.{column} = ((?:\"[^\"]*\"\s*)+)", file.read())
    return set(" ".join(" ".join(re.findall(r'"([^"]*)"', row)) for row in rows).split())


def filled(fields):
    """A row of (name, value) in lines of at most 120 columns. A FROM>TO that is too long is cut behind its sign."""
    lines, line = [], "{"
    for name, value in fields:
        words = ["true"] if value is True else re.findall(r"(?=\S{100})\S+>|[^ |]+[ |]?", value)
        if len(f"{line}, .{name} = {words[0]}") > 114:
            lines, line = [*lines, line + ","], " "
        line += f"{', ' if line.strip(' {') else ''}.{name} = "
        for i, word in enumerate(() if value is True else words):
            if i and len(line) + len(word) > 117:
                lines, line = [*lines, line + '"'], "    "
            line += word if i and line.strip() else f'"{word}'
        line += "true" if value is True else '"'
    return "\n".join([*lines, line]) + "},\n"


def fields_of(row):
    """The columns of a row as C."""
    for column in COLUMNS:
        value = row.get(column)
        if value is True:
            yield column, True
        elif value:
            name = f"names[MODULE_{column.upper()}]" if column in KINDS else column
            yield name, ("|" if column in LISTS else " ").join(value)


LONGEST = 3900  # C99 has strings of at most 4095 bytes


def pieces(text):
    """A list of names as texts that are short enough."""
    found = [""]
    for word in text.split(" "):
        if len(found[-1]) + len(word) > LONGEST:
            found.append("")
        found[-1] += (" " if found[-1] else "") + word
    return found


def text_of(key, names, fields):
    """A row as text, in several rows if it has many types or names."""
    for some in pieces(" ".join(names)):
        row, more = [(key, some)], []
        for name, value in fields:
            first, *others = [value] if value is True else pieces(value)
            row.append((name, first))
            more += [[row[0], (name, other)] for other in others]
        yield from map(filled, [row, *more])


def write_table(program, facts, vllm):
    """Writes the rows of all types and of the classes that vLLM alone has, those of the same contents as one."""
    package, version = vllm_package(vllm)
    if not package:
        sys.exit("--write needs vLLM's sources: --vllm PACKAGE")
    types = {k: v for k, v in facts["types"].items() if v["classes"]}
    kept, lacks = vllm_of(package, types)
    kept.update({plain(name): keeps for name, keeps in kept.items()})
    by_row, by_class = collections.defaultdict(list), collections.defaultdict(list)
    for kind, row in sorted({**dict.fromkeys(UNBUILT), **types}.items()):
        keeps = {run for name in row["classes"] for run in kept.get(plain(name), ())} if row else ()
        found = row_of(row, keeps, kind in lacks, general_rule(program)) if row else {}
        by_row[tuple(fields_of(found))].append(kind)
    of_transformers = {plain(name) for row in types.values() for name in row["classes"]}
    for name, keeps in sorted(kept.items()):
        if plain(name) != name and plain(name) not in of_transformers:
            by_class[tuple(fields_of({"vllm_keeps": keeps, "lacks_transformers": True}))].append(name)
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(HEADER.format(transformers=facts["transformers"], vllm=version))
        for key, rows in (("types", by_row), ("classes", by_class)):
            for fields, names in sorted(rows.items(), key=lambda item: (not item[0], item[1])):
                file.writelines(text_of(key, names, fields))


# ---- Tests -----------------------------------------------------------------------------------------------------------


def faults(program, row, lacks, exact):
    """What the table says wrongly about the names of a model type. lacks: vLLM has no class of it; None: unknown. Not
    exact: the table is of another version of transformers, too, and may name more than this one needs."""
    modules = list(modules_of(row))
    wanted, linear = collections.defaultdict(set), set()
    for facts, name, module, kind, _, _ in modules:
        wanted[name].add(module)
        if kind in ("linear", "experts"):
            linear.add(name)
    answers = ask(program, [(f["types"], f["vocabularies"], n, r) for f, n, _, _, r, _ in modules])
    if lacks is not None and any(("v" in answer[2]) != lacks for answer in answers):
        yield f"vLLM {'lacks' if lacks else 'has'} it, the table says otherwise"
    quantized = collections.defaultdict(bool)
    for (facts, name, module, _, _, weight), (_, kind, *_) in zip(modules, answers):
        if weight and kind == "linear":
            quantized[general(name)] |= general(module) in facts["reads"]
    loses = False
    for (facts, name, _, _, _, weight), (_, found, letters, *_) in zip(modules, answers):
        how = facts["converted"].get(general(f"{name}.weight" if weight else name), "does nothing")
        loses |= how == "loses"
        for word in ("splits", "joins"):
            if weight and found == "linear" and (how == word) != (word[0] in letters) and (exact or how == word):
                yield f"{name}: transformers {how}, .{word} says otherwise"
    plain = any("p" in letters for _, _, letters, *_ in answers)
    if plain != loses and (exact or loses) and not any("e" in letters for _, _, letters, *_ in answers):
        yield f"transformers {'does not find' if loses else 'finds'} quantized experts, .plain_experts says otherwise"
    for (_, name, _, _, _, weight), (_, found, letters, *_) in zip(modules, answers):
        if weight and found == "linear" and quantized[general(name)] and "w" not in letters:
            yield f"{name}: the initializers read its weight, .needs_weight has it not"
    for (facts, name, module, _, _, weight), (_, found, letters, *_) in zip(modules, answers):
        if weight and found == "linear" and general(module) in facts["shared"] and "t" not in letters:
            yield f"{name} shares its weight with other layers, .ties says otherwise"
    for (facts, name, module, kind, _, weight), (_, found, _, *others) in zip(modules, answers):
        if weight and kind in KEEP and name not in linear and found == "linear":
            yield f"{name} is a {kind}, the table says linear"
        if weight and kind in ("linear", "experts") and found not in ("linear", "experts") and in_block(
                general(name)) and not stays(name) and general(module) not in facts["shared"] and (
                    exact or found not in ("head", "kept")):
            yield f"{name} is {kind}, the table says {found}"
        if kind in LINEAR_KINDS and module != name and module not in others:
            yield f"{name} is the module {module}, the table says {' '.join(others) or 'so, too'}"


def vllm_faults(program, types, name, row):
    """Modules that vLLM builds unquantized and the program takes for linear layers that vLLM quantizes."""
    modules = [module.replace("*", "0") for module in row["unquantized"]]
    for kind in types:
        answers = ask(program, [([kind], [], module, 0) for module in modules])
        for module, (_, found, letters, *_) in zip(modules, answers):
            if found == "linear" and "k" not in letters:
                yield f"vLLM builds {module} unquantized, the table of {kind} says nothing"


def check_vllm(program, package, facts, verbose):
    """Every architecture of vLLM's registry, by the model types that transformers has for it, or by its own name."""
    types, passed, failed = collections.defaultdict(list), 0, 0
    for kind, row in facts["types"].items():
        for name in row["classes"] or row["failed"]:  # what cannot be built here has a row, too
            types[plain(name)].append(kind)
    for name, row in _vllm_sources.architectures(package).items():
        found = list(vllm_faults(program, types.get(plain(name), [f"@{name}"]), name, row))
        passed, failed = passed + (not found), failed + bool(found)
        if found:
            print(f"FAIL {name}: " + "\n     ".join(found if verbose else found[:4]))
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--facts", nargs="+")
    parser.add_argument("--vllm")
    parser.add_argument("--only", default=".*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    facts = read_facts(options.facts, options.only, options.jobs)
    if options.write:
        write_table(options.kinds, facts, options.vllm)
        return 0
    lacks = vllm_of(options.vllm, facts["types"])[1] if options.vllm else None
    with open(TABLE, encoding="utf-8") as file:
        exact = f'TRANSFORMERS "{facts["transformers"]}"' in file.read()
    known, passed, failed = known_names("types"), 0, 0
    for kind, row in facts["types"].items():
        errors = [e for e in row["failed"].values() if "ImportError" in e]
        if not row["classes"] and errors:
            print(f"skipped: {kind}: {errors[0]}")
            continue
        found = list(faults(options.kinds, row, kind in lacks if lacks is not None else None, exact))
        if kind not in known:
            found.insert(0, "is a new model type: --write adds it")
        if not row["classes"]:
            found.insert(0, f"no class is built: {next(iter(row['failed'].values()), 'it has none')}")
        passed, failed = passed + (not found), failed + bool(found)
        if found:
            print(f"FAIL {kind}: " + "\n     ".join(found if options.verbose else found[:4]))
    if options.vllm and options.only == ".*":
        of_vllm = check_vllm(options.kinds, options.vllm, facts, options.verbose)
        print(f"architectures of vLLM: {of_vllm[0]} right, {of_vllm[1]} with differences")
        passed, failed = passed + of_vllm[0], failed + of_vllm[1]
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
