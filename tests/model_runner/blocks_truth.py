#!/usr/bin/env python3
"""Writes blocks_truth.jsonl: random blocks of every weight type and what they mean in f32.

The values are those of the Python package gguf (0.10 or later), which follows ggml to the bit:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf
    /tmp/venv/bin/python tests/model_runner/blocks_truth.py
"""
import json
import pathlib

import gguf
import numpy

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Bytes at which f16 scales lie in a block; they must be finite.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208]}


def main():
    random = numpy.random.default_rng(135)
    with pathlib.Path(__file__).with_name("blocks_truth.jsonl").open("w") as file:
        for name in TYPES:
            kind = gguf.GGMLQuantizationType[name]
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            count = 8 if elements == 1 else 2
            blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
            if name in SCALES:
                for at in SCALES[name]:
                    scales = (random.standard_normal((count, 1)) / 50).astype(numpy.float16)
                    blocks[:, at:at + 2] = scales.view(numpy.uint8)
                scales[-1] = numpy.float16(2.0 ** -20)  # one that is subnormal
                blocks[:, SCALES[name][-1]:SCALES[name][-1] + 2] = scales.view(numpy.uint8)
            else:
                values = random.standard_normal((count, 1)).astype(numpy.float32)
                if name == "F16":
                    values = values.astype(numpy.float16)
                blocks = values.view(numpy.uint8)[:, -size:].copy()
            values = gguf.quants.dequantize(blocks.reshape(1, -1), kind).astype(numpy.float32)
            assert values.size == count * elements
            json.dump({"type": name, "number": int(kind), "blocks": blocks.tobytes().hex(),
                       "values": values.tobytes().hex()}, file)
            file.write("\n")


if __name__ == "__main__":
    main()
