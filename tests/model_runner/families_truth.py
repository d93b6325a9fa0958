#!/usr/bin/env python3
"""What Hugging Face transformers makes of tiny random models of every family that the runner takes.

    families_truth.py          write families/*.gguf and families_truth.jsonl beside this file
    families_truth.py --check  make them anew elsewhere and compare; 1 when they differ

Needs the packages torch, transformers, gguf and accelerate. The tensors of a file are random numbers
(f16, norms f32) under the names and in the layout of GGUF. Transformers reads them from the file
(`gguf_file=`), so that what a file means, such as the order of a Llama's rotary channels or the 1
that Gemma's norms contain, is its word and not ours. It does not read gemma, whose tensors are set
here as it sets those of gemma2. Configurations are given by hand, since it takes few of a file's
rules over. A line of the fixture is one family:

    {"name", "ids": [tokens], "positions": [some], "logits": [[a number per token of the vocabulary]]}
"""
import argparse
import json
import pathlib
import sys
import tempfile

import gguf
import numpy
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "families"
FIXTURE = HERE / "families_truth.jsonl"
VOCABULARY, WIDTH, FEED, HEADS, KV_HEADS = 40, 24, 32, 4, 2
LENGTH, POSITIONS = 72, [0, 1, 6, 7, 8, 20, 40, 63, 64, 71]
WINDOW = 7
EPSILON = 1e-5


class Family:
    """A name, the class and configuration of transformers, and the rules of the file."""

    def __init__(self, name, architecture, model, config, rules=None, *, layers=2, dim=6, biases=False,
                 qk_norms=False, after_norms=False, own_output=False, factors=None):
        self.name, self.architecture, self.model = name, architecture, model
        self.rules, self.layers, self.dim = rules or {}, layers, dim
        self.biases, self.qk_norms, self.after_norms = biases, qk_norms, after_norms
        self.own_output, self.factors = own_output, factors
        self.config = dict(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=FEED,
            num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
            head_dim=dim, max_position_embeddings=512, rms_norm_eps=EPSILON,
            tie_word_embeddings=not own_output, pad_token_id=None, bos_token_id=None,
            eos_token_id=None) | config

    def tensors(self, random):
        """{name: numbers, [outputs][inputs] for a matrix}"""
        found = {}

        def matrix(name, outputs, inputs, deviation=None):
            numbers = random.standard_normal((outputs, inputs)) * (deviation or 1.5 / inputs ** 0.5)
            found[name + ".weight"] = numbers.astype(numpy.float16)

        def vector(name, size, mean=1.0, deviation=0.2):
            found[name] = (mean + deviation * random.standard_normal(size)).astype(numpy.float32)

        matrix("token_embd", VOCABULARY, WIDTH, 1)
        for layer in range(self.layers):
            inside = f"blk.{layer}."
            for part, count in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
                matrix(f"{inside}attn_{part}", count * self.dim, WIDTH)
                if self.biases:
                    vector(f"{inside}attn_{part}.bias", count * self.dim, 0, 0.5)
                if self.qk_norms and part != "v":
                    vector(f"{inside}attn_{part}_norm.weight", self.dim)
            matrix(inside + "attn_output", WIDTH, HEADS * self.dim)
            matrix(inside + "ffn_gate", FEED, WIDTH)
            matrix(inside + "ffn_up", FEED, WIDTH)
            matrix(inside + "ffn_down", WIDTH, FEED)
            vector(inside + "attn_norm.weight", WIDTH)
            vector(inside + "ffn_norm.weight", WIDTH)
            if self.after_norms:
                vector(inside + "post_attention_norm.weight", WIDTH)
                vector(inside + "post_ffw_norm.weight", WIDTH)
        vector("output_norm.weight", WIDTH)
        if self.own_output:
            matrix("output", VOCABULARY, WIDTH)
        if self.factors:
            found["rope_freqs.weight"] = numpy.array(self.factors, dtype=numpy.float32)
        return found

    def write(self, path, tensors):
        writer = gguf.GGUFWriter(path, self.architecture)
        writer.add_name(self.name)
        writer.add_block_count(self.layers)
        writer.add_context_length(512)
        writer.add_embedding_length(WIDTH)
        writer.add_feed_forward_length(FEED)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(self.dim)
        writer.add_value_length(self.dim)
        writer.add_layer_norm_rms_eps(EPSILON)
        for key, value in self.rules.items():
            add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add[type(value)](f"{self.architecture}.{key}", value)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list([f"t{token}" for token in range(VOCABULARY)])
        for name, numbers in tensors.items():
            writer.add_tensor(name, numbers)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def load(self, path):
        model_class = getattr(transformers, self.model + "ForCausalLM")
        config = model_class.config_class(**self.config)
        options = dict(dtype=torch.float32, attn_implementation="eager")
        if self.architecture == "gemma":
            return set_gemma(model_class._from_config(config, **options), path).eval()
        if self.model != "Mistral":
            return model_class.from_pretrained(path.parent, gguf_file=path.name, config=config,
                                               **options).eval()
        # The file is a Llama's, with a window; so are the tensors.
        llama = transformers.LlamaForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32)
        model = model_class._from_config(config, **options)
        model.load_state_dict(llama.state_dict())
        return model.eval()

    def row(self, path, seed):
        """Writes the file; returns the line of the fixture."""
        random = numpy.random.default_rng(seed)
        self.write(path, self.tensors(random))
        ids = random.integers(0, VOCABULARY, LENGTH).tolist()
        with torch.no_grad():
            logits = self.load(path)(torch.tensor([ids])).logits[0, POSITIONS]
        return {"name": self.name, "ids": ids, "positions": POSITIONS,
                "logits": [[round(number, 5) for number in row] for row in logits.tolist()]}


def set_gemma(model, path):
    """Tensors of a gemma file, whose norms are 1 + weight."""
    names = {"token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj"}
    names |= {f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"}
    names |= {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    state = {}
    for tensor in gguf.GGUFReader(path).tensors:
        *layer, part, _ = tensor.name.split(".")
        place = f"layers.{layer[1]}." if layer else ""
        numbers = numpy.array(tensor.data, dtype=numpy.float32) - (1 if "norm" in part else 0)
        state[f"model.{place}{names[part]}.weight"] = torch.from_numpy(numbers)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and missing in ([], ["lm_head.weight"]), (missing, unexpected)
    model.tie_weights()
    return model


def llama3_factors(base, dim, factor, low, high, original):
    """What converters write to rope_freqs.weight for rotary scaling of type llama3."""
    factors = []
    for pair in range(dim // 2):
        wavelength = 2 * numpy.pi * base ** (2 * pair / dim)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(float(factor))
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


def rope(theta, kind="default", **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


def families():
    base = {"rope.freq_base": 10000.0}
    plain = dict(rope_parameters=rope(10000.0))
    llama3 = dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64)
    gemma = dict(hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=8,
                 sliding_window=WINDOW)
    return [
        Family("llama", "llama", "Llama", plain, base | {"rope.dimension_count": 6}),
        Family("llama_output", "llama", "Llama", dict(rope_parameters=rope(500000.0)),
               {"rope.freq_base": 500000.0, "rope.dimension_count": 8}, dim=8, own_output=True),
        Family("llama_linear", "llama", "Llama",
               dict(rope_parameters=rope(10000.0, "linear", factor=4.0)),
               base | {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, dim=8),
        Family("llama3", "llama", "Llama",
               dict(rope_parameters=rope(10000.0, "llama3", **llama3)), base, dim=16,
               factors=llama3_factors(10000.0, 16, 4.0, 1.0, 4.0, 64)),
        Family("llama_yarn", "llama", "Llama",
               dict(rope_parameters=rope(10000.0, "yarn", factor=4.0,
                                         original_max_position_embeddings=128)),
               base | {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                       "rope.scaling.original_context_length": 128}, dim=16),
        Family("mistral_window", "llama", "Mistral", plain | dict(sliding_window=WINDOW),
               base | {"attention.sliding_window": WINDOW}, dim=8),
        Family("qwen2", "qwen2", "Qwen2", dict(rope_parameters=rope(1000000.0)),
               {"rope.freq_base": 1000000.0}, biases=True),
        Family("qwen3", "qwen3", "Qwen3", dict(rope_parameters=rope(1000000.0)),
               {"rope.freq_base": 1000000.0}, dim=16, qk_norms=True),
        Family("gemma", "gemma", "Gemma", plain | dict(hidden_act="gelu_pytorch_tanh"), base,
               dim=16),
        Family("gemma2", "gemma2", "Gemma2",
               plain | gemma | dict(attn_logit_softcapping=2.0, final_logit_softcapping=5.0),
               base | {"attention.sliding_window": WINDOW, "attn_logit_softcapping": 2.0,
                       "final_logit_softcapping": 5.0}, layers=3, dim=8, after_norms=True),
        Family("gemma3", "gemma3", "Gemma3",
               gemma | dict(rope_parameters={
                   "sliding_attention": rope(10000.0),
                   "full_attention": rope(1000000.0, "linear", factor=8.0)}),
               {"rope.freq_base": 1000000.0, "attention.sliding_window": WINDOW,
                "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
               layers=7, dim=8, qk_norms=True, after_norms=True),
    ]


def make(folder):
    folder.mkdir(exist_ok=True)
    return [family.row(folder / f"{family.name}.gguf", 100 + index)
            for index, family in enumerate(families())]


def check(folder, rows):
    """Whether the fixtures are what was made now; logits may be rounded differently."""
    kept = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
    differ = []
    for old, new in zip(kept, rows):
        name = new["name"] + ".gguf"
        if (FOLDER / name).read_bytes() != (folder / name).read_bytes():
            differ.append(name)
        same = [old[key] == new[key] for key in ("name", "ids", "positions")]
        farthest = numpy.abs(numpy.array(old["logits"]) - numpy.array(new["logits"])).max()
        if not all(same) or farthest > 1e-3:
            differ.append(f"{old['name']} by {farthest:.2g}")
    if len(kept) != len(rows):
        differ.append(f"{len(kept)} families, not {len(rows)}")
    print("differ: " + ", ".join(differ) if differ else "the same")
    return not differ


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    if arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            return 0 if check(pathlib.Path(folder), make(pathlib.Path(folder))) else 1
    rows = make(FOLDER)
    FIXTURE.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    print("written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
