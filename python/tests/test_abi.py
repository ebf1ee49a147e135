# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""What libqobs._declarations makes of declarations.txt against the headers, by a C program. tests/public_api.py
compares the file with them."""
import ctypes
import pathlib
import re
import subprocess

import pytest
from libqobs import _declarations as declared
from libqobs import _library as c

HEADERS = ["qobs.h", "stateless.h", "quantizer.h", "format.h", "plan.h", "gguf.h", "experimental.h", "checkpoint.h"]


def python_facts():
    out = dict(declared.CONSTANTS)
    for name, structure in declared.STRUCTURES.items():
        out[name] = ctypes.sizeof(structure)
        for field in structure._fields_:
            member = getattr(structure, field[0])
            out[f"{name}.{field[0]}"] = (member.offset, member.size)
    return out


@pytest.fixture(scope="module")
def text(root):
    return "\n".join((root / "include" / "qobs" / h).read_text() for h in HEADERS)


def test_structures_and_constants(root, tmp_path):
    lines = []
    for name, structure in declared.STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(qobs_{name}));')
        for field, *_ in structure._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof(qobs_{name}, {field}), '
                         f'sizeof ((qobs_{name} *)0)->{field});')
    lines += [f'printf("%s\\t%lld\\n", "{n}", (long long)({n}));' for n in declared.CONSTANTS]
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


def test_every_kind():
    """Of each kind there are some, and types of parameters are those that calls need."""
    assert len(declared.STRUCTURES) >= 40 and len(declared.FUNCTIONS) >= 110 and len(declared.CONSTANTS) >= 40
    assert set(declared.CALLBACKS) == {"allocate", "release", "task", "parallel_for", "progress"}
    error = ctypes.POINTER(c.ErrorText)
    number, text, address = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
    assert declared.FUNCTIONS["config_get"] == (ctypes.c_int, address, text, text, number, error)
    assert declared.FUNCTIONS["observer_merge"] == (ctypes.c_int, address, ctypes.POINTER(address), number, error)
    assert declared.FUNCTIONS["minmax"] == (ctypes.c_int, ctypes.POINTER(c.MinmaxArgs), error)
    assert declared.FUNCTIONS["config_qparam_layout"][2:4] == (address, address)  # tensors
    assert declared.FUNCTIONS["format_encode"] == (ctypes.c_uint32, address, ctypes.c_float, ctypes.c_bool)
    assert declared.FUNCTIONS["plan_destroy"] == (None, address) and declared.FUNCTIONS["isa_active"] == (text,)
    assert declared.FUNCTIONS["checkpoint_fused_sets"][1] == ctypes.POINTER(text)


def test_every_module_is_in_the_wheel():
    folder = pathlib.Path(__file__).parent.parent
    listed = re.findall(r"'libqobs/(\w+\.py)'", (folder / "meson.build").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(p.name for p in (folder / "libqobs").glob("*.py"))


def test_every_error(text):
    statuses = {int(v) for v in re.findall(r"QOBS_ERROR_\w+ = (-\d+)", text)}
    assert set(c.ERRORS) == statuses
