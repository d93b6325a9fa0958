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

import gguf
import tokenizers
from tokenizers import AddedToken, Regex, models, pre_tokenizers
from transformers.utils.chat_template_utils import render_jinja_template

from unusual_texts import part, texts

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
