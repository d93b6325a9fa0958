#!/usr/bin/env python3
"""What ./run says before it builds anything: its help, wrong usage, a model that is missing.

    run_test.py path/to/run
"""
import os
import subprocess
import sys
import tempfile
import unittest

RUN = None
HAS_PIP = subprocess.run([sys.executable, "-m", "pip", "--version"],
                         capture_output=True).returncode == 0


class Run(unittest.TestCase):
    def run_script(self, *arguments, **environment):
        plain = {name: value for name, value in os.environ.items() if name != "QUIRE_MODEL"}
        return subprocess.run([RUN, *arguments], capture_output=True, text=True, timeout=600,
                              env={**plain, **environment})

    def test_help(self):
        result = self.run_script("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("--model FILE", result.stdout)

    def test_wrong_usage_exits_2_and_is_named(self):
        for arguments, part in ((["--nothing"], "--nothing"), (["file"], "file"),
                                (["--model"], "--model wants a value"),
                                (["--prompt", ""], "--prompt wants a value")):
            with self.subTest(arguments=arguments):
                result = self.run_script(*arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(part, result.stderr)

    def test_a_model_that_is_not_there(self):
        for arguments, environment in ((["--model", "absent.gguf"], {}),
                                       ([], {"QUIRE_MODEL": "absent.gguf"})):
            result = self.run_script(*arguments, **environment)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("there is no file absent.gguf", result.stderr)

    @unittest.skipUnless(HAS_PIP, "pip is not installed, and ./run would install it")
    def test_without_a_network_it_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.run_script(XDG_CACHE_HOME=folder, PIP_NO_INDEX="1")
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(f"Missing is {folder}/quire/", result.stderr)
            self.assertIn("./run --model FILE", result.stderr)
            self.assertNotIn("builds", result.stderr)


if __name__ == "__main__":
    RUN = sys.argv.pop(1)
    unittest.main()
