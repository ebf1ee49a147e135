#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""layers.py finds what it says it finds: each test breaks one rule of a small tree that keeps all of them. Ends with "N
passed, N failed"."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import layers

GOOD = {
    "src/meson.build": "x = 'base/a.c'\n",
    "src/base/a.h": "struct a {\n    int x;\n};\n",
    "src/base/a.c": '#include "base/a.h"\n\n#include <string.h>\n',
    "src/base/b.c": '/* #include "api/top.h" and config->family == 3 */\n#include "base/a.h"\n#include "qobs/qobs.h"\n',
    "src/templates/sum.inl.h": '#include "base/a.h"\nstruct partial {\n    int x;\n};\n',
    "src/templates/max.inl.h": "struct partial {\n    int x;\n};\n",
    "src/templates/min.inl.h": "\n",
    "src/avx2/vec.h": '#include "templates/sum.inl.h"\nstruct vec {\n    int x;\n};\n',
    "src/avx2/isa.c": '#include "avx2/vec.h"\n',
    "src/avx2/sum.c": "\n",
    "src/avx512/vec.h": "struct vec {\n    int x;\n};\n",
    "src/avx512/isa.c": '#include "avx512/vec.h"\n#include "avx2/vec.h"\n',
    "src/avx512/sum.c": "\n",
    "src/plan/plan.h": '#include "base/a.h"\nstruct plan {\n    struct a a;\n};\n',
    "src/plan/plan.c": '#include "plan/plan.h"\n#define BODY "plan/plan.inl.h"\n#include BODY\n',
    "src/plan/plan.inl.h": "\n",
    "src/config/config.h": "struct qobs_config {\n    int version;\n};\n",
    "src/config/config.c": '#include "config/config.h"\nint f(struct qobs_config *c) { return c->version == 3; }\n',
    "src/config/stages.c": '#include "plan/plan.h"\n',
    "include/qobs/qobs.h": "\n",
    "tools/qobs.c": '#include "program.h"\n#include "qobs/qobs.h"\n#include <json-c/json.h>\n',
    "tools/program.h": "struct program {\n    int x;\n};\n",
}


class Layers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        for path, text in GOOD.items():
            self.write(path, text)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        path = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def add(self, path, text):
        with open(os.path.join(self.folder.name, path), "a", encoding="utf-8") as file:
            file.write(text)

    def expect(self, rule, *words):
        """One violation of this rule, with these words, and none of another."""
        found = {name: lines for name, lines in layers.violations(self.folder.name).items() if lines}
        self.assertEqual(list(found), [rule])
        self.assertEqual(len(found[rule]), 1, found[rule])
        for word in words:
            self.assertIn(word, found[rule][0])

    def test_checkpoint(self):
        self.write("checkpoint/model/a.c", '#include "files/a.h"\n')
        self.write("checkpoint/files/a.h", "\n")
        self.assertEqual(layers.violations(self.folder.name)["checkpoint"], [])
        self.add("checkpoint/files/a.h", '#include "model/b.h"\n')
        self.write("checkpoint/model/b.h", "\n")
        self.write("checkpoint/other/c.c", "\n")
        self.assertEqual(len(layers.violations(self.folder.name)["checkpoint"]), 2)

    def test_engine_names_a_sink(self):
        self.write("checkpoint/engine/rows.c",
                   "/* cost_sink */\nstruct sink *sink;\nint wants(struct sink_functions *f);\n")
        self.assertEqual(layers.violations(self.folder.name)["sinks"], [])
        for text in ("struct cost_sink *s;", "if (run->costs)", "layout_put_scales();", "struct quantize_call *c;"):
            with self.subTest(text=text):
                self.write("checkpoint/engine/rows.c", f"\n{text}\n")
                self.expect("sinks", "checkpoint/engine/rows.c:2", "in the engine")

    def test_members(self):
        many = "".join(f"    int a{i}[2], b{i}; /* x; */\n" for i in range(8))
        self.write("checkpoint/model/m.h", "struct m {\n" + many + "};\n")
        self.assertEqual(layers.violations(self.folder.name)["members"], [])
        self.write("checkpoint/model/m.h", "struct m {\n" + many + "    struct {\n        int x, y;\n    } z;\n};\n")
        self.expect("members", "checkpoint/model/m.h:1", "struct m has 17 members")

    def test_good(self):
        self.assertEqual({name: [] for name in layers.RULES}, layers.violations(self.folder.name))

    def test_lower_includes_higher(self):
        self.add("src/base/b.c", '#include "plan/plan.h"\n')
        self.expect("order", "src/base/b.c:4", "plan/plan.h", "base is below plan")

    def test_template_outside_instruction_sets(self):
        self.add("src/plan/plan.c", '#include "templates/sum.inl.h"\n')
        self.expect("order", "src/plan/plan.c", "only instruction sets")

    def test_instruction_set_from_above(self):
        self.add("src/plan/plan.c", '#include "avx2/vec.h"\n')
        self.expect("order", "src/plan/plan.c", "only instruction sets")

    def test_missing_include(self):
        self.add("src/plan/plan.c", '#include "plan/missing.h"\n')
        self.expect("order", "plan/missing.h", "not in the tree")

    def test_angle_brackets(self):
        self.add("src/plan/plan.c", "#include <base/a.h>\n")
        self.expect("order", "base/a.h", "angle")

    def test_include_by_macro(self):
        self.add("src/base/b.c", '#define BODY "plan/plan.inl.h"\n#include BODY\n')
        self.expect("order", "src/base/b.c:4", "plan/plan.inl.h")

    def test_unknown_folder(self):
        for name in "xyz":
            self.write(f"src/attic/{name}.c", "\n")
        found = layers.violations(self.folder.name)
        self.assertEqual(len(found.pop("order")), 3)
        self.assertFalse(any(found.values()))

    def test_include_of_another_tree(self):
        self.add("src/plan/plan.c", '#include "../../tools/program.h"\n')
        self.expect("order", "tools/program.h", "not in a folder of src/")

    def test_loose_file(self):
        self.write("src/loose.h", "\n")
        self.expect("loose", "src/loose.h")

    def test_folder_within(self):
        for name in "xyz":
            self.write(f"src/base/deep/{name}.c", "\n")
        self.expect("folders", "src/base/deep")

    def test_same_name(self):
        self.write("src/config/a.c", "\n")
        self.expect("names", "src/base/a.c", "src/config/a.c")

    def test_same_tag(self):
        for text in ["struct a {\n    int y;\n};\n", "union a\n{\n    int y;\n};\n", "enum a { ONE };\n"]:
            with self.subTest(text=text):
                self.write("src/plan/plan.c", '#include "plan/plan.h"\n' + text)
                self.expect("tags", "src/base/a.h:1", "src/plan/plan.c:2")

    def test_same_tag_in_tools(self):
        self.add("tools/qobs.c", "struct plan {\n    int x;\n};\n")
        self.expect("tags", "src/plan/plan.h:2", "tools/qobs.c:4")

    def test_cycle(self):
        self.write("src/base/b.h", '#include "base/c.h"\n')
        self.write("src/base/c.h", "\n")
        self.write("src/base/c.c", '#include "base/b.h"\n')
        self.expect("cycles", "src/base/b", "src/base/c")

    def test_long_line(self):
        self.add("include/qobs/qobs.h", "/* " + "é" * 114 + " */\n/* " + "é" * 115 + " */\n")
        self.expect("columns", "include/qobs/qobs.h:3", "121")

    def test_long_line_of_a_script(self):
        self.write("tests/deep/test.sh", "#" * 121 + "\n")
        self.write("build/other.sh", "#" * 121 + "\n")
        self.expect("columns", "tests/deep/test.sh:1", "121")

    def test_tool_looks_inside(self):
        self.add("tools/qobs.c", '#include "base/a.h"\n')
        self.expect("tools", "tools/qobs.c:4", "base/a.h")

    def test_tool_looks_inside_with_angle_brackets(self):
        self.add("tools/qobs.c", "#include <plan/plan.h>\n")
        self.expect("tools", "tools/qobs.c:4", "plan/plan.h")

    def test_checkpoint_looks_inside(self):
        self.write("checkpoint/model/model.c", '#include "plan/plan.h"\n')
        self.expect("tools", "checkpoint/model/model.c:1", "plan/plan.h")

    def test_settings_below_config(self):
        for text in ["statistic == 1", "p->family == 1", "config->version == 1", "version != 1", "qobs_config *c"]:
            with self.subTest(text=text):
                self.write("src/plan/plan.c", '#include "plan/plan.h"\n/* version == 1 */\n' + text + "\n")
                self.expect("settings", "src/plan/plan.c:3", "below config/")

    def test_settings_above_config(self):
        for text in ["config->version == 1", "ops != &qobs_formula", "a & FAMILY_ORT", "o->config.preset->range",
                     "config->ort.scenario"]:
            with self.subTest(text=text):
                self.write("src/api/top.c",
                           '#include "config/config.h"\n/* version == 1 */\n' + text + "; config.preset->name;\n")
                self.expect("settings", "src/api/top.c:3", "above config/")

    def test_places(self):
        self.write("CONTRIBUTING.md",
                   "`src/none.c`\n\n## Where to read\n\n`src/base/a.h` (`a`), `src/base/b.c`\n\n## More\n")
        self.assertEqual(layers.violations(self.folder.name)["places"], [])
        for text, words in (("`src/none.c`", "src/none.c is not"), ("`src/base/a.h` (`gone`)", "has no gone")):
            with self.subTest(text=text):
                self.write("CONTRIBUTING.md", f"## Where to read\n\n{text}\n")
                self.expect("places", words)

    def test_program(self):
        run = [sys.executable, layers.__file__, self.folder.name]
        self.assertEqual(subprocess.run(run, capture_output=True, text=True).stdout,
                         f"{len(layers.RULES)} passed, 0 failed\n")
        self.write("src/loose.h", "\n")
        strict = subprocess.run(run, capture_output=True, text=True)
        self.assertEqual(strict.returncode, 1)
        self.assertTrue(strict.stdout.endswith(f"{len(layers.RULES) - 1} passed, 1 failed\n"))
        report = subprocess.run([*run, "--report"], capture_output=True, text=True)
        self.assertEqual(report.returncode, 0)
        self.assertIn("== loose: 1\nsrc/loose.h", report.stdout)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    failed = len({id(test) for test, _ in result.failures + result.errors})
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
