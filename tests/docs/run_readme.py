#!/usr/bin/env python3
"""Compiles and runs the complete programs among README.md's ```c and ```cpp blocks."""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```(c|cpp)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--readme", type=pathlib.Path, required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--cc", default="cc", help="C compiler and flags")
    parser.add_argument("--cxx", default="c++", help="C++ compiler and flags")
    args = parser.parse_args()

    text = args.readme.read_text()
    programs = [(match[1], match[2], text.count("\n", 0, match.start()) + 1)
                for match in BLOCK.finditer(text) if "int main" in match[2]]
    if not programs:
        print(f"{args.readme} shows no complete program")
        return 1

    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for language, source, line in programs:
            path = pathlib.Path(folder) / f"readme_{line}.{language}"
            path.write_text(source)
            compiler = [*shlex.split(args.cxx), "-std=c++20"] if language == "cpp" else \
                       [*shlex.split(args.cc), "-std=c99"]
            program = path.with_suffix("")
            build = [*compiler, "-Wall", "-Wextra", f"-I{args.include}", path, args.library,
                     f"-Wl,-rpath,{args.library.parent}", "-lm", "-o", program]
            print(f"README.md, line {line}: {language}", flush=True)
            if subprocess.run(build).returncode or subprocess.run([program]).returncode:
                print(f"README.md, line {line}: failed", flush=True)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
