#!/usr/bin/env python3
"""What SentencePiece makes of unusual texts: the truth for tokenizer_spm_test.cc. Writes
tokenizer_spm.jsonl beside this file; needs the package sentencepiece.

Two small vocabularies are trained, as Llama and Mistral have them (a space is put first) and as
Gemma has them (none is, and runs of spaces and line breaks are tokens defined by hand). Lines are

    {"name": ..., "add_space": ..., "tokens": [...], "scores": [...], "types": [...]}
    [name, text, [id, ...]]
"""
import io
import json
import pathlib
import random

import sentencepiece

from unusual_texts import WORDS, texts

SEED = 20240918
KINDS = {
    "prefixed": {"add_dummy_prefix": True},
    "defined": {"add_dummy_prefix": False,
                "user_defined_symbols": ["\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<table>"]},
}


def train(kind):
    rng = random.Random(SEED)
    lines = [" ".join(rng.choices(WORDS, k=12)) for _ in range(3000)] + texts(rng, 300)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=700,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        character_coverage=0.98, num_threads=1, minloglevel=2, **KINDS[kind])
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def type_of(model, i):
    """As GGUF files have it."""
    return (2 if model.IsUnknown(i) else 3 if model.IsControl(i) else 6 if model.IsByte(i) else
            5 if model.IsUnused(i) else
            4 if model.IdToPiece(i) in KINDS["defined"]["user_defined_symbols"] else 1)


def main():
    rows = []
    for kind in KINDS:
        model = train(kind)
        ids = range(model.GetPieceSize())
        types = [type_of(model, i) if kind == "defined" or type_of(model, i) != 4 else 1 for i in ids]
        rows.append({"name": kind, "add_space": KINDS[kind]["add_dummy_prefix"],
                     "tokens": [model.IdToPiece(i) for i in ids],
                     "scores": [model.GetScore(i) for i in ids], "types": types})
        rng = random.Random(SEED + 1)
        for text in texts(rng, 500) + ["a<table>b", "x    y\n\n\n\nz", "<s>", "<0x41>", "▁", " ▁ "]:
            found = model.Encode(text)
            rows.append([kind, text, found])
    file = pathlib.Path(__file__).resolve().parent / "tokenizer_spm.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
                            for row in rows))


if __name__ == "__main__":
    main()
