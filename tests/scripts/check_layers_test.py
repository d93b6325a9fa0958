#!/usr/bin/env python3
"""check_layers.py finds each kind of fault, and nothing in a clean tree."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_layers.py"
CLEAN = {
    "include/quire/cache.hpp": '#include "quire/spec.hpp"\n#include <vector>\n',
    "include/quire/spec.hpp": "",
    "src/base/error.h": '#include "quire/spec.hpp"\n',
    "src/codec/int8/int8.h": '#include "base/error.h"\n',
    "src/page/pool.h": '#include "base/error.h"\n',
    "src/attend/walk.h": '#include "codec/int8/int8.h"\n#include "page/pool.h"\n',
    "src/cache/cache.cc": '#include "attend/walk.h"\n#include "quire/cache.hpp"\n',
    "model/model.h": '#include "quire/cache.hpp"\n',
    "model/model.cc": '#include "model/model.h"\n',
    "tools/quire/demo.cc": '#include "demo.h"\n#include "quire/cache.hpp"\n',
    "tools/quire/eval.cc": '#include "model/model.h"\n',
    "tools/quire/demo.h": "",
    "tests/page/pool_test.cc": '#include "page/pool.h"\n',
    "README.md": "See https://example.org and ~/src.\n",
}


class CheckLayers(unittest.TestCase):
    def check(self, changes):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**CLEAN, **changes}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, CHECKER, folder], capture_output=True, text=True)
        return done.returncode, done.stdout

    def assert_found(self, name, text, expected):
        code, output = self.check({name: text})
        self.assertEqual(code, 1, output)
        self.assertIn(f"{name}:1: ", output)
        self.assertIn(expected, output)
        self.assertIn(" 1 faults", output)

    def test_a_clean_tree_has_no_faults(self):
        code, output = self.check({})
        self.assertEqual(code, 0, output)

    def test_a_folder_may_not_include_one_above_it(self):
        self.assert_found("src/base/a.h", '#include "page/pool.h"\n', "base may not depend on page")
        self.assert_found("src/attend/a.h", '#include "cache/new.h"\n',
                          "attend may not depend on cache")

    def test_codec_and_page_do_not_know_each_other(self):
        self.assert_found("src/codec/a.h", '#include "page/pool.h"\n', "codec may not depend")
        self.assert_found("src/page/a.h", '#include "codec/int8/int8.h"\n', "page may not depend")

    def test_a_relative_path_does_not_hide_an_edge(self):
        self.assert_found("src/base/a.h", '#include "../page/pool.h"\n', "may not depend on page")

    def test_a_new_folder_of_src_needs_a_place(self):
        self.assert_found("src/misc/a.h", '#include "base/error.h"\n', "no place in the order")

    def test_public_headers_do_not_include_src(self):
        self.assert_found("include/quire/a.hpp", '#include "base/error.h"\n', "public headers only")

    def test_users_see_only_public_headers(self):
        for folder in ("model", "tools/quire", "python", "examples"):
            self.assert_found(f"{folder}/a.cc", '#include "base/error.h"\n', "uses only include/")

    def test_only_tools_know_the_runner(self):
        self.assert_found("src/cache/a.cc", '#include "model/model.h"\n', "only include/ and src/")
        self.assert_found("python/a.cc", '#include "model/model.h"\n', "uses only include/")
        self.assert_found("model/a.cc", '#include "tools/quire/demo.h"\n', "uses only include/")

    def test_the_library_does_not_know_frameworks(self):
        self.assert_found("src/base/a.h", "#include <torch/all.h>\n",
                          "does not know of torch")
        self.assert_found("include/quire/a.hpp", "#include <Python.h>\n",
                          "does not know of Python.h")

    def test_no_path_of_one_machine(self):
        self.assert_found("README.md", "cd /" + "home/somebody/quire\n", "path of one machine")

    def test_no_registry_host(self):
        self.assert_found("setup.sh", "pip --index https://pypi" + ".org/simple\n",
                          "names a package registry")


if __name__ == "__main__":
    unittest.main()
