"""How well Clef chooses among the ways to compute a product or a convolution: the time of the row chosen over that of the best row.

    regret.py BUILD FILE --time [--from A] [--to B]    times every row that applies to cases A … B and puts the times into FILE
    regret.py BUILD FILE                               asks what is chosen now, and compares it by the times in FILE

Timing takes some seconds for ten cases, and should have the machine to itself; FILE grows from call to call.  Choosing takes none,
so costs can be changed and tried again without new times, as long as no kernel changes.  CLEF_ROWS=NAME makes a process of
bench_clef take the row NAME wherever it applies; all of them are asked in turn.  Cases are drawn with a seed: always the same.
Every launch stands alone (CLEF_CHAIN=0): one row might have become a chain by then, and another not."""
import argparse
import json
import math
import os
import random
import statistics
import sys

import cases
import compare

os.environ["CLEF_CHAIN"] = "0"
PRODUCTS, CONVOLUTIONS, MOST_FLOPS = 200, 100, 1.5e9


def products():
    """Squares, narrow, short and long ones, in all four layouts."""
    draw, drawn = random.Random(1), {}
    size = lambda most: max(1, int(2 ** draw.uniform(0, math.log2(most)) + 0.5))
    while len(drawn) < PRODUCTS:
        kind, m, n, k = draw.randrange(4), size(1200), size(1200), size(1600)
        if kind == 0:
            m, n, k = (draw.choice((16, 64, 100, 128, 256, 384, 512, 768, 1024)) for _ in range(3))
        if kind == 1:
            m, n = draw.choice(((draw.randrange(1, 6), n), (m, draw.randrange(1, 6))))
        if kind == 2:
            m, n = draw.choice(((draw.randrange(6, 40), n), (m, draw.randrange(6, 40))))
        case = cases.gemm_case(m, n, k, draw.randrange(2), draw.randrange(2))
        if case[2] <= MOST_FLOPS:
            drawn[case[0]] = case
    return list(drawn.values())


def convolutions():
    """The benchmark's own, and others around them: more kernels, strides and channels."""
    draw, drawn = random.Random(2), {}
    for net in cases.NETS:
        for n in (1, 8):
            for direction in ("forward", "data", "weight"):
                case = case_of(net[0], n, net[1], net[2], net[3], net[4], net[5], net[6], net[7], direction)
                if case[2] <= MOST_FLOPS and draw.random() < 0.6:
                    drawn[case[1]] = case
    while len(drawn) < CONVOLUTIONS:
        c, o = draw.choice((1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)), draw.choice((1, 4, 6, 8, 12, 16, 20, 32, 48, 64, 128))
        side, kernel, stride = draw.choice((5, 7, 8, 12, 14, 16, 20, 28, 32, 56)), draw.choice((1, 2, 3, 3, 3, 4, 5, 7)), draw.choice((1, 1, 1, 2))
        n, pad = draw.choice((1, 2, 4, 8, 16, 32)), draw.choice((0, kernel // 2))
        if side + 2 * pad < kernel:
            continue
        case = case_of(f"{c}x{side}-{o} {kernel}", n, c, side, o, kernel, stride, pad, 1, draw.choice(("forward", "data", "weight")))
        if case[2] <= MOST_FLOPS:
            drawn[case[1]] = case
    return list(drawn.values())[:CONVOLUTIONS]


def case_of(name, n, c, side, o, kernel, stride, pad, groups, direction):
    return cases.conv_case(f"{name} s{stride} p{pad}", n, c, side, side, o, kernel, kernel, stride, pad, groups, direction)


class Rows:
    """Processes of bench_clef: one that chooses by itself, and one for every row."""

    def __init__(self, build):
        self.command, self.process = [os.path.join(build, "bench", "bench_clef")], {}

    def of(self, row):
        if row not in self.process:
            self.process[row] = compare.Program(row, self.command, {"CLEF_ROWS": row, "CLEF_TUNING": "0"})
        return self.process[row]

    def choice(self, line):
        """The name of the row chosen, and the seconds that each row is said to cost; None where there is no choice."""
        clef = self.of("")
        clef.process.stdin.write(f"{line} copies=2 ways=1\n")
        clef.process.stdin.flush()
        answer = clef.process.stdout.readline()
        op = "matmul: " if line.startswith("gemm") else "conv2d"
        for part in answer.removeprefix("rows ").split("; "):
            if part.startswith(op):
                chosen, _, costs = part.partition(": ")[2].partition(" of ")
                return chosen, {name: float(cost) for name, cost in (word.split("=") for word in costs.split()[:-1])}
        return None

    def time(self, line, rows, rounds, target):
        calls = {row: max(2, min(2000, int(target / max(self.of(row).ask(f"{line} copies=2 calls=2"), 1e-6)))) for row in rows}
        times = {row: [] for row in rows}
        for _ in range(rounds):
            for row in rows:
                times[row].append(self.of(row).ask(f"{line} copies=2 calls={calls[row]}"))
        return {row: min(times[row]) for row in rows}


def report(title, found):
    """found: (name, ratio, row chosen, best row) of cases with a choice."""
    if not found:
        return
    mean = math.exp(statistics.fmean(math.log(ratio) for _, ratio, _, _ in found))
    print(f"{title}: {len(found)} cases with a choice, geomean {mean:.3f}, worst {max(f[1] for f in found):.2f}")
    for name, ratio, chosen, best in sorted(found, key=lambda f: -f[1]):
        if ratio > 1.1:
            print(f"  {ratio:5.2f}  {name}: {chosen}, best is {best}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build")
    arguments.add_argument("file")
    arguments.add_argument("--time", action="store_true")
    arguments.add_argument("--from", type=int, default=0, dest="first")
    arguments.add_argument("--to", type=int, default=10**6)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--target", type=float, default=0.004, help="seconds of a timing, about")
    a = arguments.parse_args()
    times = json.load(open(a.file)) if os.path.exists(a.file) else {}
    rows, found, costs = Rows(a.build), {"gemm": [], "conv": []}, {}
    for name, line, _, _ in (products() + convolutions())[a.first:a.to]:
        choice = rows.choice(line)
        if choice and a.time:
            times[line] = rows.time(line, choice[1], a.rounds, a.target)
        if choice and set(choice[1]) <= set(times.get(line, {})):
            chosen, costs[line] = choice
            here = {row: times[line][row] for row in choice[1]}
            best = min(here, key=here.get)
            found[line.split()[0]].append((name, here[chosen] / here[best], chosen, best))
    if a.time:
        json.dump(times, open(a.file, "w"), indent=0)
    json.dump(costs, open(a.file + ".costs", "w"), indent=0)
    report("products", found["gemm"])
    report("convolutions", found["conv"])


if __name__ == "__main__":
    sys.exit(main())
