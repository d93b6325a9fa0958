#!/usr/bin/env python3
"""What Hugging Face transformers makes of the default model in float32: the truth for its logits.

    logits_truth.py --model FILE.gguf          write logits_truth.jsonl beside this file
    logits_truth.py --model FILE.gguf --check  compare with what is there; 1 when they differ

Needs the packages torch, transformers, gguf and accelerate. The texts are those of
logits_prompts.txt, the first 256 tokens of each. A line of the fixture is one of them:

    {"name", "ids": [256 tokens], "top": [the likeliest next token at each position],
     "positions": [some], "tokens": [some], "logits": [positions x tokens numbers]}

Positions and tokens are drawn from a fixed seed. A whole row of logits has 49,152 numbers, so a
sample has to do; drawn at random it has the same mean difference.
"""
import argparse
import json
import os
import pathlib
import random
import sys

import numpy
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
PROMPTS = HERE / "logits_prompts.txt"
FIXTURE = HERE / "logits_truth.jsonl"
LENGTH = 256
POSITIONS, TOKENS = 64, 16


def prompts():
    """[(name, text)]"""
    parts = PROMPTS.read_text().split("=== ")[1:]
    return [(name, text) for name, text in (part.split("\n", 1) for part in parts)]


def make_rows(path):
    folder, file = os.path.split(os.path.abspath(path))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
    encoded = {name: tokenizer.encode(text, add_special_tokens=False) for name, text in prompts()}
    if short := {name: len(ids) for name, ids in encoded.items() if len(ids) < LENGTH}:
        sys.exit(f"{LENGTH} tokens are needed: {short}")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32, attn_implementation="eager").eval()
    rng = random.Random(20240917)
    for name, ids in encoded.items():
        ids = ids[:LENGTH]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].numpy()
        positions = sorted(rng.sample(range(LENGTH), POSITIONS))
        tokens = sorted(rng.sample(range(logits.shape[1]), TOKENS))
        sample = logits[positions][:, tokens].flatten().tolist()
        yield {"name": name, "ids": ids, "top": logits.argmax(axis=1).tolist(),
               "positions": positions, "tokens": tokens,
               "logits": [round(logit, 4) for logit in sample]}


def check(made):
    """Whether the fixture says what was made now. Products of another machine or version of torch
    are rounded differently, so tops may change where two logits are nearly equal."""
    kept = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
    exact = ("name", "ids", "positions", "tokens")
    if [[row[key] for key in exact] for row in kept] != [[row[key] for key in exact]
                                                         for row in made]:
        print("differ: texts, tokens or places")
        return False
    equal = numpy.mean([a == b for x, y in zip(kept, made) for a, b in zip(x["top"], y["top"])])
    farthest = max(abs(a - b) for x, y in zip(kept, made) for a, b in zip(x["logits"], y["logits"]))
    print(f"tops equal at {100 * equal:.2f} % of positions, logits differ by {farthest:.2g} at most")
    return equal >= 0.999 and farthest < 1e-2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the default model's GGUF file")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    made = list(make_rows(arguments.model))
    if arguments.check:
        return 0 if check(made) else 1
    FIXTURE.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in made))
    print("written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
