#!/usr/bin/env python3
"""Runs the commands of `quire` that run a model, with a tiny one made for it.

    runner_test.py path/to/quire
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import tiny_gguf

QUIRE = None


class Runner(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "tiny.gguf")
        cls.text = os.path.join(cls.folder.name, "text")
        cls.plot = os.path.join(cls.folder.name, "plot.svg")
        pathlib.Path(cls.model).write_bytes(tiny_gguf.tiny_gguf())
        pathlib.Path(cls.text).write_text("".join(chr(32 + i * i % 90) for i in range(450)))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def quire(self, *arguments, **options):
        return subprocess.run([QUIRE, *arguments, "--model", self.model], capture_output=True,
                              text=True, timeout=600, **options)

    def succeed(self, *arguments, **options):
        result = self.quire(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def parsed(self, *arguments, **options):
        return json.loads(self.succeed(*arguments, "--json", **options).stdout)

    def assert_refused(self, status, part, *arguments, **options):
        result = self.quire(*arguments, **options)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn(part, result.stderr)


class Eval(Runner):
    def test_json_has_a_row_per_codec_and_f16_first(self):
        result = self.parsed("eval", "--text", self.text, "--context", "200", "--chunks", "9",
                             "--codec", "balanced,int8,fp8_e5m2/f16,f16", "--plot", self.plot)
        self.assertEqual(list(result), ["model", "weights", "attention", "context", "chunks",
                                        "predictions", "rows"])
        self.assertEqual((result["model"], result["weights"]), ("tiny", "f32"))
        self.assertEqual((result["context"], result["chunks"], result["predictions"]),
                         (200, 2, 200))
        rows = result["rows"]
        self.assertEqual([row["codec"] for row in rows],
                         ["f16", "balanced", "int8", "fp8_e5m2/f16"])
        for row in rows:
            self.assertEqual(list(row), [
                "codec", "ppl", "ppl_delta", "ppl_delta_se", "kld_mean", "kld_p99", "kld_p999",
                "top1", "bytes_per_token", "bits_per_value", "tokens_per_second"])
            self.assertGreater(row["tokens_per_second"], 0)
            self.assertAlmostEqual(row["ppl_delta"], row["ppl"] / rows[0]["ppl"] - 1)
            self.assertGreaterEqual(row["kld_p999"], row["kld_p99"])
        self.assertEqual([rows[0][name] for name in ("ppl_delta", "kld_mean", "top1")], [0, 0, 1])
        self.assertEqual(rows[0]["bits_per_value"], 16)
        self.assertEqual(rows[3]["bits_per_value"], 12)
        self.assertGreater(rows[1]["kld_mean"], rows[2]["kld_mean"])
        self.assertGreater(rows[2]["kld_mean"], 0)
        self.assert_plot(rows[1:])

    def assert_plot(self, rows):
        """The file is XML with a point and a name per row; fewer bits lie further left."""
        space = "{http://www.w3.org/2000/svg}"
        root = xml.etree.ElementTree.parse(self.plot).getroot()
        places = [float(circle.get("cx")) for circle in root.iter(space + "circle")]
        names = [text.text for text in root.iter(space + "text")]
        self.assertEqual(len(places), len(rows))
        for row in rows:
            self.assertIn(row["codec"], names)
        by_bits = sorted(range(len(rows)), key=lambda i: rows[i]["bits_per_value"])
        self.assertEqual(by_bits, sorted(range(len(rows)), key=lambda i: places[i]))

    def test_reference_attention_measures_the_same(self):
        common = ("eval", "--text", self.text, "--context", "200", "--codec", "fp8_e5m2")
        for own, reference in zip(self.parsed(*common)["rows"],
                                  self.parsed(*common, "--attention", "reference")["rows"]):
            self.assertAlmostEqual(own["ppl"] / reference["ppl"], 1, delta=1e-3)
            self.assertAlmostEqual(own["kld_mean"], reference["kld_mean"],
                                   delta=0.1 * own["kld_mean"] + 1e-12)

    def test_the_table_has_units_and_words_go_to_stderr(self):
        result = self.succeed("eval", "--text", self.text, "--context", "200", "--chunks", "1")
        for title in ("ppl delta", "KLD 99.9 %", "bytes/token", "bits/value", "tokens/s"):
            self.assertIn(title, result.stdout)
        self.assertIn("100 predictions in 1 chunks of 200 tokens", result.stdout)
        self.assertIn("eval: chunk 1 of 1, int8", result.stderr)
        self.assertNotIn("eval:", result.stdout)

    def test_wrong_values_are_named(self):
        common = ("eval", "--text", self.text)
        self.assert_refused(2, "--text", "eval")
        for option, value in (("--codec", "f17"), ("--context", "3"), ("--chunks", "0"),
                              ("--attention", "none"), ("--weights", "q1"), ("--threads", "0")):
            self.assert_refused(2, option, *common, option, value)
        self.assert_refused(1, "a text of 450 tokens has no chunk of 451", *common, "--context",
                            "451")
        self.assert_refused(1, "No such file", "eval", "--text", self.text + ".absent")


class Generate(Runner):
    def test_json_says_what_was_made_and_what_it_cost(self):
        result = self.parsed("generate", "Hello", "--max-tokens", "150")
        self.assertEqual(list(result), [
            "text", "stop", "prompt_tokens", "tokens", "first_token_seconds", "tokens_per_second",
            "codec", "cache_bytes", "bits_per_value"])
        self.assertEqual((result["prompt_tokens"], result["codec"]), (5, "f16"))
        self.assertEqual((result["stop"], result["tokens"]), ("length", 150))
        self.assertGreater(result["first_token_seconds"], 0)
        self.assertGreater(result["tokens_per_second"], 0)
        # Three pages of 64 tokens, 2 layers of one head of 64 channels, keys and values in f16.
        self.assertGreaterEqual(result["cache_bytes"], 3 * 64 * 2 * 64 * 2 * 2)
        self.assertGreaterEqual(result["bits_per_value"], 16)

    def test_text_goes_to_stdout_and_the_summary_to_stderr(self):
        text = self.parsed("generate", "Hello", "--max-tokens", "20")["text"]
        result = self.succeed("generate", "Hello", "--max-tokens", "20")
        self.assertEqual(result.stdout, text + "\n")
        self.assertIn("20 tokens after a prompt of 5 (length)", result.stderr)
        self.assertIn("bits per value", result.stderr)
        piped = self.succeed("generate", "-", "--max-tokens", "20", input="Hello")
        self.assertEqual(piped.stdout, result.stdout)

    def test_a_codec_makes_the_cache_smaller(self):
        common = ("generate", "Hello", "--max-tokens", "250")
        exact, coded = self.parsed(*common), self.parsed(*common, "--codec", "balanced")
        self.assertEqual((exact["tokens"], exact["stop"]), (250, "length"))
        self.assertLess(coded["cache_bytes"], exact["cache_bytes"])
        self.assertLess(coded["bits_per_value"], exact["bits_per_value"])

    def test_limits_hold(self):
        result = self.parsed("generate", "Hello", "--context", "30")
        self.assertEqual((result["tokens"], result["stop"]), (25, "length"))
        self.assertEqual(self.parsed("generate", "Hello", "--max-tokens", "999")["tokens"],
                         tiny_gguf.CONTEXT - 5)
        limit = 100 << 10
        result = self.parsed("generate", "Hello", "--memory-limit", f"{limit}b")
        self.assertEqual(result["stop"], "memory")
        self.assertLessEqual(result["cache_bytes"], limit)
        self.assertGreater(result["tokens"], 0)
        windowed = self.parsed("generate", "Hello", "--window", "64", "--max-tokens", "999")
        self.assertEqual(windowed["tokens"], 999)
        unlimited = self.parsed("generate", "Hello", "--max-tokens", "250")
        self.assertLess(windowed["cache_bytes"], unlimited["cache_bytes"])

    def test_a_seed_repeats_itself(self):
        common = ("generate", "Hello", "--max-tokens", "40", "--temperature", "1")
        texts = {seed: self.parsed(*common, "--seed", seed)["text"] for seed in ("1", "2")}
        self.assertNotEqual(texts["1"], texts["2"])
        self.assertEqual(texts["1"], self.parsed(*common, "--seed", "1")["text"])

    def test_failures_are_told(self):
        self.assert_refused(1, "the prompt has no tokens", "generate", "")
        self.assert_refused(1, "a prompt of 5 tokens leaves no room in 5", "generate", "Hello",
                            "--context", "5")
        self.assert_refused(1, "over_limit", "generate", "Hello", "--memory-limit", "1kb")
        # The tiny model has no chat template.
        self.assert_refused(1, "template", "generate", "Hello", "--chat")
        for option in ("--codec", "--window", "--memory-limit", "--max-tokens", "--weights"):
            self.assert_refused(2, option, "generate", "Hello", option, "none")

    def test_a_missing_model_is_told(self):
        environment = {**os.environ, "XDG_CACHE_HOME": self.folder.name}
        environment.pop("QUIRE_MODEL", None)
        for arguments, part in ((["generate", "a"], "fetch_model.py"),
                                (["generate", "a", "--model", self.text], "not a GGUF file"),
                                (["generate", "a", "--model", self.text + "x"], "cannot be opened")):
            result = subprocess.run([QUIRE, *arguments], capture_output=True, text=True,
                                    env=environment, timeout=60)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stdout, "")
            self.assertIn(part, result.stderr)
        environment["QUIRE_MODEL"] = self.model
        result = subprocess.run([QUIRE, "generate", "a", "--max-tokens", "3"], capture_output=True,
                                text=True, env=environment, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: runner_test.py path/to/quire [unittest options]")
    QUIRE = sys.argv.pop(1)
    unittest.main()
