#!/usr/bin/env python3
"""What the Hugging Face libraries make of unusual texts: the truth for the tokenizer and chat tests.

    tokenizer_truth.py --model FILE.gguf          write the fixtures beside this file
    tokenizer_truth.py --model FILE.gguf --check  compare with what is there; 1 when they differ

Needs the packages gguf, tokenizers, transformers and jinja2. Texts come from a fixed seed and use
old characters: libraries of different age classify new ones differently. Fixtures are lines of
JSON:

    tokenizer_ids.jsonl     [text, [id, ...]], with the model's vocabulary and special tokens unseen
    tokenizer_special.jsonl the same with special tokens found in the text
    tokenizer_pieces.jsonl  [rules, text, [bytes of each piece, ...]]
    chat_truth.jsonl        [template, [[role, content], ...], add generation prompt, text, [id, ...]],
                            ids only for the model's own template
"""
import argparse
import json
import pathlib
import random
import sys
import unicodedata

import gguf
import tokenizers
from tokenizers import AddedToken, Regex, models, pre_tokenizers
from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20240917

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def splitter(name):
    """The pre-tokenizer that tokenizer.json files of each family name."""
    if name == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    numbers = {"llama-bpe": "{1,3}", "qwen2": ""}[name]
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3 % numbers), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# ---- texts

def known(first, last):
    """Characters of a range that Unicode 3.2 has: every Python carries its tables."""
    return [chr(c) for c in range(first, last)
            if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs", "Co")]


WORDS = ("the of and to in is was for on that with as by at from his were are which this be had not "
         "first new one their two also after who its time over years most people many world school "
         "Quire cache I'll we've don't he's I'm they're she'd IT'S you'Re can't o'clock naïve Straße "
         "fi\u017f'\u017f HTTP foo_bar x=y() https://a.b/c?d=e#f C++20 e.g. U.S.A. 3.14 1,000,000 "
         "-42 0x7fff 12:30 2024-09-17 3rd 50% $9.99 @home #tag a/b \\n {} [0] <b> && || ... !? -- "
         "<|im_start|> <|im_end|> <|endoftext|>").split(" ")

SCRIPTS = {
    "latin": known(0xC0, 0x250), "greek": known(0x370, 0x400), "cyrillic": known(0x400, 0x500),
    "hebrew": known(0x5B0, 0x5F5), "arabic": known(0x620, 0x6FF), "devanagari": known(0x900, 0x980),
    "bengali": known(0x985, 0x9FC), "thai": known(0xE01, 0xE5C), "tibetan": known(0xF00, 0xFD0),
    "hangul": known(0xAC00, 0xD7A4), "jamo": known(0x1100, 0x1200), "kana": known(0x3041, 0x3100),
    "han": known(0x4E00, 0x9FA6), "han_b": known(0x20000, 0x20800), "ethiopic": known(0x1200, 0x1380),
    "mathematical": known(0x1D400, 0x1D800), "gothic": known(0x10330, 0x1034B),
    "fullwidth": known(0xFF01, 0xFFDD),
}
NUMBERS = [chr(c) for c in range(0x80, 0x1E000)
           if unicodedata.ucd_3_2_0.category(chr(c)) in ("Nd", "Nl", "No")] + list("𞥐𞥙𐴰𖭐𑁦𐡘")
MARKS = known(0x300, 0x370) + known(0x20D0, 0x20F1) + ["\u0903", "\u094D", "\u0E31", "\uFE0F", "\u3099"]
SPACES = [" ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u180e", "\u2000",
          "\u2009", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000", "\ufeff"]
CONTROLS = [chr(c) for c in range(0x20)] + ["\x7f", "\x80", "\x9f", "\xad", "\u200c", "\u200d",
            "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\ufff9", "\ufffd", "\uffff", "\U0010ffff"]
SYMBOLS = known(0x2010, 0x2028) + known(0x20A0, 0x20C0) + known(0x2190, 0x2400) + known(0x2500, 0x27C0)
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇯🇵", "1️⃣", "❤️", "👩🏿‍🚀", "🧑‍🤝‍🧑", "☃", "🤷🏻‍♀️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
PLANES = ["\U000e0001", "\U000f0000", "\U00040000", "\U0005ffff", "\U00080000", "\ue000", "\u0378"]


def part(rng):
    """One ingredient of a text."""
    kind = rng.randrange(14)
    if kind < 4:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))
    if kind == 4:
        return "".join(rng.choices(SCRIPTS[rng.choice(sorted(SCRIPTS))], k=rng.randint(1, 6)))
    if kind == 5:
        return "".join(rng.choices(NUMBERS, k=rng.randint(1, 3)))
    if kind == 6:
        return "".join(rng.choice("aeoncZ") + "".join(rng.choices(MARKS, k=rng.randint(1, 2)))
                       for _ in range(rng.randint(1, 3)))
    if kind == 7:
        return rng.choice(SPACES) * rng.choice((1, 1, 2, 3, 7, 40))
    if kind == 8:
        return "".join(rng.choices(SPACES, k=rng.randint(1, 4)))
    if kind == 9:
        return "".join(rng.choices(CONTROLS, k=rng.randint(1, 3)))
    if kind == 10:
        return "".join(rng.choices(SYMBOLS, k=rng.randint(1, 4)))
    if kind == 11:
        return "".join(rng.choices(EMOJI, k=rng.randint(1, 2)))
    if kind == 12:
        return str(rng.randrange(10 ** rng.randint(1, 9)))
    return rng.choice(PLANES + ["'s", "'T", "'rE", "'\u017f", "''ll", "'", '"', "_", "¿", "½", "Ⅷ", "ª"])


def texts(rng, count):
    found = ["", " ", "  ", "\n", "a", " a", "  a", "0", "00", " 0", "a0 1b", "\u180e", "\x85", "\u200b a"]
    while len(found) < count:
        glue = rng.choice(("", "", " "))
        found.append(glue.join(part(rng) for _ in range(rng.randint(1, 5))))
    return found[:count]


# ---- fixtures


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)


CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
          "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|im_start|>assistant\\n' }}{% endif %}")
QWEN2 = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
         "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
         + CHATML.removeprefix("{% for message in messages %}"))

CONVERSATIONS = [
    [["user", "Hello!"]],
    [["system", "You answer in verse."], ["user", "What is a page?"]],
    [["user", "1 + 1?"], ["assistant", "2"], ["user", "\n\n  And 2 + 2?\n"]],
    [["system", ""], ["user", "straße 漢字 👩🏿‍🚀 it's"], ["assistant", ""]],
    [["user", "a"], ["system", "in between"], ["assistant", "b\n"], ["user", " c "]],
]


def fixtures(path):
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields["tokenizer." + key].contents()
    tokens, types = field("ggml.tokens"), field("ggml.token_type")
    assert field("ggml.model") == "gpt2" and field("ggml.pre") == "smollm"
    merges = [tuple(merge.split(" ")) for merge in field("ggml.merges")]
    make = lambda: tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    plain, special = make(), make()
    plain.pre_tokenizer = special.pre_tokenizer = splitter("smollm")
    special.add_special_tokens([AddedToken(text, normalized=False, special=True)
                                for text, kind in zip(tokens, types) if kind == 3])

    rng = random.Random(SEED)
    cases = texts(rng, 2000)
    marked = ["".join(rng.choice((part(rng), tokens[rng.randrange(17)])) for _ in range(4))
              for _ in range(100)]
    pieces = []
    for name in ("gpt-2", "smollm", "llama-bpe", "qwen2"):
        rule = splitter(name)
        for text in texts(rng, 300):
            # The byte-level alphabet has one character for each byte.
            pieces.append([name, text, [len(piece) for piece, _ in rule.pre_tokenize_str(text)]])

    own = field("chat_template")
    chats = []
    for template in (own, QWEN2, CHATML):
        for conversation in CONVERSATIONS:
            for prompt in (False, True):
                messages = [{"role": role, "content": content} for role, content in conversation]
                text = render_jinja_template([messages], chat_template=template,
                                             add_generation_prompt=prompt)[0][0]
                ids = special.encode(text).ids if template is own else None
                chats.append([template, conversation, prompt, text, ids])
    return {
        "tokenizer_ids.jsonl": lines([text, plain.encode(text).ids] for text in cases),
        "tokenizer_special.jsonl": lines([text, special.encode(text).ids] for text in marked),
        "tokenizer_pieces.jsonl": lines(pieces),
        "chat_truth.jsonl": lines(chats),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the default model's GGUF file")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    differ = []
    for name, text in fixtures(arguments.model).items():
        file = HERE / name
        if not arguments.check:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            differ.append(name)
    print("differ: " + " ".join(differ) if differ else "the same" if arguments.check else "written")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
