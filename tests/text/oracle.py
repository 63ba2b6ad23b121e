#!/usr/bin/env python3
"""The oracle of main_tokenizers.c: Hugging Face's `tokenizers`.

oracle.py DIR make    writes texts, tokenizers and what they make of the texts
oracle.py DIR check   compares what the C program made of them with its own tokenizers, which it saved
Exits with 77 where the module is missing.  Numbers in files are little-endian i64; a text is its length and its bytes.
"""
import json
import os
import random
import struct
import sys
import unicodedata

try:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    print("skipped: this Python has no tokenizers (pip install tokenizers)")
    sys.exit(77)

LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA.replace("{1,3}", "")
SPECIAL = ["<|endoftext|>", "<|im|>", "<|im|>>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
directory, phase = sys.argv[1], sys.argv[2]


def path(name):
    return os.path.join(directory, name)


BARE = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
CLEANS, STRIPS = normalizers.BertNormalizer(**{**BARE, "clean_text": True}), normalizers.BertNormalizer(**{**BARE, "strip_accents": True})
SPLITS = pre_tokenizers.BertPreTokenizer()


def is_known(c):
    """Has BERT's normalizer the class of the character that Unicode 14 has?  Its tables are those of Unicode 8."""
    kind = unicodedata.category(c)
    if (STRIPS.normalize_str(c) == c) != (unicodedata.normalize("NFD", c) == c and kind != "Mn"):
        return False
    if kind[0] == "P":
        return len(SPLITS.pre_tokenize_str(f"a{c}b")) == 3
    return len(SPLITS.pre_tokenize_str(f"a{c}b")) != 3 or ord(c) < 128 if kind != "Cf" else CLEANS.normalize_str(c) == ""


def characters():
    """Characters that every Unicode since 14 knows in the same way, and BERT's normalizer does."""
    known = [chr(c) for c in range(1, 0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    return [c for c in known if is_known(c)]


def texts(rng):
    every = characters()
    pieces = ["'s", "'LL", "'re", "'\u017f", "'", " ", "  ", "   ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u0085", "12345", "7", "\u00bd", "\u0663",
              "word", "Word", " of", "caf\u00e9", "\u4f60\u597d", "\U0001f600", "e\u0301", "...", "!?", "_", "#", "\x1c", *SPECIAL, "<|im", "<", *BERT, "[", "\u0130", "\u1e9e", "\u03a3", "\uac00\ub098", "\uff0c", "don't", "\u0301", "\u00c9T\u00c9"]
    made = ["", " ", "\n", "a", "don't  you\n\n  know 'S it'll   ", "  leading", "trailing  ", "x" * 1000, " " * 100 + "y", "ab" * 700]
    for i in range(1500):
        n = rng.randint(1, 40)
        if i % 3 == 0:
            made.append("".join(rng.choice(pieces) for _ in range(n)))
        elif i % 3 == 1:
            made.append("".join(rng.choice(every) for _ in range(n)))
        else:
            made.append("".join(rng.choice([rng.choice(pieces), chr(rng.randint(32, 126)), rng.choice(every)]) for _ in range(n)))
    return made


def corpus(rng):
    words = ["".join(rng.choice("etaoinshrdlu") for _ in range(rng.randint(1, 9))) for _ in range(400)]
    return "".join(rng.choice(words) + rng.choice([" ", " ", " ", ", ", ".\n", "'s ", " 12 ", " \u00e9t\u00e9 ", " \u4f60\u597d "]) for _ in range(12000))


def write_texts(name, made):
    with open(path(name), "wb") as f:
        f.write(struct.pack("<q", len(made)))
        for text in made:
            data = text.encode() if isinstance(text, str) else text
            f.write(struct.pack("<q", len(data)) + data)


def write_ids(name, lists):
    with open(path(name), "wb") as f:
        for ids in lists:
            f.write(struct.pack(f"<q{len(ids)}q", len(ids), *ids))


def read_ids(name, count):
    with open(path(name), "rb") as f:
        data = f.read()
    at, lists = 0, []
    for _ in range(count):
        (n,) = struct.unpack_from("<q", data, at)
        lists.append(list(struct.unpack_from(f"<{n}q", data, at + 8)))
        at += 8 + 8 * n
    assert at == len(data)
    return lists


def encode_all(tokenizer, made):
    return [e.ids for e in tokenizer.encode_batch(made, add_special_tokens=False)]


def write_case(name, tokenizer, made, rng):
    size = tokenizer.get_vocab_size()
    drawn = [[rng.randrange(size - 5 if rng.random() < 0.1 else 0, size) for _ in range(rng.randint(1, 12))] for _ in range(300)]
    write_ids(f"{name}.ids", encode_all(tokenizer, made))
    write_ids(f"{name}.drawn", drawn)
    write_texts(f"{name}.decoded", [tokenizer.decode(ids, skip_special_tokens=False) for ids in drawn])


def learned(made, size, uses_regex):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=uses_regex)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(made, trainer)
    return tokenizer


def words(made):
    """BERT's kind: one vocabulary, several normalizers."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=9000, special_tokens=BERT, show_progress=False)
    tokenizer.train_from_iterator([*made, *(text.lower() for text in made), *("".join(c for c in unicodedata.normalize("NFD", text) if
                                   unicodedata.category(c) != "Mn").lower() for text in made)], trainer)
    tokenizer.normalizer = normalizers.BertNormalizer()
    return tokenizer


def make_words(made, rng):
    text = json.loads(words(made).to_str())
    for token in ("n't", "'m", "'s", "'ve", "'re"):  # before which decoding writes no space
        text["model"]["vocab"].setdefault(token, len(text["model"]["vocab"]))
    first = Tokenizer.from_str(json.dumps(text))
    os.mkdir(path("words"))
    first.model.save(path("words"))  # vocab.txt
    with open(path("words/tokenizer_config.json"), "w") as f:
        json.dump({"do_lower_case": False, "tokenizer_class": "BertTokenizer", "model_max_length": 512}, f)
    os.mkdir(path("lower"))
    first.model.save(path("lower"))
    changes = {"bert": {}, "cased": {"lowercase": False}, "accents": {"strip_accents": False}, "stripped": {"lowercase": False, "strip_accents": True},
               "raw": {"clean_text": False, "handle_chinese_chars": False}}
    for name, change in changes.items():
        other = json.loads(first.to_str())
        other["normalizer"].update(change)
        other["decoder"]["cleanup"] = name != "cased"
        if name == "accents":
            other["model"]["max_input_chars_per_word"] = 5
        tokenizer = Tokenizer.from_str(json.dumps(other))
        tokenizer.save(path(f"{name}.json"))
        write_case(name, tokenizer, made, rng)


def make():
    rng = random.Random(17)
    made, text = texts(rng), corpus(rng)
    write_texts("texts", made)
    with open(path("corpus"), "w", newline="") as f:
        f.write(text)
    gpt2 = learned([text], 900, True)
    gpt2.save(path("gpt2.json"))
    write_case("gpt2", gpt2, made, rng)
    gpt2.model.save(directory)  # vocab.json and merges.txt
    # Merges across all borders of words, so that a border in another place gives other tokens.
    crossing = learned([text * 2 for text in made], 6000, False).to_str()
    for name, regex, whole in (("crossing", None, False), ("llama", LLAMA, True), ("qwen", QWEN, False)):
        other = json.loads(crossing)
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex is None}
        split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        other["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]} if regex else level
        other["model"]["ignore_merges"] = whole
        if whole:  # a word that merges do not reach
            other["model"]["vocab"]["\u0120wordword"] = len(other["model"]["vocab"])
        tokenizer = Tokenizer.from_str(json.dumps(other))
        tokenizer.save(path(f"{name}.json"))
        write_case(name, tokenizer, made, rng)
    make_words(made, rng)


def check():
    rng = random.Random(17)
    made = texts(rng)
    for name in ("bert", "cased", "accents", "stripped", "raw"):
        again = Tokenizer.from_file(path(f"{name}_again.json"))
        if encode_all(again, made) != read_ids(f"{name}.ids", len(made)):
            sys.exit(f"{name}: what was written is another tokenizer")
    for name in ("learned", "letters", "bytes"):
        got = read_ids(f"{name}.ids", len(made))
        want = encode_all(Tokenizer.from_file(path(f"{name}.json")), made)
        wrong = [i for i in range(len(made)) if got[i] != want[i]]
        if wrong:
            sys.exit(f"{name}: text {wrong[0]} {made[wrong[0]]!r}: {got[wrong[0]]} and not {want[wrong[0]]}")
        back = Tokenizer.from_file(path(f"{name}.json")).decode_batch(want, skip_special_tokens=False)
        if back != made:
            sys.exit(f"{name}: decoding is not the text again")


make() if phase == "make" else check()
