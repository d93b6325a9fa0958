#!/usr/bin/env python3
"""Checks that the C programs of this folder call every function that quire.h declares."""
import pathlib
import re
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DECLARED = re.compile(r"^QUIRE_API[^;(]*?\b(quire_\w+)\(", re.MULTILINE)


def main():
    folder = pathlib.Path(__file__).resolve().parent
    header = folder.parent.parent / "include" / "quire" / "quire.h"
    declared = DECLARED.findall(COMMENT.sub("", header.read_text()))
    sources = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    text = "\n".join(COMMENT.sub("", path.read_text()) for path in sources)
    missing = [name for name in declared if not re.search(rf"\b{name}\(", text)]

    print(f"{len(declared)} functions declared, {len(declared) - len(missing)} called")
    for name in missing:
        print(f"not called: {name}")
    return 1 if missing or not declared else 0


if __name__ == "__main__":
    sys.exit(main())
