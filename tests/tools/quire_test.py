#!/usr/bin/env python3
"""Runs the program `quire` as its users do: what it prints, where, and how it exits.

    quire_test.py path/to/quire
"""
import itertools
import json
import os
import subprocess
import sys
import unittest

QUIRE = None
CODECS = ["f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "tq6", "tq5", "tq4", "tq3", "tq2",
          "dual6", "dual5", "dual4", "dual3", "q8_0", "q4_0"]
KEYS_ONLY = ["dual6", "dual5", "dual4", "dual3"]
PRESETS = {"safe": "dual6/tq5", "balanced": "dual4/tq4", "small": "dual4/tq3", "tiny": "dual3/tq3"}
# What encodes keys and values, by itself or as a pair.
WHOLE = [codec for codec in CODECS if codec not in KEYS_ONLY] + [*PRESETS.values(), "dual5/tq4"]


def quire(*arguments, **options):
    return subprocess.run([QUIRE, *arguments], capture_output=True, text=True, timeout=600,
                          **options)


def key_table_of_the_readme():
    """Numbers behind each codec of "What codes do to keys alone": bits, mse and divergences."""
    rows = {}
    with open(os.path.join(os.path.dirname(__file__), "../../README.md"), encoding="utf-8") as file:
        table = itertools.dropwhile(lambda line: not line.startswith("| keys | bits | mse |"), file)
        for line in itertools.takewhile(str.strip, table):
            codec, *numbers = (cell.strip() for cell in line.strip().strip("|").split("|"))
            if codec in CODECS:
                rows[codec] = [float(number) for number in numbers]
    return rows


class Program(unittest.TestCase):
    def succeed(self, *arguments):
        result = quire(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout)
        return result.stdout

    def parsed(self, *arguments):
        return json.loads(self.succeed(*arguments, "--json"))

    def assert_positive(self, number):
        self.assertIsInstance(number, (int, float))
        self.assertNotIsInstance(number, bool)
        self.assertGreater(number, 0)

    def assert_refused(self, command, option, values):
        for value in values:
            with self.subTest(option=option, value=value):
                result = quire(*command, option, value)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
                self.assertIn(option, result.stderr)
                self.assertIn(f'"{value.split(",")[-1]}"', result.stderr)


class Usage(Program):
    def test_wrong_usage_exits_2_and_leaves_stdout_empty(self):
        for arguments in ([], ["nothing"], ["--wrong"], ["info", "--wrong"], ["info", "extra"],
                          ["demo", "--wrong"], ["bench"], ["bench", "nothing"],
                          ["bench", "manage", "--wrong"], ["bench", "manage", "--quick=maybe"],
                          ["bench", "attention", "--wrong"], ["bench", "attention", "extra"],
                          ["bench", "put", "--wrong"], ["bench", "put", "--full"],
                          ["bench", "codec", "--wrong"], ["bench", "codec", "--full"]):
            with self.subTest(arguments=arguments):
                result = quire(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
                self.assertIn("Usage: quire", result.stderr)

    def test_an_unknown_instruction_set_is_refused(self):
        result = subprocess.run([QUIRE, "info"], capture_output=True, text=True, timeout=60,
                                env={**os.environ, "QUIRE_ISA": "AVX2"})
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "")
        self.assertIn("QUIRE_ISA=AVX2: found here are scalar", result.stderr)

    def test_a_wrong_argument_is_named(self):
        self.assertIn("nothing", quire("nothing").stderr)
        self.assertIn("--wrong", quire("bench", "manage", "--wrong").stderr)

    def test_help_is_data(self):
        for arguments in (["--help"], ["info", "--help"], ["demo", "--help"], ["bench", "--help"],
                          ["bench", "manage", "--help"], ["bench", "attention", "--help"],
                          ["bench", "put", "--help"], ["bench", "codec", "--help"]):
            with self.subTest(arguments=arguments):
                self.assertIn("Usage: quire", self.succeed(*arguments))

    def test_version_is_that_of_info(self):
        self.assertIn(self.parsed("info")["version"], self.succeed("--version"))

    def test_stdout_that_cannot_be_written_is_a_failure(self):
        for arguments in (["info"], ["info", "--json"], ["--help"]):
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                result = subprocess.run([QUIRE, *arguments], stdout=full, stderr=subprocess.PIPE,
                                        text=True, timeout=60)
                self.assertEqual(result.returncode, 1)
                self.assertTrue(result.stderr)


class Info(Program):
    def test_json_has_every_field(self):
        info = self.parsed("info")
        self.assertEqual(list(info), ["version", "commit", "compiler", "isas_found", "isa_chosen",
                                      "codecs"])
        self.assertRegex(info["version"], r"^\d+\.\d+\.\d+$")
        self.assertIn(info["isa_chosen"], info["isas_found"])
        self.assertEqual(info["codecs"], CODECS)

    def test_the_table_says_the_same(self):
        table = self.succeed("info")
        info = self.parsed("info")
        for value in (info["version"], info["commit"], info["compiler"], *info["codecs"]):
            self.assertIn(value, table)


class Demo(Program):
    @classmethod
    def setUpClass(cls):
        result = quire("demo", "--json")
        cls.facts = json.loads(result.stdout)

    def test_the_fork_shares_the_prompt(self):
        sharing = self.facts["sharing"]
        whole_pages = sharing["prompt_tokens"] // 64
        for sequence in sharing["sequences"]:
            self.assertEqual(sequence["pages_shared"], whole_pages)
        forked, apart = sharing["caches"]
        self.assertEqual(forked["pages_shared"], whole_pages)
        self.assertEqual(apart["pages_shared"], 0)
        self.assertEqual(forked["pages_used"], apart["pages_used"] - whole_pages)
        self.assertLess(forked["bytes"], apart["bytes"])

    def test_a_window_keeps_what_it_must_and_no_more(self):
        window = self.facts["window"]
        causal, narrow, wide = window["layers"]
        self.assertEqual(causal["tokens_held"], window["tokens"])
        self.assertEqual(narrow["tokens_held"], window["window"] + window["rollback"])
        self.assertEqual(wide["tokens_held"], 4 * window["window"] + window["rollback"])
        self.assertEqual(narrow["first_position"] + narrow["tokens_held"], window["tokens"])
        self.assertEqual([row["can_resume"] for row in window["resume"]], ["exact", "exact", "no"])

    def test_every_codec_has_its_bytes_and_its_error(self):
        rows = {row["codec"]: row for row in self.facts["codecs"]["rows"]}
        self.assertEqual(list(rows), WHOLE)
        self.assertEqual(rows["f32"]["relative_error"], 0)
        self.assertEqual(rows["f16"]["bytes_per_token"], 4096)
        for codec, bound in (("f16", 1e-3), ("bf16", 1e-2), ("int8", 2e-2), ("fp8_e4m3", 1e-1),
                             ("fp8_e5m2", 2e-1), ("q8_0", 2e-2), ("tq6", 5e-2), ("tq4", 2e-1),
                             ("tq2", 7e-1), ("dual6/tq5", 1e-1), ("dual4/tq4", 2e-1)):
            self.assertGreater(rows[codec]["relative_error"], 0)
            self.assertLess(rows[codec]["relative_error"], bound)

    def test_refused_steps_leave_everything_untouched(self):
        refusal = self.facts["refusal"]
        self.assertEqual([row["error"] for row in refusal["refused"]],
                         ["over_limit", "non_finite", "wrong_state"])
        self.assertTrue(refusal["unchanged"])
        before, *others = refusal["states"]
        for after in (others[0], others[-1]):
            self.assertEqual({**after, "when": ""}, {**before, "when": ""})

    def test_the_tour_has_four_parts(self):
        tour = self.succeed("demo")
        for title in ("1. Sharing", "2. Windows", "3. Codecs", "4. A refused step"):
            self.assertIn(title, tour)
        self.assertIn("before and after: the same", tour)

    def test_every_run_shows_the_same(self):
        self.assertEqual(self.parsed("demo"), self.facts)


class BenchManage(Program):
    def test_json_has_machine_and_rows(self):
        result = self.parsed("bench", "manage", "--quick")
        self.assertEqual(list(result), ["machine", "rows"])
        for field in ("cpu", "cores", "isa", "compiler"):
            self.assertTrue(result["machine"][field])
        for row in result["rows"]:
            self.assertEqual(list(row), ["op", "sequences", "pages", "us"])
            self.assertGreater(row["us"], 0)
        measured = {(row["op"], row["sequences"], row["pages"]) for row in result["rows"]}
        expected = {("begin_commit", sequences, pages)
                    for sequences in (1, 16, 64) for pages in (1000, 100000)}
        expected |= {(op, 1, pages)
                     for op in ("fork", "truncate", "remove") for pages in (1000, 100000)}
        expected.add(("fork_long", 1, 100000))
        self.assertEqual(measured, expected)
        self.assertEqual(len(result["rows"]), len(expected))

    def test_the_table_has_units_and_words_go_to_stderr(self):
        result = quire("bench", "manage", "--quick")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("us at 100,000 pages", result.stdout)
        self.assertNotIn("filling", result.stdout)
        self.assertIn("filling", result.stderr)


class BenchAttention(Program):
    QUICK = ("bench", "attention", "--quick")
    RATES = ["read_gbps", "fma_f32_gmacs", "dot_bf16_gmacs", "dot16_gmacs", "dot8_gmacs"]

    def rows(self, *arguments):
        return self.parsed(*self.QUICK, *arguments)["rows"]

    def assert_rates(self, rates, isa):
        for field in self.RATES:
            absent = isa == "scalar" and field.startswith("dot")
            absent = absent or isa == "avx2" and field == "dot_bf16_gmacs"
            if absent:
                self.assertIsNone(rates[field])
            else:
                self.assert_positive(rates[field])

    def test_json_has_machine_and_rows(self):
        result = self.parsed(*self.QUICK)
        self.assertEqual(list(result), ["machine", "rows"])
        machine = result["machine"]
        isa = machine["isa"]
        self.assertEqual(isa, self.parsed("info")["isa_chosen"])
        self.assert_rates(machine, isa)
        for rates in machine["measured"]:
            self.assertEqual(list(rates), ["threads", *self.RATES])
            self.assert_rates(rates, isa)
        for row in result["rows"]:
            self.assertEqual(list(row), [
                "shape", "context", "threads", "codec", "isa", "queries", "layers", "us", "pass_us",
                "bytes", "gbps", "read_gbps", "gflops", "floor_us", "efficiency"])
            self.assertEqual(row["isa"], isa)
            for field in ("context", "threads", "queries", "layers", "bytes"):
                self.assertIsInstance(row[field], int)
            for field in row.keys() - {"shape", "codec", "isa"}:
                self.assert_positive(row[field])
            self.assertAlmostEqual(row["efficiency"], row["floor_us"] / row["us"])
            self.assertAlmostEqual(row["gbps"], row["bytes"] / row["us"] / 1e3)
            self.assertLessEqual(row["read_gbps"], machine["read_gbps"])
            self.assertGreaterEqual(row["floor_us"] * 1.0001, row["bytes"] / row["read_gbps"] / 1e3)
        decode = [row["codec"] for row in result["rows"] if row["queries"] == 1]
        prefill = [row["codec"] for row in result["rows"] if row["queries"] > 1]
        self.assertEqual(decode, ["f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "tq6", "tq5",
                                  "tq4", "tq3", "tq2", "dual6/tq5", "dual5/tq4", "dual4/tq4",
                                  "dual3/tq3"])
        self.assertEqual(prefill, ["f16", "bf16", "int8", "fp8_e4m3", "tq4", "dual4/tq4"])

    def test_every_instruction_set_has_its_rates(self):
        for isa in self.parsed("info")["isas_found"]:
            result = quire(*self.QUICK, "--json", "--queries", "1", "--codec", "f16,bf16,int8",
                           env={**os.environ, "QUIRE_ISA": isa})
            self.assertEqual(result.returncode, 0, result.stderr)
            machine = json.loads(result.stdout)["machine"]
            self.assertEqual(machine["isa"], isa)
            self.assert_rates(machine, isa)

    def test_bytes_and_operations_are_those_that_queries_see(self):
        row, = self.rows("--shape", "4/2/64", "--context", "200", "--queries", "1",
                         "--codec", "f16/f16", "--threads", "1")
        self.assertEqual(row["codec"], "f16")
        self.assertEqual(row["bytes"], 200 * 2 * 2 * 64 * 2)
        self.assertAlmostEqual(row["gflops"] * row["us"] * 1e3, 2 * 2 * 200 * 4 * 64, delta=1)
        row, = self.rows("--shape", "4/2/64", "--context", "200", "--queries", "3",
                         "--codec", "fp8_e4m3/f16", "--threads", "1")
        self.assertEqual(row["codec"], "fp8_e4m3/f16")
        # The last query sees 3 pages of 64 tokens sealed, and 8 tokens as rows of f16.
        self.assertEqual(row["bytes"], (3 * 64 * (1 + 2) + 8 * (2 + 2)) * 2 * 64)
        self.assertAlmostEqual(row["gflops"] * row["us"] * 1e3,
                               2 * 2 * (198 + 199 + 200) * 4 * 64, delta=1)

    def test_options_narrow_the_run(self):
        result = self.parsed(*self.QUICK, "--shape", "8/8/32,4/2/64", "--context", "64,130",
                             "--codec", "int8,int8/f16", "--threads", "1,2", "--queries", "1,5")
        measured = [(row["shape"], row["queries"], row["context"], row["codec"], row["threads"])
                    for row in result["rows"]]
        self.assertEqual(measured, list(itertools.product(
            ["8/8/32", "4/2/64"], [1, 5], [64, 130], ["int8", "int8/f16"], [1, 2])))
        self.assertEqual([rates["threads"] for rates in result["machine"]["measured"]], [1, 2])

    def test_the_floor_of_a_pair_adds_up_its_sides(self):
        # Prefill multiplies longer than it reads, so that the floor is that of the multiply-adds.
        result = self.parsed(*self.QUICK, "--threads", "1", "--context", "512", "--queries", "512",
                             "--shape", "32/1/64", "--codec",
                             "f16,int8,tq4,q4_0,q8_0,bf16,dual4/tq4,int8/tq4")
        machine, = result["machine"]["measured"]
        fma = machine["fma_f32_gmacs"]
        rates = {"f16": fma, "q8_0": fma, "bf16": machine["dot_bf16_gmacs"] or fma,
                 "int8": machine["dot16_gmacs"] or fma}
        for codec in ("tq4", "q4_0", "dual4"):
            rates[codec] = machine["dot8_gmacs"] or fma
        macs = 512 * 513 / 2 * 32 * 64
        for row in result["rows"]:
            key, value = (row["codec"] + "/" + row["codec"]).split("/")[:2]
            multiply_us = (macs / rates[key] + macs / rates[value]) / 1e3
            read_us = row["bytes"] / machine["read_gbps"] / 1e3
            with self.subTest(codec=row["codec"]):
                self.assertAlmostEqual(row["floor_us"] / max(multiply_us, read_us), 1, places=6)
                self.assertGreater(multiply_us, read_us)

    def test_presets_are_pairs(self):
        rows = self.rows("--queries", "1", "--threads", "1", "--codec", ",".join(PRESETS))
        self.assertEqual([row["codec"] for row in rows], list(PRESETS.values()))

    def test_all_threads_are_the_cores(self):
        result = self.parsed(*self.QUICK, "--threads", "all", "--queries", "1", "--codec", "f16")
        self.assertEqual({row["threads"] for row in result["rows"]}, {result["machine"]["cores"]})

    def test_wrong_values_are_named(self):
        for option, values in (
                ("--shape", ["", "32/8", "9/4/64", "a/b/c", "32/0/128", "9/3/64,no"]),
                ("--context", ["", "0", "-1", "4k", "1.5", "99999999999999999999", "64,x"]),
                ("--codec", ["", "f17", "f16/", "f16/f16/f16", "f16,F16"]),
                ("--threads", ["", "0", "none", "1,2.0"]),
                ("--queries", ["", "0", "many"])):
            self.assert_refused(self.QUICK, option, values)
        self.assertEqual(quire(*self.QUICK, "--codec").returncode, 2)

    def test_more_queries_than_context_are_left_out(self):
        result = quire(*self.QUICK, "--context", "32", "--queries", "64")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "")
        self.assertIn("64 queries are more than a context of 32", result.stderr)
        rows = self.rows("--context", "32", "--queries", "1,64", "--codec", "f16")
        self.assertEqual([row["queries"] for row in rows], [1])

    def test_codecs_that_take_no_such_heads_are_left_out(self):
        rows = self.rows("--shape", "4/2/48", "--queries", "1", "--codec", "f16,q4_0,int8")
        self.assertEqual([row["codec"] for row in rows], ["f16", "int8"])
        result = quire(*self.QUICK, "--shape", "4/2/48", "--codec", "q8_0")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "")
        self.assertIn("q8_0 takes no keys of 48 channels", result.stderr)

    def test_the_table_has_units_and_words_go_to_stderr(self):
        result = quire(*self.QUICK, "--codec", "f16")
        self.assertEqual(result.returncode, 0, result.stderr)
        for title in ("read GB/s", "us per layer", "GFLOP/s", "efficiency"):
            self.assertIn(title, result.stdout)
        self.assertNotIn("bench attention", result.stdout)
        self.assertIn("bench attention: 9/3/64, context 256, f16, 1 query", result.stderr)


class BenchPut(Program):
    QUICK = ("bench", "put", "--quick")

    def test_json_has_machine_and_rows(self):
        result = self.parsed(*self.QUICK)
        self.assertEqual(list(result), ["machine", "rows"])
        self.assertEqual([row["codec"] for row in result["rows"]], WHOLE)
        for row in result["rows"]:
            self.assertEqual(list(row), ["codec", "layers", "threads", "gbps", "memcpy_gbps",
                                         "ratio"])
            self.assertEqual(row["threads"], result["machine"]["cores"])
            for field in row.keys() - {"codec"}:
                self.assert_positive(row[field])
            self.assertAlmostEqual(row["ratio"], row["gbps"] / row["memcpy_gbps"])

    def test_codecs_narrow_the_run(self):
        rows = self.parsed(*self.QUICK, "--codec", "int8/f16,bf16")["rows"]
        self.assertEqual([row["codec"] for row in rows], ["int8/f16", "bf16"])

    def test_wrong_codecs_are_named(self):
        self.assert_refused(self.QUICK, "--codec", ["", "f17", "f16/", "f16,no", "dual4"])
        self.assertIn("codecs: f32 f16", quire(*self.QUICK, "--codec", "f17").stderr)
        self.assertIn("presets: safe", quire(*self.QUICK, "--codec", "f17").stderr)
        self.assertIn("write dual4/tq4", quire(*self.QUICK, "--codec", "dual4").stderr)

    def test_the_table_has_units_and_words_go_to_stderr(self):
        result = quire(*self.QUICK, "--codec", "f16")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("memcpy GB/s", result.stdout)
        self.assertNotIn("bench put", result.stdout)
        self.assertIn("bench put: f16", result.stderr)


class BenchCodec(Program):
    QUICK = ("bench", "codec", "--quick")
    # Bytes of a token and KV head: codes and scales.
    BYTES = {64: {"f32": 256, "f16": 128, "bf16": 128, "fp8_e4m3": 64, "fp8_e5m2": 64, "int8": 66,
                  "tq6": 50, "tq5": 42, "tq4": 34, "tq3": 26, "tq2": 18, "dual6": 54, "dual5": 46,
                  "dual4": 38, "dual3": 30, "q8_0": 68, "q4_0": 36},
             128: {"f32": 512, "f16": 256, "bf16": 256, "fp8_e4m3": 128, "fp8_e5m2": 128,
                   "int8": 130, "tq6": 98, "tq5": 82, "tq4": 66, "tq3": 50, "tq2": 34,
                   "dual6": 106, "dual5": 90, "dual4": 74, "dual3": 58, "q8_0": 136, "q4_0": 72}}
    KL = ["kl_gaussian", "kl_biased", "kl_uneven"]

    @classmethod
    def setUpClass(cls):
        cls.result = json.loads(quire(*cls.QUICK, "--json").stdout)
        cls.by_case = {(row["codec"], row["side"], row["head_dim"]): row
                       for row in cls.result["rows"]}

    def test_json_has_machine_and_rows(self):
        self.assertEqual(list(self.result), ["machine", "rows"])
        for field in ("cpu", "cores", "isa", "compiler"):
            self.assertTrue(self.result["machine"][field])
        self.assertEqual([(row["codec"], row["head_dim"], row["side"])
                          for row in self.result["rows"]],
                         [(codec, dim, side) for codec in CODECS for dim in (64, 128)
                          for side in ("key", "value")
                          if side == "key" or codec not in KEYS_ONLY])
        for row in self.result["rows"]:
            self.assertEqual(list(row), [
                "codec", "side", "head_dim", "sealed_bits", "true_bits", "mse", "bias", "variance",
                *self.KL, "encode_gbps", "decode_gbps", "bytes_per_token"])
            for field in ("sealed_bits", "true_bits", "encode_gbps", "decode_gbps",
                          "bytes_per_token"):
                self.assert_positive(row[field])
            for field in self.KL:
                if row["side"] == "value":
                    self.assertIsNone(row[field])
                else:
                    self.assertIsInstance(row[field], float)

    def test_bytes_are_those_of_the_format(self):
        for row in self.result["rows"]:
            with self.subTest(codec=row["codec"], side=row["side"], dim=row["head_dim"]):
                expected = self.BYTES[row["head_dim"]][row["codec"]]
                self.assertEqual(row["bytes_per_token"], expected)
                self.assertEqual(row["sealed_bits"], 8 * expected / row["head_dim"])
                self.assertGreater(row["true_bits"], row["sealed_bits"])

    def test_errors_are_those_of_the_bits(self):
        for dim in (64, 128):
            self.assertEqual(self.by_case["f32", "key", dim]["mse"], 0)
            self.assertEqual(self.by_case["f32", "value", dim]["variance"], 0)
            for side in ("key", "value"):
                for family in ("tq", "dual"):
                    errors = [self.by_case[f"{family}{bits}", side, dim]["mse"]
                              for bits in (3, 4, 5, 6) if family == "tq" or side == "key"]
                    self.assertEqual(errors, sorted(errors, reverse=True))
            # The scale of keys makes their inner products right, that of values their error small.
            self.assertLess(abs(self.by_case["tq2", "key", dim]["bias"]), 0.01)
            self.assertLess(self.by_case["tq2", "value", dim]["bias"], -0.08)
            self.assertLess(self.by_case["tq2", "value", dim]["mse"],
                            self.by_case["tq2", "key", dim]["mse"])
            # A large bias of all keys costs a codec that has only a scale per token most of its bits.
            self.assertGreater(self.by_case["tq4", "key", dim]["kl_biased"],
                               10 * self.by_case["dual4", "key", dim]["kl_biased"])

    def test_numbers_but_those_of_speed_are_the_same_on_every_run(self):
        again = self.parsed(*self.QUICK, "--codec", "tq4,dual4", "--head-dim", "64")["rows"]
        self.assertEqual(len(again), 3)
        for row in again:
            expected = dict(self.by_case[row["codec"], row["side"], 64])
            for found in (row, expected):
                del found["encode_gbps"], found["decode_gbps"]
            self.assertEqual(row, expected)

    def assert_near(self, found, expected, part):
        self.assertAlmostEqual(found, expected, delta=part * abs(expected))

    def test_whole_runs_give_the_numbers_of_theory_and_of_the_readme(self):
        rows = self.parsed("bench", "codec", "--codec", "q8_0,tq4,dual4", "--head-dim", "64")["rows"]
        by_case = {(row["codec"], row["side"]): row for row in rows}
        for codec in ("q8_0", "tq4", "dual4"):
            row = by_case[codec, "key"]
            bits, *expected = key_table_of_the_readme()[codec]
            self.assertEqual(row["sealed_bits"], bits)
            for field, number in zip(("mse", *self.KL), expected, strict=True):
                with self.subTest(codec=codec, field=field):
                    self.assert_near(row[field], number, 0.1)  # the table has two digits
        # What tq4 makes of 64 channels that are normal numbers.
        for side, mse in (("key", 0.00895), ("value", 0.00886)):
            row = by_case["tq4", side]
            self.assert_near(row["mse"], mse, 0.02)
            self.assert_near(row["variance"], mse, 0.04)
        # The smallest error is at a right angle to what is stored, so that values lose its square.
        self.assertLess(abs(by_case["tq4", "key"]["bias"]), 2e-4)
        self.assert_near(by_case["tq4", "value"]["bias"], -0.00886, 0.02)

    def test_keys_of_tq_have_no_bias(self):
        for dim in (64, 128):
            for bits in (2, 3, 4, 5, 6):
                row = self.by_case[f"tq{bits}", "key", dim]
                self.assertLess(abs(row["bias"]), 0.01 * row["mse"] ** 0.5, f"{bits} bits, {dim}")

    def test_options_narrow_the_run(self):
        rows = self.parsed(*self.QUICK, "--codec", "dual3,int8", "--head-dim", "32,80")["rows"]
        self.assertEqual([(row["codec"], row["head_dim"], row["side"]) for row in rows], [
            ("dual3", 32, "key"), ("dual3", 80, "key"), ("int8", 32, "key"), ("int8", 32, "value"),
            ("int8", 80, "key"), ("int8", 80, "value")])

    def test_wrong_values_are_named(self):
        self.assert_refused(self.QUICK, "--codec", ["", "f17", "f16/f16", "balanced", "f16,no"])
        self.assert_refused(self.QUICK, "--head-dim", ["", "0", "7", "5000", "64,x"])
        result = quire(*self.QUICK, "--codec", "q8_0", "--head-dim", "80")
        self.assertEqual(result.returncode, 1)
        self.assertIn("q8_0 takes no keys of 80 channels", result.stderr)

    def test_the_table_has_units_and_words_go_to_stderr(self):
        result = quire(*self.QUICK, "--codec", "tq4", "--head-dim", "64")
        self.assertEqual(result.returncode, 0, result.stderr)
        for title in ("sealed bits", "KL biased", "encode GB/s"):
            self.assertIn(title, result.stdout)
        self.assertNotIn("bench codec", result.stdout)
        self.assertIn("bench codec: tq4, key, head size 64", result.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: quire_test.py path/to/quire [unittest options]")
    QUIRE = sys.argv.pop(1)
    unittest.main()
