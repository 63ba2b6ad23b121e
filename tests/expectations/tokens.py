#!/usr/bin/env python3
"""Writes gpt2_tokens.json, llama_tokens.json and tokens.def beside itself: two small tokenizers learned by Hugging Face's `tokenizers`, and what
it makes of a handful of texts.
    python3 tests/expectations/tokens.py
"""
import json
import os
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LEARNED_FROM = "the theatre's other three, then that; don't they'll it's 1234 12345 123 \u00e9t\u00e9 caf\u00e9\n\n  where there ...\n" * 3
TEXTS = ["", "the other theatre", "  three   spaces  ", "don't DON'T they'll THEY'LL", "1234567 in 2024", "caf\u00e9 \u00e9t\u00e9 \u4f60\u597d \U0001f600",
         "lines\r\n\r\n  and\tmore\n", "the<|end|>other <|end|>", "<|end|", "\u00a0a\u3000b\u0085c", "it's\u017fit'\u017f ... !?\n\n", "x\u00bd\u0663\u0301"]


def write(name, tokenizer):
    with open(os.path.join(HERE, name), "w", newline="\n") as f:
        f.write(json.dumps(json.loads(tokenizer.to_str()), separators=(",", ":")) + "\n")


def c_string(text):
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()) + '"'


def main():
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2.decoder = decoders.ByteLevel()
    gpt2.train_from_iterator([LEARNED_FROM], trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|end|>"], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    other = json.loads(gpt2.to_str())
    split = {"type": "Split", "pattern": {"Regex": LLAMA}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    other["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]}
    other["model"]["ignore_merges"] = True
    llama = Tokenizer.from_str(json.dumps(other))
    with open(os.path.join(HERE, "tokens.def"), "w", newline="\n") as out:
        out.write(f"/* Made by tokens.py with tokenizers {tokenizers.__version__}; see there.  file, text, its length, its tokens */\n")
        for name, tokenizer in (("gpt2", gpt2), ("llama", llama)):
            write(f"{name}_tokens.json", tokenizer)
            for text in TEXTS:
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                numbers = ", ".join(str(i) for i in [*ids, -1])
                out.write(f"TOKENS({name}, {c_string(text)}, {len(text.encode())}, NUMBERS({numbers}))\n")


main()
