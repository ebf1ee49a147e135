#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The rules of the source tree that no compiler checks.

    layers.py [--report] [ROOT]

Reads src/, include/, checkpoint/ and tools/, and scripts. Prints each violation with its file and line, and ends with
"N passed, N failed", one for each rule. With --report it prints the violations by rule and always succeeds. The rules:

  order     a file includes from its own folder, a folder below it in LAYERS, the public headers and the system only
  checkpoint  a file of checkpoint/ includes from its own folder and those below it in CHECKPOINT
  sinks     checkpoint/engine/ names no sink, no verb and no output
  members   a structure of checkpoint/ has at most MAX_MEMBERS members, those of one within counted as one
  loose     src/ holds folders, meson.build and what it reads
  folders   a folder of src/ has no folders within
  names     no two files have one name, but for instruction sets
  tags      no two structures, unions or enumerations have one tag, but for instruction sets and templates
  cycles    files, a header and its sources of one stem taken as one, form no cycle of includes
  columns   lines have at most 120 columns, also those of shell scripts anywhere
  tools     checkpoint/ includes its own files, the public headers and the system only; tools/ those and its own
  places    files and names under "Where to read" in CONTRIBUTING.md exist
  settings  nothing below config/ compares a statistic, family or version, or knows a configuration; nothing above it
            compares them or the functions of a stage, or reads the settings of one family
"""
import argparse
import os
import re
import sys
from collections import defaultdict

SETS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src", "meson.build")
with open(SETS, encoding="utf-8") as sets:
    ISAS = re.findall(r"^(\w+) (?:any|x86_64|aarch64)\b", sets.read(), re.M)

# From the ground up. A file may include from every folder before its own.
LAYERS = ["base", "number", "kernels", "templates", *ISAS, "stages", "plan", "measure", "formula", "histogram",
          "quantize", "search", "optimal",
          "config", "observer", "api"]
CHECKPOINT = ["files", "schemes", "model", "activations", "engine", "quantize", "calibrate", "mixture", "audit",
              "parts", "api"]
BELOW_CONFIG = LAYERS[:LAYERS.index("config")]
ABOVE_CONFIG = LAYERS[LAYERS.index("config") + 1:]
LOOSE = ["src/meson.build"]
CLIENTS = ["checkpoint", "tools"]
KNOWN = {"checkpoint": "the public headers", "tools": "the public headers and checkpoint/"}
MAX_COLUMNS = 120
MAX_MEMBERS = 16

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>|(\w+))', re.M)
PATH_MACRO = re.compile(r'^\s*#\s*define\s+\w+\s+"([^"]+\.h)"', re.M)
# The engine does not know these: verbs, their sinks, folders above it and what lies there.
OUTPUTS = re.compile(r"\b\w*_sink\b(?!s)|\b(?:quantize_call|calibration|mixture|output_\w+|layout_\w+|st_writer\w*)\b|"
                     r"\b(?:contents|costs|planning|statistics)\b")
STRUCT = re.compile(r"\bstruct\s+(?:__attribute__\s*\(\(.*?\)\)\s*)?(\w+)\s*\{")
TAG = re.compile(r"\b(struct|union|enum)\s+(?:__attribute__\s*\(\(.*?\)\)\s*)?([A-Za-z_]\w*)\s*\{")
SETTINGS = re.compile(r"\b(?:statistic|family|version)\s*[!=]=|\bqobs_config\b")
# Above config/: a comparison of these or of a stage's functions, a stage of a preset, a setting but the common ones.
DECISIONS = re.compile(r"\b(?:statistic|family|version)\s*[!=]=|[!=]=\s*&\s*qobs_\w+|\bFAMILY_\w+|"
                       r"\bpreset\s*(?:->|\.)\s*(?!name\b|ops\b)\w+|"
                       r"\bconfig\)?\s*(?:->|\.)\s*(?:scheme|torch|quark|ort|torchao|modelopt|aiedge|nncf|vllm|ggml|"
                       r"histogram)\b")
PLACE = re.compile(r"`(\w[\w.-]*/[\w./-]+\.\w+)`(?: \(`(\w+)`\))?")
SKIPPED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def is_c(path):
    return path.endswith((".c", ".h", ".cc", ".hpp"))


def folder(path):
    """The folder of src/ that holds a file; None for any other file."""
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def unit(path):
    """A header and its sources of one stem. A header of C++ stands beside the one of C with its stem."""
    head, name = os.path.split(path)
    return head + "/" + (name if name.endswith(".hpp") else name.split(".")[0])


def without_comments(text):
    """The text with comments and strings blank and every newline in place."""
    return SKIPPED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Tree:
    def __init__(self, root):
        self.root = root
        self.text = {}  # by path from the root
        for top in ["src", "include", *CLIENTS]:
            for directory, folders, names in os.walk(os.path.join(root, top)):
                folders.sort()
                for name in sorted(names):
                    path = os.path.relpath(os.path.join(directory, name), root).replace(os.sep, "/")
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        self.text[path] = file.read()
        self.scripts = {path: text for path, text in self.read_scripts()}
        self.code = {path: without_comments(text) for path, text in self.text.items() if is_c(path)}
        self.includes = {path: list(self.read_includes(path)) for path in self.code}

    def read_scripts(self):
        for directory, folders, names in os.walk(self.root):
            folders[:] = sorted(f for f in folders if not f.startswith(("build", ".git")))
            for path in sorted(os.path.join(directory, name) for name in names):
                path = os.path.relpath(path, self.root).replace(os.sep, "/")
                if path.endswith(".sh") or path == ".ci/run":
                    with open(os.path.join(self.root, path), encoding="utf-8") as file:
                        yield path, file.read()

    def resolve(self, path, name):
        """The file of the tree that an include means, or None."""
        top = path.split("/")[0]
        for candidate in [os.path.dirname(path) + "/" + name, f"{top}/{name}", f"include/{name}", f"src/{name}",
                          f"checkpoint/{name}"]:
            candidate = os.path.normpath(candidate).replace(os.sep, "/")
            if candidate in self.text:
                return candidate
        return None

    def read_includes(self, path):
        """Line, name, target, and whether it is in quotes. A macro that holds a path counts where it is defined."""
        text = self.text[path]
        for m in INCLUDE.finditer(text):
            if not m[3]:
                yield line_of(text, m.start(m.lastindex)), m[1] or m[2], self.resolve(path, m[1] or m[2]), bool(m[1])
        for m in PATH_MACRO.finditer(text):
            if self.resolve(path, m[1]):
                yield line_of(text, m.start(1)), m[1], self.resolve(path, m[1]), True


def is_public(target):
    return target is not None and target.startswith("include/qobs/")


def check_order(tree):
    for path in tree.includes:
        own = folder(path)
        if own is None:
            continue
        if own not in LAYERS:
            yield f"{path}: src/{own} is no folder of LAYERS"
            continue
        for line, name, target, quoted in tree.includes[path]:
            where = f"{path}:{line}: includes {name}"
            other = folder(target) if target else None
            if is_public(target) or (target is None and not quoted) or other == own:
                continue
            if target is None:
                yield f"{where}, which is not in the tree"
            elif other is None:
                yield f"{where}, which is not in a folder of src/"
            elif not quoted:
                yield f"{where} in angle brackets"
            elif other not in LAYERS or LAYERS.index(other) > LAYERS.index(own):
                yield f"{where}: {own} is below {other}"
            elif other in [*ISAS, "templates"] and own not in [*ISAS, "templates"]:
                yield f"{where}: only instruction sets include from {other}"


def check_checkpoint(tree):
    """The same for the folders of checkpoint/."""
    for path in tree.includes:
        parts = path.split("/")
        if parts[0] != "checkpoint":
            continue
        if parts[1] not in CHECKPOINT:
            yield f"{path}: checkpoint/{parts[1]} is no folder of CHECKPOINT"
            continue
        for line, name, target, _ in tree.includes[path]:
            other = target.split("/")[1] if target and target.startswith("checkpoint/") else parts[1]
            if other not in CHECKPOINT or CHECKPOINT.index(other) > CHECKPOINT.index(parts[1]):
                yield f"{path}:{line}: includes {name}: {parts[1]} is below {other}"


def check_sinks(tree):
    for path, code in tree.code.items():
        for m in OUTPUTS.finditer(code) if path.startswith("checkpoint/engine/") else ():
            yield f"{path}:{line_of(code, m.start())}: {m[0]} in the engine"


def count_members(code, position):
    """The declarators between the brace at `position` and its end; what stands in inner brackets counts as a part."""
    depth, members = 0, 0
    for c in code[position:]:
        depth += (c in "{([") - (c in "})]")
        if depth == 0:
            return members
        members += depth == 1 and c in ",;"
    return members


def check_members(tree):
    for path, code in tree.code.items():
        for m in STRUCT.finditer(code) if path.startswith("checkpoint/") else ():
            members = count_members(code, m.end() - 1)
            if members > MAX_MEMBERS:
                yield f"{path}:{line_of(code, m.start())}: struct {m[1]} has {members} members, at most {MAX_MEMBERS}"


def check_loose(tree):
    for path in tree.text:
        if path.startswith("src/") and folder(path) is None and path not in LOOSE:
            yield f"{path}: lies loose in src/"


def check_folders(tree):
    for directory in sorted({os.path.dirname(path) for path in tree.text if folder(path)}):
        if directory.count("/") > 1:
            yield f"{directory}: lies within a folder of src/"


def check_names(tree):
    places = defaultdict(list)
    for path in tree.code:
        if path.startswith(("src/", "checkpoint/")) and folder(path) not in ISAS:
            places[os.path.basename(path)].append(path)
    for paths in places.values():
        if len(paths) > 1:
            yield f"{paths[0]}: has the name of {', '.join(paths[1:])}"


def check_tags(tree):
    places = defaultdict(list)
    for path, code in tree.code.items():
        if folder(path) not in [*ISAS, "templates"] and not path.endswith(".hpp"):  # its names are in a namespace
            for m in TAG.finditer(code):
                places[m[2]].append(f"{path}:{line_of(code, m.start())}")
    for tag, where in places.items():
        if len(where) > 1:
            yield f"{where[0]}: {tag} is also defined at {', '.join(where[1:])}"


def strong_components(edges):
    """Tarjan's algorithm without recursion: the sets of nodes that reach each other."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for start in edges:
        if start in index:
            continue
        work = [(start, iter(edges[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, rest = work[-1]
            for to in rest:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(edges.get(to, ()))))
                    break
                if to in on_stack:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = stack[stack.index(node):]
                    del stack[stack.index(node):]
                    on_stack.difference_update(component)
                    found.append(component)
    return found


def check_cycles(tree):
    edges, why = defaultdict(set), {}
    for path in tree.includes:
        for line, name, target, _ in tree.includes[path]:
            if target and is_c(target) and unit(target) != unit(path):
                edges[unit(path)].add(unit(target))
                why.setdefault((unit(path), unit(target)), f"{path}:{line}")
    for component in strong_components(dict(edges)):
        if len(component) > 1:
            inside = [f"{why[a, b]} includes {b}" for a in sorted(component)
                      for b in sorted(edges[a]) if b in component]
            yield f"{' '.join(sorted(component))}: a cycle: {'; '.join(inside)}"


def check_columns(tree):
    for path, text in [*((path, tree.text[path]) for path in tree.code), *tree.scripts.items()]:
        for i, line in enumerate(text.split("\n"), 1):
            if len(line) > MAX_COLUMNS:
                yield f"{path}:{i}: has {len(line)} columns, at most {MAX_COLUMNS}"


def check_tools(tree):
    for path in tree.includes:
        top = path.split("/")[0]
        if top not in CLIENTS:
            continue
        for line, name, target, quoted in tree.includes[path]:
            if target is None and quoted:
                yield f"{path}:{line}: includes {name}, which is not in the tree"
            elif target and not is_public(target) and target.split("/")[0] not in CLIENTS[:CLIENTS.index(top) + 1]:
                yield f"{path}:{line}: includes {name}: {top} knows {KNOWN[top]} only"


def check_places(tree):
    guide = os.path.join(tree.root, "CONTRIBUTING.md")
    if not os.path.exists(guide):
        return
    with open(guide, encoding="utf-8") as file:
        text = file.read()
    section = text[text.find("## Where to read"):].split("\n## ")[0]
    for path, name in PLACE.findall(section):
        place = os.path.join(tree.root, path)
        if not os.path.exists(place):
            yield f"CONTRIBUTING.md: {path} is not in the tree"
            continue
        with open(place, encoding="utf-8") as file:
            if not re.search(rf"\b{name}", file.read()):
                yield f"CONTRIBUTING.md: {path} has no {name}"


def check_settings(tree):
    for path, code in tree.code.items():
        if folder(path) in BELOW_CONFIG:
            for m in SETTINGS.finditer(code):
                yield f"{path}:{line_of(code, m.start())}: {m[0]} below config/"
        if folder(path) in ABOVE_CONFIG:
            for m in DECISIONS.finditer(code):
                yield f"{path}:{line_of(code, m.start())}: {m[0]} above config/"


RULES = {"order": check_order, "checkpoint": check_checkpoint, "sinks": check_sinks, "members": check_members,
         "loose": check_loose, "folders": check_folders,
         "names": check_names, "tags": check_tags, "cycles": check_cycles, "columns": check_columns,
         "tools": check_tools, "places": check_places, "settings": check_settings}


def violations(root):
    """By rule."""
    tree = Tree(root)
    if not tree.code:
        raise SystemExit(f"{root}: has no sources")
    return {name: list(rule(tree)) for name, rule in RULES.items()}


def main():
    parser = argparse.ArgumentParser(description="checks the rules of the source tree")
    parser.add_argument("--report", action="store_true", help="print the violations by rule and succeed")
    parser.add_argument("root", nargs="?", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    options = parser.parse_args()
    found = violations(options.root)
    for rule, lines in found.items():
        if options.report:
            print(f"== {rule}: {len(lines)}")
        for line in lines:
            print(line)
    if options.report:
        return 0
    failed = sum(1 for lines in found.values() if lines)
    print(f"{len(found) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
