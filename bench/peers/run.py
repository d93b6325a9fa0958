#!/usr/bin/env python3
"""Tokens per second of Quire, llama.cpp and ik_llama.cpp on one model, in one run.

    bench/peers/run.py                     the default model: all depths and prompts, 3 rounds
    bench/peers/run.py --only quire,ik --depths 4096 --prompts 512 --rounds 1
    QUIRE_ISA=avx2 bench/peers/run.py      Quire without AVX-512, as the wheel of ik_llama.cpp is

Sets up what is missing: the two peers from PyPI, each in a virtual environment of its own under
build/peers (their libraries have the same names), and `quire` in build/release. llama.cpp is built
for this machine from the source distribution of llama-cpp-python, which takes some minutes;
ik_llama.cpp comes as a wheel of ik-llama-cpp-python. A second call uses what is there.

Each program is a process that holds the model and is told, line by line, what to do next; only one
works at a time (`quire bench model --serve`, and worker.py for the peers, which calls the C
libraries themselves). All get the same token ids and the same number of threads. The peers keep
keys and values in f16 and take prompts in batches of 512, as Quire does.

A round feeds all of them up to the shortest prompt or depth, then up to the next, and so on; a
prompt's time is the sum of its pieces. Then all decode at the largest depth, then at the next, with
what was decoded cut off in between. So at each point everybody is measured within seconds, on the
same machine. Whoever comes after another program finds caches cold, so a few tokens are decoded
before those that are timed, and every second round goes in the opposite order. Decoding is timed
around single-token calls with their logits; Python costs the peers some 10 us of the milliseconds
that a call takes. Cells are medians of rounds; a short round before them is not counted. `ratio` is
Quire with the last codec of --codec over the best row of the peers.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDER = ROOT / "build" / "peers"
MODES = ("fa", "nofa")  # flash attention on and off
WARM_TOKENS = 4  # decoded before those that count

# What pip installs. Peers are asked for by exact version: a row without one means nothing.
PACKAGES = {
    "llama": ("llama.cpp", "llama-cpp-python==0.3.36", ["--no-binary", "llama-cpp-python"]),
    "ik": ("ik_llama.cpp", "ik-llama-cpp-python==0.1.5", []),
}


class Failure(Exception):
    """Ends the program with its text."""


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


# ---- what is needed

def last_lines(text, count=4):
    return "\n".join(text.strip().splitlines()[-count:])


def ends(text):
    lines = text.strip().splitlines()
    return "\n".join(lines[:1] + lines[1:][-3:])


def set_up_peer(name):
    """The Python of an environment that has the package."""
    title, package, options = PACKAGES[name]
    folder = FOLDER / name
    python = folder / "bin" / "python"
    mark = folder / "package"  # written when all is installed
    if mark.is_file() and mark.read_text() == package:
        return python
    say(f"installs {package} into {folder}"
        + ("; it is compiled, which takes minutes" if options else ""))
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
    if made.returncode != 0:
        raise Failure(f"no virtual environment for {title}: {last_lines(made.stdout + made.stderr)}"
                      "\nMissing is Python's venv (Debian: python3-venv).")
    settings = dict(os.environ)
    settings.setdefault("CMAKE_ARGS", "-DLLAVA_BUILD=OFF")
    pip = subprocess.run([python, "-m", "pip", "install", "--quiet", *options, package],
                         capture_output=True, text=True, env=settings)
    if pip.returncode != 0:
        raise Failure(f"pip install {package} failed:\n{last_lines(pip.stderr)}\n"
                      f"Missing is {title}: it needs the network (PyPI)"
                      + (", a C++ compiler" if options else "")
                      + "; --only leaves it out.")
    mark.write_text(package)
    return python


def set_up_quire():
    say("builds build/release/bin/quire")
    for command in (["cmake", "--preset", "release"],
                    ["cmake", "--build", "--preset", "release", "--target", "quire_tool"]):
        try:
            built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        except FileNotFoundError:
            raise Failure("cmake is missing: run scripts/setup.sh, or give --quire PROGRAM") from None
        if built.returncode != 0:
            raise Failure(f"{' '.join(command)} failed:\n{last_lines(built.stdout + built.stderr, 20)}")
    return ROOT / "build" / "release" / "bin" / "quire"


def default_model():
    fetched = subprocess.run([sys.executable, ROOT / "scripts" / "fetch_model.py"],
                             stdout=subprocess.PIPE, text=True)
    if fetched.returncode != 0:
        raise Failure("there is no model; --model FILE names one")
    return pathlib.Path(fetched.stdout.strip())


# ---- the programs

class Program:
    """A process that times what it is told. Its rows are named by their modes."""

    def __init__(self, title, command, modes, ids):
        self.title, self.modes = title, modes
        self.log = FOLDER / f"{title}.log"
        say(f"starts {title}")
        FOLDER.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        if self.ask(" ".join(map(str, ids))) != "ready":
            self.stop()
            raise Failure(f"{title} does not say that it is ready")

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer.endswith("\n"):
            raise Failure(f"{self.title} ended; {self.log} begins and ends with\n"
                          + ends(self.log.read_text(errors="replace")))
        return answer.strip()

    def seconds(self, verb, mode, count):
        return float(self.ask(f"{verb} {mode} {count}"))

    def stop(self):
        """The end of its stdin ends it; one that has ended, or will not, is no matter."""
        try:
            self.process.stdin.close()
            self.process.wait(timeout=10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def start(arguments, ids):
    """The programs that were asked for; each is stopped by the caller."""
    pythons = {name: set_up_peer(name) for name in arguments.only if name in PACKAGES}
    quire = None
    if "quire" in arguments.only:
        quire = arguments.quire or set_up_quire()
        if not os.access(quire, os.X_OK):
            raise Failure(f"no program {quire}")
    model = arguments.model or default_model()
    if not model.is_file():
        raise Failure(f"no file {model}")
    programs = []
    try:
        for name in arguments.only:
            if name == "quire":
                command = [quire, "bench", "model", "--serve", "--model", model, "--threads",
                           arguments.threads, "--codec", ",".join(arguments.codec)]
                if arguments.weights:
                    command += ["--weights", arguments.weights]
                programs.append(Program("quire", command, arguments.codec, ids))
            else:
                command = [pythons[name], HERE / "worker.py", name, model, arguments.threads,
                           len(ids), ",".join(MODES)]
                programs.append(Program(PACKAGES[name][0], command, MODES, ids))
    except Exception:
        for program in programs:
            program.stop()
        raise
    return programs


# ---- rounds

def run_round(rows, marks, prompts, depths, tokens, note):
    """Calls note(title, mode, kind, count, tokens per second) for all that is measured. Rows are
    (program, mode), in the order of their turns."""
    total = dict.fromkeys(rows, 0.0)
    for program, mode in rows:
        program.seconds("cut", mode, 0)
    for mark in marks:
        for row in rows:
            total[row] += row[0].seconds("feed", row[1], mark)
            if mark in prompts:
                note(row[0].title, row[1], "prompt", mark, mark / total[row])
    for depth in sorted(depths, reverse=True):
        for program, mode in rows:
            for count in (WARM_TOKENS, tokens):
                program.seconds("cut", mode, depth)
                seconds = program.seconds("decode", mode, count)
            note(program.title, mode, "decode", depth, tokens / seconds)


def measure(programs, arguments):
    """{(title, mode, kind, count): [tokens per second of each round]}"""
    found = {}

    def note(*what):
        found.setdefault(what[:4], []).append(what[4])

    marks = sorted(set(arguments.prompts) | set(arguments.depths))
    rows = [(program, mode) for program in programs for mode in program.modes]
    run_round(rows, [min(64, max(marks))], [], [0], WARM_TOKENS, lambda *what: None)
    begun = time.monotonic()
    for index in range(arguments.rounds):
        say(f"round {index + 1} of {arguments.rounds}, after {time.monotonic() - begun:.0f} s")
        run_round(rows, marks, arguments.prompts, arguments.depths, arguments.tokens, note)
        rows.reverse()
    return found


# ---- what is printed

def cpu_name():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def report(found, programs, arguments):
    columns = [("decode", count) for count in arguments.depths]
    columns += [("prompt", count) for count in arguments.prompts]
    rows = [(program.title, mode) for program in programs for mode in program.modes]
    medians = {key: statistics.median(values) for key, values in found.items()}
    peers = [row for row in rows if row[0] != "quire"]
    quire = [row for row in rows if row[0] == "quire"]
    ratios = []
    for column in columns if peers and quire else []:
        best = max(peers, key=lambda row: medians[row + column])
        ratios.append({"kind": column[0], "tokens": column[1], "codec": quire[-1][1],
                       "best_peer": " ".join(best),
                       "ratio": medians[quire[-1] + column] / medians[best + column]})
    return {
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": arguments.threads},
        "packages": {title: package for name, (title, package, _) in PACKAGES.items()
                     if name in arguments.only},
        "rounds": arguments.rounds,
        "rows": [{"program": row[0], "mode": row[1], "kind": column[0], "tokens": column[1],
                  "tokens_per_second": medians[row + column], "rounds": found[row + column]}
                 for row in rows for column in columns],
        "ratios": ratios,
    }


def print_table(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        cells = [cell.ljust(width) if i < 2 else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def print_report(result):
    machine = result["machine"]
    print(f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads; "
          + ", ".join(result["packages"].values()))
    print(f"tokens per second, medians of {result['rounds']} rounds; fa: flash attention\n")
    columns, cells = [], {}
    for row in result["rows"]:
        column = (row["kind"], row["tokens"])
        if column not in columns:
            columns.append(column)
        cells.setdefault((row["program"], row["mode"]), {})[column] = row["tokens_per_second"]
    lines = [["program", "mode"]
             + [f"{'decode at' if kind == 'decode' else 'prompt of'} {count:,}"
                for kind, count in columns]]
    for (title, mode), values in cells.items():
        lines.append([title, mode] + [f"{values[column]:.1f}" for column in columns])
    if result["ratios"]:
        lines.append(["ratio", result["ratios"][0]["codec"]]
                     + [f"{ratio['ratio']:.2f}" for ratio in result["ratios"]])
        lines.append(["  over", ""] + [ratio["best_peer"] for ratio in result["ratios"]])
    print_table(lines)


# ---- options

def counts(least):
    def parse(text):
        try:
            numbers = [int(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"\"{text}\" is not a list of numbers") from None
        if min(numbers) < least:
            raise argparse.ArgumentTypeError(f"{min(numbers)} is less than {least}")
        return list(dict.fromkeys(numbers))
    return parse


def count(text):
    numbers = counts(1)(text)
    if len(numbers) != 1:
        raise argparse.ArgumentTypeError(f"\"{text}\" is not one number")
    return numbers[0]


def programs_of(text):
    names = text.split(",")
    for name in names:
        if name not in ("quire", *PACKAGES):
            raise argparse.ArgumentTypeError(f"\"{name}\" is none of quire, {', '.join(PACKAGES)}")
    return list(dict.fromkeys(names))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=programs_of, default=["llama", "ik", "quire"], metavar="LIST",
                        help="programs: llama,ik,quire")
    parser.add_argument("--depths", type=counts(0), default=[0, 512, 4096, 7680], metavar="LIST",
                        help="tokens before those that are decoded: 0,512,4096,7680")
    parser.add_argument("--prompts", type=counts(1), default=[512, 4096, 7680], metavar="LIST",
                        help="lengths of prompts: 512,4096,7680")
    parser.add_argument("--codec", type=lambda text: text.split(","), default=["f16", "balanced"],
                        metavar="LIST", help="of Quire's cache: f16,balanced")
    parser.add_argument("--weights", metavar="FORM", help="of Quire; default: its own")
    parser.add_argument("--tokens", type=count, default=32, help="decoded at each depth: 32")
    parser.add_argument("--rounds", type=count, default=3, help="of which the median counts: 3")
    parser.add_argument("--threads", type=count, default=len(os.sched_getaffinity(0)),
                        help="of each program; default: one per core")
    parser.add_argument("--model", type=pathlib.Path, metavar="FILE",
                        help="GGUF file; default: what scripts/fetch_model.py fetches")
    parser.add_argument("--quire", type=pathlib.Path, metavar="PROGRAM",
                        help="default: build/release/bin/quire, built first")
    parser.add_argument("--json", action="store_true", help="print one object")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    # Ids that every vocabulary has; which ones does not matter to the time.
    most = max(64, *arguments.prompts,
               max(arguments.depths) + max(arguments.tokens, WARM_TOKENS))
    ids = [1 + index * 89 % 250 for index in range(most)]
    try:
        programs = start(arguments, ids)
        try:
            result = report(measure(programs, arguments), programs, arguments)
        finally:
            for program in programs:
                program.stop()
    except Failure as failure:
        say(failure)
        return 1
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        print_report(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
