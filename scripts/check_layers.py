#!/usr/bin/env python3
"""Checks that dependencies point one way, and that the sources fit any machine.

    base < codec, page < attend < cache < prefix < tier < capi < model, tools, python

A folder of src/ includes itself, the public headers and folders below it. Public headers include
public headers. model/, tools/, python/ and examples/ include public headers and their own, tools/
also model/. Nothing under include/ or src/ knows of torch or Python. No file names a path of
somebody's machine or the host of a package registry.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

BELOW = {
    "base": set(),
    "codec": {"base"},
    "page": {"base"},
    "attend": {"base", "codec", "page"},
    "cache": {"base", "codec", "page", "attend"},
    "prefix": {"base", "codec", "page", "attend", "cache"},
    "tier": {"base", "codec", "page", "attend", "cache", "prefix"},
    "capi": {"base", "codec", "page", "attend", "cache", "prefix", "tier"},
}
USERS = {"model": {"model"}, "tools": {"tools", "model"}, "python": {"python"},
         "examples": {"examples"}}

SOURCE = {".c", ".cc", ".cpp", ".h", ".hpp", ".in"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
FOREIGN = re.compile(r"\btorch\b|\bPython\.h\b", re.IGNORECASE)
MACHINE = re.compile(r"(?<![\w.}])/(?:home|Users|root|work|workspace|builds|mnt)/\w+")
REGISTRY = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|crates\.io|proxy\.golang\.org|"
    r"conda\.(?:io|anaconda\.org)|anaconda\.org|conan\.io|docker\.io|ghcr\.io|quay\.io|"
    r"(?:deb|ftp|snapshot|security)\.debian\.org|archive\.ubuntu\.com)\b")


def files_of(root):
    """Files that git tracks or would; without git, all but build/ and hidden folders."""
    if (root / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-coz", "--exclude-standard"],
                                capture_output=True)
        if listed.returncode == 0:
            names = sorted(set(os.fsdecode(listed.stdout).split("\0")) - {""})
            return [pathlib.PurePosixPath(name) for name in names if (root / name).is_file()]
    found = (path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_file())
    return [pathlib.PurePosixPath(path) for path in found
            if path.parts[0] != "build" and not path.parts[0].startswith(".git")]


def target_of(root, file, include):
    """The file an #include "..." means, relative to the root; None when it is not ours."""
    for folder in (file.parent, "include", "src", ""):
        path = os.path.normpath(os.path.join(folder, include))
        if not path.startswith("..") and (root / path).is_file():
            return pathlib.PurePosixPath(path)
    top = include.split("/")[0]
    return pathlib.PurePosixPath("src", include) if top in BELOW and "/" in include else None


def include_fault(file, target):
    """Why `file` may not include `target`, or None."""
    top = file.parts[0]
    if target.parts[0] == "include":
        return None
    if top == "include":
        return "a public header includes public headers only"
    if top in USERS:
        return None if target.parts[0] in USERS[top] else f"{top}/ uses only include/"
    if top == "src":
        if target.parts[0] != "src":
            return "src/ includes only include/ and src/"
        source, wanted = file.parts[1], target.parts[1]
        if source not in BELOW:
            return f"src/{source} has no place in the order of folders"
        if wanted != source and wanted not in BELOW[source]:
            return f"{source} may not depend on {wanted}"
    return None


def faults_of(root, file):
    try:
        text = (root / file).read_text()
    except UnicodeDecodeError:
        return
    def at(match):
        return f"{file}:{text.count(chr(10), 0, match.start()) + 1}"

    for pattern, what in ((MACHINE, "names a path of one machine"),
                          (REGISTRY, "names a package registry")):
        for match in pattern.finditer(text):
            yield f"{at(match)}: {what}: {match[0]}"
    if file.suffix not in SOURCE:
        return
    if file.parts[0] in ("include", "src"):
        for match in FOREIGN.finditer(text):
            yield f"{at(match)}: the library does not know of {match[0]}"
    for match in INCLUDE.finditer(text):
        target = target_of(root, file, match[1])
        fault = include_fault(file, target) if target else None
        if fault:
            yield f'{at(match)}: #include "{match[1]}": {fault}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    files = files_of(root)
    faults = [fault for file in files for fault in faults_of(root, file)]
    print("\n".join(faults + [f"{len(files)} files, {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
