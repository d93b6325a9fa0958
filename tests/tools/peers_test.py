#!/usr/bin/env python3
"""Runs bench/peers with Quire alone, on a tiny model, and looks at what it makes of made-up numbers.

    peers_test.py path/to/quire
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import tiny_gguf

QUIRE = None
RUN = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "peers" / "run.py"


def module():
    spec = importlib.util.spec_from_file_location("peers", RUN)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class Peers(unittest.TestCase):
    def run_it(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "tiny.gguf")
            model.write_bytes(tiny_gguf.tiny_gguf())
            return subprocess.run(
                [sys.executable, RUN, "--only", "quire", "--quire", QUIRE, "--model", model,
                 "--tokens", "3", "--threads", "1", *arguments], capture_output=True, text=True,
                timeout=300)

    def test_quire_alone_is_measured(self):
        common = ("--depths", "0,70", "--prompts", "64", "--rounds", "2")
        result = self.run_it(*common, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)["rows"]
        self.assertEqual([(row["mode"], row["kind"], row["tokens"]) for row in rows],
                         [(mode, *case) for mode in ("f16", "balanced")
                          for case in (("decode", 0), ("decode", 70), ("prompt", 64))])
        for row in rows:
            self.assertEqual(len(row["rounds"]), 2)
            self.assertGreater(row["tokens_per_second"], 0)
        result = self.run_it(*common, "--codec", "int8")
        self.assertIn("decode at 70", result.stdout)
        self.assertIn("int8", result.stdout)
        self.assertNotIn("ratio", result.stdout)

    def test_what_is_wrong_is_told(self):
        for part, *arguments in (("nobody", "--only", "nobody"), ("--depths", "--depths", "-1"),
                                 ("--prompts", "--prompts", "a"), ("--rounds", "--rounds", "0")):
            result = self.run_it(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(part, result.stderr)
        for part, *arguments in (("f17", "--codec", "f17"), ("no file", "--model", "/nothing"),
                                 ("no program", "--quire", "/nothing"),
                                 ("the model's context is 256", "--depths", "300")):
            result = self.run_it("--prompts", "64", *arguments)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(part, result.stderr)

    def test_the_ratio_is_over_the_best_peer(self):
        peers = module()
        programs = [types.SimpleNamespace(title=title, modes=modes) for title, modes in
                    (("llama.cpp", ("fa", "nofa")), ("ik_llama.cpp", ("fa",)),
                     ("quire", ("f16", "balanced")))]
        speeds = {("llama.cpp", "fa"): [1, 9, 30], ("llama.cpp", "nofa"): [10, 10, 11],
                  ("ik_llama.cpp", "fa"): [8, 8, 8], ("quire", "f16"): [99, 99, 99],
                  ("quire", "balanced"): [20, 25, 90]}
        found = {row + ("decode", 5): values for row, values in speeds.items()}
        arguments = types.SimpleNamespace(depths=[5], prompts=[], only=["llama", "ik", "quire"],
                                          threads=2, rounds=3)
        result = peers.report(found, programs, arguments)
        self.assertEqual(result["ratios"], [{"kind": "decode", "tokens": 5, "codec": "balanced",
                                             "best_peer": "llama.cpp nofa", "ratio": 2.5}])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: peers_test.py path/to/quire [unittest options]")
    QUIRE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
