#!/usr/bin/env python3
"""Writes src/text/unicode.def: runs of code points that are letters (general category L), numbers (N) or white space, and of those
that may be another text after composition (NFC): combining marks, what composes with a character before it, what is decomposed.

White space is the property White_Space of the standard: what str.isspace says, without the separators U+001C to U+001F.
    python3 tests/expectations/unicode.py >src/text/unicode.def
"""
import sys
import unicodedata

import rows


def kind(code):
    c = chr(code)
    if unicodedata.category(c)[0] == "L":
        return "LETTER"
    if unicodedata.category(c)[0] == "N":
        return "NUMBER"
    return "SPACE" if c.isspace() and not 0x1C <= code <= 0x1F else None


def seconds():
    """What composes with a character before it."""
    codes = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and parts[0][0] != "<" and unicodedata.is_normalized("NFC", chr(code)):
            codes.add(int(parts[1], 16))
    return codes


SECONDS = seconds()


def composes(code):
    c = chr(code)
    return "COMPOSES" if code in SECONDS or unicodedata.combining(c) or not unicodedata.is_normalized("NFC", c) else None


def rows_of(kind):
    for first, last, what in rows.runs(kind):
        arguments = f"0x{first:05X}, 0x{last:05X}"
        yield f"COMPOSES({arguments})" if what == "COMPOSES" else f"R({arguments}, {what})"


def main():
    print(f"/* unicode.def — letters, numbers and white space of Unicode {unicodedata.unidata_version}, in order.  Made by")
    print("   tests/expectations/unicode.py.   first   last   class.  Behind them COMPOSES: what NFC may change. */")
    rows.write([*rows_of(kind), *rows_of(composes)])


main()
