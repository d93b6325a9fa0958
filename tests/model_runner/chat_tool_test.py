#!/usr/bin/env python3
"""Runs `quire chat` as its users do, in a pipe and in a terminal.

    chat_tool_test.py path/to/quire

Conversations need the default model (QUIRE_MODEL, or its place in the cache folder) and are skipped
without it.
"""
import os
import pathlib
import pty
import subprocess
import sys
import unittest

QUIRE = None
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
MODEL = pathlib.Path(os.environ.get("QUIRE_MODEL")
                     or CACHE / "quire" / "SmolLM2-135M-Instruct.Q4_1.gguf")
needs_model = unittest.skipUnless(MODEL.exists(), f"no model at {MODEL}")


def chat(*options, lines=()):
    return subprocess.run([QUIRE, "chat", *options], input="".join(line + "\n" for line in lines),
                          capture_output=True, text=True, timeout=600)


class Usage(unittest.TestCase):
    def test_wrong_options_exit_2_and_are_named(self):
        for option, value in (("--codec", "nope"), ("--window", "0"), ("--memory-limit", "much"),
                              ("--context", "-1"), ("--top-p", "2"), ("--temperature", "-1"),
                              ("--max-tokens", "0")):
            with self.subTest(option=option):
                result = chat(option, value)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
                self.assertIn(option, result.stderr)

    def test_a_missing_model_is_a_failure(self):
        result = chat("--model", "missing.gguf")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "")
        self.assertIn("missing.gguf", result.stderr)


@needs_model
class Conversation(unittest.TestCase):
    def say(self, *lines, options=()):
        result = chat("--model", str(MODEL), "--temperature", "0", "--max-tokens", "24", *options,
                      lines=lines)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_answers_are_what_goes_to_stdout(self):
        # In f32: the first word is nearly a tie.
        result = self.say("What is the capital of France?", "", "And of Italy?",
                          options=("--weights", "f32"))
        answers = result.stdout.splitlines()
        self.assertEqual(len(answers), 2)
        self.assertIn("Paris", answers[0])
        self.assertIn("Rome", answers[1])

    def test_branches_and_undo(self):
        result = self.say("What is the capital of France?", "/fork", "And of Italy?", "/branch 0",
                          "And of Italy?", "/undo", "/undo", "/undo", "/branch 7", "/nothing")
        answers = result.stdout.splitlines()
        self.assertEqual(answers[1], answers[2])
        for text in ("branch 1", "turns left: 1", "turns left: 0", "no turn to undo", '"7"',
                     "/nothing: not understood"):
            self.assertIn(text, result.stderr)

    def test_stats_and_quit(self):
        result = self.say("Hello", "/fork", "/stats", "/quit", "never said",
                          options=("--codec", "int8"))
        self.assertIn("bits per value", result.stdout)
        self.assertIn("1 *", result.stdout)
        self.assertNotIn("never said", result.stdout)

    def test_a_small_context_forgets(self):
        result = self.say("Count to ten.", "Go on.", "Go on.", "Go on.", "/stats",
                          options=("--context", "128"))
        self.assertIn("forgotten to make room", result.stderr)

    def test_a_window_and_a_limit(self):
        for options in (("--window", "64"), ("--memory-limit", "5MiB")):
            with self.subTest(options=options):
                result = self.say("Tell me a story.", "Go on.", options=options)
                self.assertTrue(result.stdout.strip())

    def test_in_a_terminal_lines_are_edited(self):
        parent, child = pty.openpty()
        process = subprocess.Popen([QUIRE, "chat", "--model", str(MODEL), "--temperature", "0"],
                                   stdin=child, stdout=child, stderr=child)
        os.close(child)
        # To the front of the line, and away with what follows: the terminal itself does not do that.
        os.write(parent, b"abc\x01\x0b/undo\n/quit\n")
        shown = b""
        try:
            while block := os.read(parent, 4096):
                shown += block
        except OSError:  # the other end is closed
            pass
        os.close(parent)
        self.assertEqual(process.wait(timeout=600), 0)
        self.assertIn(b"no turn to undo", shown)


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    unittest.main()
