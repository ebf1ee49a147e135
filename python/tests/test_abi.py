# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The declarations of libqobs._library against the headers, by a C program."""
import ctypes
import pathlib
import re
import subprocess

import pytest
from libqobs import _library as c

HEADERS = ["qobs.h", "stateless.h", "quantizer.h", "format.h", "plan.h"]
CONSTANTS = {"QOBS_" + n: getattr(c, n) for n in ("F32 BF16 F16 F64 I8 I16 I32 I64 F8_E4M3 OK MAX_NDIM PLAN_MAX_NDIM "
                                                  "SETTING_VALUE RESULT_NAME").split()}
CONSTANTS |= {"QOBS_ERROR_" + n: getattr(c, n)
              for n in "INVALID_ARGUMENT UNSUPPORTED OUT_OF_MEMORY NONFINITE NO_DATA NO_RESULT".split()}
CONSTANTS |= {"QOBS_SETTING_" + n: getattr(c, n) for n in "WORD BOOL INTEGER REAL AXES PAIR OWN_NAME".split()}
CONSTANTS["QOBS_VERSION_NUMBER / 100"] = c.ABI[0] * 100 + c.ABI[1]


def python_facts():
    out = {}
    for name, structure in c.STRUCTURES.items():
        out[name] = ctypes.sizeof(structure)
        for field in structure._fields_:
            member = getattr(structure, field[0])
            out[f"{name}.{field[0]}"] = (member.offset, member.size)
    return out | CONSTANTS


@pytest.fixture(scope="module")
def text(root):
    return "\n".join((root / "include" / "qobs" / h).read_text() for h in HEADERS)


def test_structures_and_constants(root, tmp_path):
    lines = []
    for name, structure in c.STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(qobs_{name}));')
        for field, *_ in structure._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof(qobs_{name}, {field}), '
                         f'sizeof ((qobs_{name} *)0)->{field});')
    lines += [f'printf("%s\\t%lld\\n", "{n}", (long long)({n}));' for n in CONSTANTS]
    source, program = tmp_path / "facts.c", tmp_path / "facts"
    source.write_text("".join(f"#include <qobs/{h}>\n" for h in HEADERS) + "#include <stdio.h>\nint main(void)\n{\n" +
                      "\n".join(lines) + "\nreturn 0;\n}\n")
    subprocess.run(["cc", "-std=c11", f"-I{root}/include", str(source), "-o", str(program)], check=True)
    facts = {}
    for line in subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines():
        if "\t" in line:
            name, value = line.split("\t")
            facts[name] = int(value)
        else:
            name, *numbers = line.split()
            facts[name] = tuple(map(int, numbers)) if "." in name else int(numbers[0])
    assert facts == python_facts()


def test_every_structure(text):
    """Members and their order are the header's, so nothing is missing at the end."""
    found = {}
    for name, body in re.findall(r"^typedef struct qobs_(\w+) \{\n(.*?)^\}", text, re.S | re.M):
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        found[name] = [re.search(r"(\w+)(\[[^]]*\])?$|\(\*(\w+)\)", member.strip()) for member in body.split(";")
                       if member.strip()]
        found[name] = [m.group(3) or m.group(1) for m in found[name]]
    for name in ("allocator", "executor"):  # members that are functions
        found[name] = [f[0] for f in c.STRUCTURES[name]._fields_]
    assert found == {name: [f[0] for f in s._fields_] for name, s in c.STRUCTURES.items()}


def test_every_function(text):
    """Names, and numbers of parameters."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = {}
    for name, parameters in re.findall(r"^QOBS_API [^;(]*?qobs_(\w+)\(([^;]*)\);", text, re.M):
        found[name] = 0 if parameters == "void" else parameters.count(",") + 1
    assert found == {name: len(types) - 1 for name, types in c.FUNCTIONS.items()}


def test_every_module_is_in_the_wheel():
    folder = pathlib.Path(__file__).parent.parent
    listed = re.findall(r"'libqobs/(\w+\.py)'", (folder / "meson.build").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(p.name for p in (folder / "libqobs").glob("*.py"))


def test_every_error(text):
    statuses = {int(v) for v in re.findall(r"QOBS_ERROR_\w+ = (-\d+)", text)}
    assert set(c.ERRORS) == statuses
