#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tokenizer fixtures: texts with the ids that the `tokenizers` library gives them.

  pip install tokenizers==0.23.3 gguf==0.19.0
  tests/golden/tokenizer/generate.py MODELS_DIR

MODELS_DIR holds qwen2.5-coder-0.5b-instruct-q4_k_m.gguf; its vocabulary and merges go into the
library's BPE, so only the algorithm and the regular expressions' engine are the oracle's there.
The two small tokenizers are trained by the library on the texts below and stored beside the ids.
No Unicode normalisation is applied: the runtime keeps every byte of its input.
"""
import json
import pathlib
import random
import sys

import gguf
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t\t", "\r\n", "\r\n\r\n  x", "a\u00a0b",
    "Hello, world!", " Hello", "Hello  world", "Hello   world   ", "I'm you're WE'LL I'D it's IT'S'S",
    "\u2019s don\u2019t", "'\u017fs '\u017f", "1234567890", "3.14159e-10", "x=1+2;y=x**2", "12\u0663\u0664 \u216b \u00bd \u00b2",
    "def f(x):\n    return x + 1\n\n\n\nclass A:\n\tpass\n", "    indented\n        more\n", "a\n  \n  b",
    "if (a && b || !c) { ++i; }  // comment", "/* multi\n * line\n */", "https://example.org/a?b=c&d=%20#e",
    "caf\u00e9 cafe\u0301 na\u00efve \u00fcber stra\u00dfe", "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\uc548\ub155\ud558\uc138\uc694",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u05e9\u05dc\u05d5\u05dd", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\U0001f600\U0001f680 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea", "zero\u200bwidth\ufeffbom", "\u180e\u2003\u3000\u2028\u2029\u0085x", "e\u0301\u0302\u0303",
    "\u0000\u0001\u007f", "...!!!???", "----====____", "$100 \u20ac50 \u00a330", "C:\\path\\to\\file", "a" * 300, " " * 100 + "x", "\n" * 50,
    "ab" * 200, "The quick brown fox jumps over the lazy dog. " * 3, "<|im_end|>", "<|im_start|>user\nhi<|im_end|>",
    "<tool_call>x</tool_call>", "<|endoftext|", "x<|endoftext|>y", "<<|im_end|>>", "[PAD151665]", "don'T Can'T '\u0130",
    "\u01c5 \u02b0 \u0301 \u1c90", "x\u0300\u0301y", "_\u00aa_\u00ba", "\u0391\u0392\u0393 \u03b1\u03b2\u03b3 \u1f00\u1f70", "\u2460\u3220\u0bf0",
]


def random_texts(count):
    rng = random.Random(20240)
    alphabet = (list("abcdefghij  \n\t'sSdD1234.,;:(){}[]<>|_-+=/\\\"") +
                list("\u00e9\u00df\u4e16\u754c\u3042\u0430\u05d0\U0001f600\u00a0\u2003\u0301\u0663\r"))
    return ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 80))) for _ in range(count)]


def pairs(tokenizer, texts):
    return [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts]


def byte_level(steps):
    return pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def qwen2(path, special):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    vocab = {t: i for i, (t, k) in enumerate(zip(tokens, kinds)) if k == 1}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = byte_level([pre_tokenizers.Split(Regex(QWEN2), "isolated")])
    wanted = (3, 4) if special else (4,)
    # The library numbers added tokens on its own: translated back by their text.
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, kinds) if k in wanted])
    ids = {t: i for i, t in enumerate(tokens)}
    return [[text, [ids[t] for t in tokenizer.encode(text, add_special_tokens=False).tokens]]
            for text in TEXTS + random_texts(120)]


def trained(pre_tokenizer, ignore_merges):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, show_progress=False, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS + random_texts(400), trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False)])
    return tokenizer


def main():
    here = pathlib.Path(__file__).parent
    source = pathlib.Path(sys.argv[1]) / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    versions = {"tokenizers": tokenizers.__version__, "gguf": gguf.__version__ if hasattr(gguf, "__version__") else "0.19.0"}
    out = {"versions": versions,
           "qwen2": {"file": source.name, "plain": qwen2(source, False), "special": qwen2(source, True)}}
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    for name, pre, ignore in [
            ("digits_gpt2", digits, False),
            ("llama3", byte_level([pre_tokenizers.Split(Regex(LLAMA3), "isolated")]), True)]:
        tokenizer = trained(pre, ignore)
        tokenizer.save(str(here / f"{name}.tokenizer.json"), pretty=False)
        out[name] = {"file": f"{name}.tokenizer.json", "special": pairs(tokenizer, TEXTS + random_texts(120))}
    text = json.dumps(out, separators=(",", ":")).replace('],["', '],\n["')
    (here / "pairs.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
