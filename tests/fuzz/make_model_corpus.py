#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the committed corpus of gguf_fuzz and safetensors_fuzz: tiny, valid files made by hand."""

import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"

U32, F32, STRING, ARRAY = 4, 6, 8, 9
FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == STRING:
        return gguf_string(value)
    if kind == ARRAY:
        element, values = value
        return struct.pack("<IQ", element, len(values)) + b"".join(gguf_value(element, v) for v in values)
    return struct.pack(FORMATS[kind], value)


def gguf(keys, tensors, version=3):
    """keys: (name, kind, value); tensors: (name, dims, type number, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, kind, value in keys:
        out += gguf_string(name) + struct.pack("<I", kind) + gguf_value(kind, value)
    data = b""
    for name, dims, number, size in tensors:
        out += gguf_string(name) + struct.pack("<I", len(dims))
        out += b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", number, len(data))
        data += bytes(-(-size // 32) * 32)
    return out + bytes(-len(out) % 32) + data


def tiny_keys(architecture):
    a = architecture
    return [
        ("general.architecture", STRING, a),
        (f"{a}.block_count", U32, 1),
        (f"{a}.embedding_length", U32, 32),
        (f"{a}.feed_forward_length", U32, 64),
        (f"{a}.context_length", U32, 128),
        (f"{a}.attention.head_count", U32, 4),
        (f"{a}.attention.head_count_kv", U32, 2),
        (f"{a}.attention.layer_norm_rms_epsilon", F32, 1e-5),
        (f"{a}.rope.freq_base", F32, 10000.0),
    ]


def safetensors(header, size):
    text = json.dumps(header).encode()
    return b"s" + struct.pack("<Q", len(text)) + text + bytes(size)


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def main():
    norm = ("output_norm.weight", [32], 0, 128)
    embedding = ("token_embd.weight", [32, 4], 2, 72)
    for architecture in ("llama", "qwen2", "qwen3"):
        write("gguf_fuzz", architecture, gguf(tiny_keys(architecture), [embedding, norm]))
    rope = tiny_keys("llama") + [("llama.rope.scaling.type", STRING, "linear"), ("llama.rope.scaling.factor", F32, 2.0)]
    write("gguf_fuzz", "rope", gguf(rope, [embedding, norm, ("rope_freqs.weight", [4], 0, 16)]))
    kinds = [(f"k{kind}", kind, 1) for kind in FORMATS]
    arrays = [(f"a{kind}", ARRAY, (kind, [1, 0, 1])) for kind in FORMATS]
    vocabulary = [("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "\u00e9", ""])), ("general.alignment", U32, 64)]
    write("gguf_fuzz", "kinds", gguf(kinds + arrays + vocabulary, [], version=2))

    f32 = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    bf16 = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [16, 24]}
    header = {"__metadata__": {"format": "pt"}, "model.norm.weight": f32, "a": bf16}
    write("safetensors_fuzz", "two", safetensors(header, 24))
    write("safetensors_fuzz", "empty", safetensors({}, 0))
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "max_position_embeddings": 256,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": 32,
    }
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    write("safetensors_fuzz", "config", b"c" + json.dumps(config | {"rope_parameters": scaling}).encode())
    legacy = {"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 2}, "head_dim": None}
    write("safetensors_fuzz", "config_legacy", b"c" + json.dumps(config | legacy).encode())


if __name__ == "__main__":
    main()
