"""A tiny Llama of random weights whose tokens are the 256 bytes, as the bytes of a GGUF file. By
greedy choice it writes printable ASCII and never ends."""
import random
import struct

LAYERS, WIDTH, HEADS, KV_HEADS, FEED, CONTEXT = 2, 128, 2, 1, 64, 256
END = 256  # a control token


def byte_tokens():
    """How byte-level vocabularies spell bytes: printable ones as themselves."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    spelled, beyond = [], 0x100
    for byte in range(256):
        spelled.append(chr(byte if byte in plain else beyond))
        beyond += byte not in plain
    return spelled


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(key, kind, data):
    return text(key) + struct.pack("<I", kind) + data


def number(key, n):
    return value(key, 4, struct.pack("<I", n))


def array(key, kind, items):
    return value(key, 9, struct.pack("<IQ", kind, len(items)) + b"".join(items))


def metadata():
    tokens = byte_tokens() + ["<|end|>"]
    return [
        value("general.architecture", 8, text("llama")),
        value("general.name", 8, text("tiny")),
        number("llama.block_count", LAYERS),
        number("llama.context_length", CONTEXT),
        number("llama.embedding_length", WIDTH),
        number("llama.feed_forward_length", FEED),
        number("llama.attention.head_count", HEADS),
        number("llama.attention.head_count_kv", KV_HEADS),
        value("tokenizer.ggml.model", 8, text("gpt2")),
        value("tokenizer.ggml.pre", 8, text("smollm")),
        array("tokenizer.ggml.tokens", 8, [text(token) for token in tokens]),
        array("tokenizer.ggml.token_type", 5, [struct.pack("<i", 1)] * 256 + [struct.pack("<i", 3)]),
        array("tokenizer.ggml.merges", 8, []),
        number("tokenizer.ggml.eos_token_id", END),
    ]


def tensors():
    keys = WIDTH // HEADS * KV_HEADS
    shapes = {"token_embd.weight": [WIDTH, 257], "output_norm.weight": [WIDTH]}
    for layer in range(LAYERS):
        for name, shape in (("attn_norm", [WIDTH]), ("ffn_norm", [WIDTH]),
                            ("attn_q", [WIDTH, WIDTH]), ("attn_k", [WIDTH, keys]),
                            ("attn_v", [WIDTH, keys]), ("attn_output", [WIDTH, WIDTH]),
                            ("ffn_gate", [WIDTH, FEED]), ("ffn_up", [WIDTH, FEED]),
                            ("ffn_down", [FEED, WIDTH])):
            shapes[f"blk.{layer}.{name}.weight"] = shape
    return shapes


def tiny_gguf(seed=1):
    source = random.Random(seed)
    infos, data = [], b""
    for name, shape in tensors().items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if len(shape) == 1:
            numbers = [1.0] * count
        else:
            numbers = [source.gauss(0, 1.5 / shape[0] ** 0.5) for _ in range(count)]
        if name == "token_embd.weight":
            # Output is tied to it: a token of zeros has logit 0 and is never the likeliest.
            for token in set(range(257)) - set(range(0x20, 0x7f)):
                numbers[token * WIDTH:(token + 1) * WIDTH] = [0.0] * WIDTH
        data += bytes(-len(data) % 32)
        infos.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0,
                                              len(data)))
        data += struct.pack(f"<{count}f", *numbers)
    values = metadata()
    header = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(values)) + b"".join(values + infos)
    return header + bytes(-len(header) % 32) + data
