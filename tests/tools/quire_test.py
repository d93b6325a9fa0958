#!/usr/bin/env python3
"""Runs the program `quire` as its users do: what it prints, where, and how it exits.

    quire_test.py path/to/quire
"""
import json
import subprocess
import sys
import unittest

QUIRE = None
CODECS = ["f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"]


def quire(*arguments, **options):
    return subprocess.run([QUIRE, *arguments], capture_output=True, text=True, timeout=600,
                          **options)


class Program(unittest.TestCase):
    def succeed(self, *arguments):
        result = quire(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout)
        return result.stdout

    def parsed(self, *arguments):
        return json.loads(self.succeed(*arguments, "--json"))


class Usage(Program):
    def test_wrong_usage_exits_2_and_leaves_stdout_empty(self):
        for arguments in ([], ["nothing"], ["--wrong"], ["info", "--wrong"], ["info", "extra"],
                          ["demo", "--wrong"], ["bench"], ["bench", "nothing"],
                          ["bench", "manage", "--wrong"], ["bench", "manage", "--quick=maybe"]):
            with self.subTest(arguments=arguments):
                result = quire(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
                self.assertIn("Usage: quire", result.stderr)

    def test_a_wrong_argument_is_named(self):
        self.assertIn("nothing", quire("nothing").stderr)
        self.assertIn("--wrong", quire("bench", "manage", "--wrong").stderr)

    def test_help_is_data(self):
        for arguments in (["--help"], ["info", "--help"], ["demo", "--help"], ["bench", "--help"],
                          ["bench", "manage", "--help"]):
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
        self.assertEqual(info["codecs"][:len(CODECS)], CODECS)

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
        self.assertEqual(list(rows)[:len(CODECS)], CODECS)
        self.assertEqual(rows["f32"]["relative_error"], 0)
        self.assertEqual(rows["f16"]["bytes_per_token"], 4096)
        for codec, bound in (("f16", 1e-3), ("bf16", 1e-2), ("int8", 2e-2), ("fp8_e4m3", 1e-1),
                             ("fp8_e5m2", 2e-1)):
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


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: quire_test.py path/to/quire [unittest options]")
    QUIRE = sys.argv.pop(1)
    unittest.main()
