#!/usr/bin/env python3
"""Writes src/text/normal.def: what BERT's normalizer asks of Unicode.

C: runs of control, format and private code points (general categories Cc, Cf, Co); M: of marks that take no space (Mn); P: of punctuation
(P).  D: what a code point is after canonical decomposition (NFD) without marks, where that is another text; Hangul's is a rule.  L: the
lower case of `first`, `first` + step, …, `last`, as far from each; W: the one of two code points.
    python3 tests/expectations/normal.py >src/text/normal.def
"""
import sys
import unicodedata

import rows


def rows_of(letter, inside):
    for first, last, _ in rows.runs(lambda code: inside(chr(code))):
        yield f"{letter}({first:X},{last:X})"


def decomposed():
    for code in range(128, sys.maxunicode + 1):
        if 0xAC00 <= code < 0xD7A4 or 0xD800 <= code < 0xE000:
            continue
        parts = [c for c in unicodedata.normalize("NFD", chr(code)) if unicodedata.category(c) != "Mn"]
        if parts and parts != [chr(code)]:
            assert len(parts) <= 3, hex(code)
            yield f"D({code:X}," + ",".join(f"{ord(c):X}" for c in [*parts, "\0", "\0"][:3]) + ")"


def lowered():
    pairs = [(c, ord(chr(c).lower())) for c in range(128, sys.maxunicode + 1) if len(chr(c).lower()) == 1 and chr(c).lower() != chr(c)]
    pairs = dict(pairs)
    while pairs:
        first = min(pairs)
        far = pairs[first] - first
        step = 2 if first + 1 not in pairs and pairs.get(first + 2, 0) - first - 2 == far else 1
        last = first
        while pairs.get(last, 0) - last == far:
            del pairs[last]
            last += step
        yield f"L({first:X},{last - step:X},{far},{step})"
    for code in range(128, sys.maxunicode + 1):
        if len(chr(code).lower()) > 1:
            a, b = chr(code).lower()
            yield f"W({code:X},{ord(a):X},{ord(b):X})"


def main():
    print(f"/* normal.def — what BERT's normalizer asks of Unicode {unicodedata.unidata_version}.  Made by tests/expectations/normal.py, which")
    print("   says what each row means; numbers are hexadecimal. */")
    category = unicodedata.category
    rows.write([*rows_of("C", lambda c: category(c) in ("Cc", "Cf", "Co")), *rows_of("M", lambda c: category(c) == "Mn"),
                *rows_of("P", lambda c: category(c)[0] == "P"), *decomposed(), *lowered()])


main()
