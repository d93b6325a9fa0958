#!/usr/bin/env python3
"""Checks the objects that are compiled for one instruction set.

A function or object that several objects may define (weak, or unique) is kept once by the linker:
it could be the copy that only some machines can run. Files named *_avx2.cc and *_avx512.cc may
therefore define nothing of that kind.
"""
import argparse
import re
import subprocess
import sys

UNIT = re.compile(r"_(avx2|avx512)\.cc\.(o|obj)$")
SHARED = "WVu"  # of nm: weak functions, weak objects, unique ones
# References to the personality routine of exceptions: data, the same everywhere.
HARMLESS = re.compile(r"^DW\.ref\.")


def shared_symbols(nm, path):
    output = subprocess.run([nm, "--defined-only", path], check=True, capture_output=True,
                            text=True).stdout
    for line in output.splitlines():
        kind, name = line.split(maxsplit=2)[-2:]
        if kind in SHARED and not HARMLESS.match(name):
            yield kind, name


def readable(names):
    """C++ names as they were written, where c++filt is there."""
    try:
        done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True)
    except OSError:
        return names
    return done.stdout.splitlines() if done.returncode == 0 else names


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", default="nm")
    parser.add_argument("objects", nargs="+")
    args = parser.parse_args()

    units = [path for path in args.objects if UNIT.search(path)]
    wrong = []
    for path in units:
        found = list(shared_symbols(args.nm, path))
        names = readable([name for _, name in found])
        wrong += [f"{path}: {kind} {name}" for (kind, _), name in zip(found, names)]
    if not units:
        wrong.append("no object of one instruction set among those given")

    print(f"{len(units)} objects of one instruction set")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
