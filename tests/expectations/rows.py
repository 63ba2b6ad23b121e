"""What the scripts that write tables of Unicode share: runs of code points of one kind, and rows side by side."""
import sys


def runs(kind):
    """(first, last, kind) of each run of code points that are of one kind; of those of none, None, there is no run."""
    first, before = 0, None
    for code in range(sys.maxunicode + 2):
        now = kind(code) if code <= sys.maxunicode else None
        if now == before:
            continue
        if before:
            yield first, code - 1, before
        first, before = code, now


def write(rows):
    print("/* clang-format off */")
    line = ""
    for row in rows:
        if len(line) + len(row) > 130:
            print(line.rstrip())
            line = ""
        line += row + " "
    print(line.rstrip())
    print("/* clang-format on */")
