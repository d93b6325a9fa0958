#!/usr/bin/env python3
"""Checks what a shared libquire exports.

Only quire_* and quire:: may be seen; every function of quire.h is there; a quire:: name that no
public header declares is internal and must not be.
"""
import argparse
import pathlib
import re
import subprocess
import sys

CPP = re.compile(r"(?:(?:typeinfo|typeinfo name|vtable|VTT) for |(?:non-)?(?:virtual )?thunk to )?"
                 r"quire::(\w+)")
FORWARD = re.compile(r"^\s*(?:class|struct)\s+\w+;", re.MULTILINE)
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
C_FUNCTION = re.compile(r"\b(quire_\w+)\s*\([^;{}]*\)\s*;")
EXPECTED = ["quire::Cache::create", "quire::Step::commit", "quire::Sequence::fork",
            "quire::CacheSpec::uniform", "quire::build_info"]


def text_of(paths):
    return "\n".join(C_COMMENT.sub("", path.read_text()) for path in paths)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--include", type=pathlib.Path, required=True)
    parser.add_argument("library")
    args = parser.parse_args()

    output = subprocess.run([args.nm, "-D", "--defined-only", "-C", args.library],
                            check=True, capture_output=True, text=True).stdout
    symbols = [re.split(r"\s+", line.strip(), maxsplit=2)[2] for line in output.splitlines()]

    headers = sorted(args.include.glob("quire/*.hpp"))
    declared = set(re.findall(r"\w+", FORWARD.sub("", text_of(headers))))
    c_functions = set(C_FUNCTION.findall(text_of(args.include.glob("quire/*.h"))))

    wrong = []
    for symbol in symbols:
        match = CPP.match(symbol)
        if match and match[1] not in declared:
            wrong.append(f"exported but internal: {symbol}")
        elif not match and symbol not in c_functions:
            wrong.append(f"exported but in no public header: {symbol}")
    for name in EXPECTED:
        if not any(symbol.startswith(name) for symbol in symbols):
            wrong.append(f"not exported: {name}")
    wrong += [f"not exported: {name}" for name in sorted(c_functions - set(symbols))]

    print(f"{len(symbols)} symbols exported, {len(c_functions)} functions in the C ABI")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
