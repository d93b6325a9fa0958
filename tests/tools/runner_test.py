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
        for option, value in (("--codec", "f17"), ("--context", "127"), ("--model", ""),
                              ("--chunks", "0"), ("--attention", "none"), ("--weights", "q1"),
                              ("--threads", "0")):
            self.assert_refused(2, option, *common, option, value)
        short = self.text + ".short"
        pathlib.Path(short).write_text("a" * 200)
        self.assert_refused(1, "a text of 200 tokens has no chunk of 201", "eval", "--text", short,
                            "--context", "201")
        self.assert_refused(1, "257 tokens, the model's context is 256", *common, "--context",
                            "257")
        self.assert_refused(1, "No such file", "eval", "--text", self.text + ".absent")
        self.assert_refused(1, "is a folder", "eval", "--text", self.folder.name)
        self.assert_refused(1, "is empty", "eval", "--text", "")
        broken = self.text + ".broken"
        pathlib.Path(broken).write_bytes(b"abc\xffd")
        self.assert_refused(1, "not UTF-8 at byte 4", "eval", "--text", broken)

    def test_a_plot_that_cannot_be_written_is_refused_at_once(self):
        for path in (self.folder.name, os.path.join(self.text, "file"), ""):
            result = self.quire("eval", "--text", self.text, "--context", "200", "--plot", path)
            self.assertEqual(result.returncode, 1)
            self.assertIn("writ", result.stderr)
            self.assertNotIn("chunk 1", result.stderr)


class Tune(Runner):
    """The tiny model has 2 layers of one head of 64 channels; the text has 450 tokens."""

    def file(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            pathlib.Path(path).write_text(content)
        return path

    def tune(self, *arguments):
        return ("tune", "--text", self.text, "--context", "150", *arguments)

    def test_the_file_is_what_was_found_and_eval_reads_it(self):
        path = self.file("bits.json")
        result = self.parsed(*self.tune("--budget-bits", "4", "--out", path))
        self.assertEqual(list(result), [
            "model", "weights", "context", "chunks", "predictions", "bits_per_value",
            "kld_predicted", "kld_measured", "file", "layers"])
        self.assertEqual((result["model"], result["weights"], result["context"],
                          result["chunks"], result["predictions"], result["file"]),
                         ("tiny", "f32", 150, 2, 150, path))
        self.assertLessEqual(result["bits_per_value"], 4)
        self.assertGreater(result["bits_per_value"], 3.5)
        self.assertEqual([layer["layer"] for layer in result["layers"]], [0, 1])
        self.assertAlmostEqual(result["kld_predicted"], sum(
            layer["key_kld"] + layer["value_kld"] for layer in result["layers"]))
        self.assertGreater(result["kld_measured"], 0)

        content = json.loads(pathlib.Path(path).read_text())
        self.assertEqual(content["layers"], [
            layer["key"] + "/" + layer["value"] for layer in result["layers"]])
        rows = self.parsed("eval", "--text", self.text, "--context", "150", "--codec",
                           f"small,@{path}")["rows"]
        self.assertEqual([row["codec"] for row in rows], ["f16", "small", "@" + path])
        self.assertEqual(rows[2]["bits_per_value"], result["bits_per_value"])
        self.assertGreater(rows[2]["kld_mean"], 0)
        written = self.parsed("generate", "Hello", "--max-tokens", "250", "--codec", "@" + path)
        self.assertEqual((written["codec"], written["tokens"]), ("@" + path, 250))
        exact = self.parsed("generate", "Hello", "--max-tokens", "250")
        self.assertLess(written["cache_bytes"], exact["cache_bytes"])

    def test_a_divergence_is_a_budget_too(self):
        path = self.file("kl.json")
        result = self.parsed(*self.tune("--budget-kl", "0", "--out", path, "--chunks", "3"))
        self.assertEqual((result["bits_per_value"], result["kld_predicted"]), (16, 0))
        self.assertIsNone(result["kld_measured"])  # no text is left
        self.assertEqual({(layer["key"], layer["value"]) for layer in result["layers"]},
                         {("f16", "f16")})

    def test_the_table_has_a_line_per_layer_and_words_go_to_stderr(self):
        path = self.file("table.json")
        result = self.succeed(*self.tune("--budget-kl", "0.01", "--out", path, "--chunks", "1"))
        self.assertIn("75 predictions in 1 chunks of 150 tokens", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^ +1 +\w+ +[\d.]+ +\S+ +\S+ +\w+ +[\d.]+ ")
        self.assertIn("measured on later text", result.stdout)
        self.assertIn(f"use it with --codec @{path}", result.stdout)
        self.assertIn("% chunk 1 of 1, layer 1 values", result.stderr)
        self.assertNotIn("tune:", result.stdout)

    def test_wrong_values_are_named(self):
        self.assert_refused(2, "budget", *self.tune())
        self.assert_refused(2, "budget", *self.tune("--budget-bits", "4", "--budget-kl", "1"))
        self.assert_refused(2, "--budget-bits", *self.tune("--budget-bits", "many"))
        self.assert_refused(2, "--budget-kl", *self.tune("--budget-kl", "-1"))
        self.assert_refused(2, "--text", "tune", "--budget-bits", "4")
        self.assert_refused(2, "--context", "tune", "--text", self.text, "--budget-bits", "4",
                            "--context", "127")
        self.assert_refused(1, "2 bits per value, the smallest codecs take 2.25",
                            *self.tune("--budget-bits", "2"))
        short = self.file("short", "a" * 200)
        self.assert_refused(1, "the text has 200 tokens",
                            "tune", "--text", short, "--budget-bits", "4", "--context", "201")
        self.assert_refused(1, "the model's context is 256",
                            "tune", "--text", self.text, "--budget-bits", "4", "--context", "257")
        for path in (os.path.join(self.text, "file"), self.folder.name):
            self.assert_refused(1, "cannot be written",
                                *self.tune("--budget-bits", "4", "--out", path))

    def test_a_file_that_does_not_fit_is_refused(self):
        common = (("eval", "--text", self.text, "--context", "150"), ("generate", "Hello"))
        wrong = {
            "absent.json": (None, 2, "No such file"),
            "text.json": ("codecs", 2, "not JSON"),
            "list.json": ("[]", 2, "an object with"),
            "unknown.json": ('{"version": 1, "layers": ["int8", "int9"]}', 2,
                             'layer 1: codec "int9"'),
            "long.json": ('{"version": 1, "layers": ["int8", "int8", "int8"]}', 1,
                          "codecs of 3 layers were given, the model has 2"),
        }
        for name, (content, status, part) in wrong.items():
            path = self.file(name, content)
            for arguments in common:
                self.assert_refused(status, part, *arguments, "--codec", "@" + path)


class Generate(Runner):
    def test_json_says_what_was_made_and_what_it_cost(self):
        result = self.parsed("generate", "Hello", "--max-tokens", "150")
        self.assertEqual(list(result), [
            "text", "stop", "prompt_tokens", "tokens", "drafted", "accepted",
            "first_token_seconds", "tokens_per_second", "codec", "cache_bytes", "bits_per_value"])
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

    def test_a_draft_changes_only_the_time(self):
        common = ("generate", "Hello", "--max-tokens", "200", "--codec", "balanced", "--weights",
                  "packed")
        plain = self.parsed(*common)
        self.assertEqual((plain["drafted"], plain["accepted"]), (0, 0))
        for tokens in ("1", "8"):
            drafted = self.parsed(*common, "--draft", "lookup", "--draft-tokens", tokens)
            self.assertEqual(drafted["text"], plain["text"])
            self.assertGreater(drafted["drafted"], 0)
            self.assertLessEqual(drafted["accepted"], drafted["drafted"])
        told = self.succeed(*common, "--draft", "lookup").stderr
        self.assertIn(f"{drafted['accepted']} of {drafted['drafted']} guesses right", told)

    def test_memory_is_reported(self):
        arguments = ("generate", "Hello", "--max-tokens", "100", "--memory-report")
        result = self.parsed(*arguments)
        memory = result["memory"]
        self.assertEqual(list(memory), ["peak_bytes", "without_cache_bytes", "cache_stats_bytes",
                                        "cache_resident_bytes"])
        self.assertGreaterEqual(memory["peak_bytes"], memory["without_cache_bytes"])
        self.assertGreaterEqual(memory["cache_stats_bytes"], result["cache_bytes"] * 9 // 10)
        self.assertIn("as measured", self.succeed(*arguments).stderr)
        self.assertNotIn("memory", self.parsed(*arguments[:-1]))

    def test_failures_are_told(self):
        self.assert_refused(1, "the prompt has no tokens", "generate", "")
        self.assert_refused(1, "a prompt of 5 tokens leaves no room in 5", "generate", "Hello",
                            "--context", "5")
        self.assert_refused(1, "over_limit", "generate", "Hello", "--memory-limit", "1kb")
        # The tiny model has no chat template.
        self.assert_refused(1, "template", "generate", "Hello", "--chat")
        for option in ("--codec", "--window", "--memory-limit", "--max-tokens", "--weights",
                       "--draft-tokens"):
            self.assert_refused(2, option, "generate", "Hello", option, "none")
        self.assert_refused(2, "--draft", "generate", "Hello", "--draft", "model")
        self.assert_refused(2, "--draft", "generate", "Hello", "--draft-tokens", "4")
        for size in ("-5", "0", "1.5MiB", "5XiB", "99999999999999999999", "20000000TiB"):
            self.assert_refused(2, f'"{size}" is not a size', "generate", "Hello",
                                f"--memory-limit={size}")
        for seed in ("-1", "x", "99999999999999999999"):
            self.assert_refused(2, f'"{seed}" is not a whole number', "generate", "Hello",
                                f"--seed={seed}")
        self.assert_refused(1, "257 tokens, the model's context is 256", "generate", "Hello",
                            "--context", "257")
        self.assert_refused(1, "the prompt: not UTF-8 at byte 2", "generate", b"a\xff")

    def test_sizes_may_be_written_in_several_ways(self):
        for size in ("1048576", "1024k", "1024KiB", "1m", "1MB", "1mib"):
            self.assertEqual(self.parsed("generate", "Hello", "--max-tokens", "3",
                                         "--memory-limit", size)["tokens"], 3)

    def test_a_cache_folder_that_cannot_be_made_is_told(self):
        environment = {**os.environ, "XDG_CACHE_HOME": os.path.join(self.text, "x")}
        environment.pop("QUIRE_MODEL", None)
        result = subprocess.run([QUIRE, "generate", "a"], capture_output=True, text=True,
                                env=environment, timeout=600)
        self.assertEqual(result.returncode, 1)
        self.assertIn("Not a directory", result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_a_missing_model_is_told(self):
        # A registry that has nothing, so that fetching fails at once.
        environment = {**os.environ, "XDG_CACHE_HOME": self.folder.name, "PIP_NO_INDEX": "1"}
        environment.pop("QUIRE_MODEL", None)
        missing = (f"no model at {self.folder.name}/quire/", "it could not be fetched",
                   "--model FILE")
        for arguments, parts in ((["generate", "a"], missing), (["chat"], missing),
                                 (["generate", "a", "--model", self.text], ["not a GGUF file"]),
                                 (["generate", "a", "--model", self.text + "x"],
                                  ["cannot be opened"])):
            result = subprocess.run([QUIRE, *arguments], capture_output=True, text=True,
                                    env=environment, timeout=600)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stdout, "")
            for part in parts:
                self.assertIn(part, result.stderr)
        environment["QUIRE_MODEL"] = self.text + ".absent"
        result = subprocess.run([QUIRE, "generate", "a"], capture_output=True, text=True,
                                env=environment, timeout=600)
        self.assertEqual(result.returncode, 1)
        self.assertIn("which QUIRE_MODEL names", result.stderr)
        environment["QUIRE_MODEL"] = self.model
        result = subprocess.run([QUIRE, "generate", "a", "--max-tokens", "3"], capture_output=True,
                                text=True, env=environment, timeout=600)
        self.assertEqual(result.returncode, 0, result.stderr)


class BenchModel(Runner):
    COMMON = ("bench", "model", "--quick", "--codec", "f16,balanced", "--depths", "0,70",
              "--prompts", "64,100", "--tokens", "3", "--rounds", "2")

    def test_json_has_a_row_per_case_and_codec(self):
        result = self.parsed(*self.COMMON)
        self.assertEqual(list(result), ["machine", "model", "rows"])
        self.assertGreater(result["machine"]["read_gbps"], 0)
        self.assertEqual([(row["kind"], row["tokens"], row["codec"]) for row in result["rows"]],
                         [(kind, tokens, codec)
                          for kind, tokens in (("prompt", 64), ("prompt", 100), ("decode", 0),
                                               ("decode", 70))
                          for codec in ("f16", "balanced")])
        for row in result["rows"]:
            self.assertEqual(list(row), ["kind", "tokens", "codec", "weights", "threads",
                                         "tokens_per_second", "ms", "bytes", "gbps", "floor_ms",
                                         "efficiency"])
            self.assertAlmostEqual(row["tokens_per_second"] * row["ms"], 1000)
            if row["kind"] == "prompt":
                self.assertIsNone(row["floor_ms"])
            else:
                self.assertAlmostEqual(row["efficiency"], row["floor_ms"] / row["ms"])
                self.assertAlmostEqual(row["gbps"], row["bytes"] / row["ms"] / 1e6)

    def test_a_token_reads_the_matrices_and_what_it_sees(self):
        rows = {(row["tokens"], row["codec"]): row["bytes"]
                for row in self.parsed(*self.COMMON)["rows"] if row["kind"] == "decode"}
        matrices = sum(4 * shape[0] * shape[1] for shape in tiny_gguf.tensors().values()
                       if len(shape) == 2)
        # On average 2 and 72 tokens; 2 layers of a head of 64 channels, keys and values in f16.
        token = 2 * 64 * 2 * 2
        self.assertEqual(rows[0, "f16"], matrices + 2 * token)
        self.assertEqual(rows[70, "f16"], matrices + 72 * token)
        self.assertEqual(rows[0, "balanced"], rows[0, "f16"])
        self.assertLess(rows[70, "balanced"], rows[70, "f16"])

    def serve(self, text):
        return self.quire("bench", "model", "--serve", "--codec", "f16,int8", input=text)

    def test_it_times_what_it_is_told(self):
        result = self.serve("1 2 3 4 5 6 7 8\nfeed f16 6\nfeed f16 6\ncut f16 5\ndecode f16 3\n"
                            "decode int8 2\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        ready, first, again, cut, decode, other = result.stdout.splitlines()
        self.assertEqual((ready, float(cut)), ("ready", 0))
        for seconds in (first, again, decode, other):
            self.assertGreater(float(seconds), 0)

    def test_failures_are_told(self):
        for text, part in (("", "token ids"), ("1 b\n", "token ids"),
                           ("1 2\nfeed f32 1\n", "feed f32 1"), ("1 2\njump f16 1\n", "jump"),
                           ("1 2\nfeed f16\n", "feed f16"), ("1 2\nfeed f16 3\n", "3 tokens"),
                           ("1 99999\nfeed f16 2\n", "99999"),
                           ("1 " * 257 + "\n", "257 tokens, the model's context is 256")):
            result = self.serve(text)
            self.assertEqual(result.returncode, 1)
            self.assertIn(part, result.stderr)
        self.assert_refused(1, "tokens, the model's context is 256", "bench", "model")
        for option, value in (("--codec", "f17"), ("--depths", "-1"), ("--prompts", "0"),
                              ("--tokens", "0"), ("--rounds", "x"), ("--weights", "q1")):
            self.assert_refused(2, option, "bench", "model", option, value)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: runner_test.py path/to/quire [unittest options]")
    QUIRE = sys.argv.pop(1)
    unittest.main()
