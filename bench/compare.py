"""Clef beside its peers, interleaved in one run; bench/compare.sh starts it.

For every case all programs are asked in turn, several rounds (A B C A B C …); the figure is the median of a program's rounds, the
ratio is the best peer's time over Clef's (above 1: Clef is faster).  The machine's multiply-add peak and stream bandwidth are
measured in the same minute, as figures without them say little on a shared machine."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

import cases

SETTLE = 0.05  # seconds: threads of OpenBLAS and OpenMP spin for a while after their work, and would take the next program's cores


class Program:
    def __init__(self, name, command, environment=None):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        self.ready = self.process.stdout.readline().strip().removeprefix("ready ")
        if not self.ready:
            raise OSError(f"{name} did not start")

    def ask(self, line):
        """Seconds of one call, or None with the reason in self.reason."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        word, _, rest = self.process.stdout.readline().strip().partition(" ")
        if word == "seconds":
            return float(rest)
        self.reason = rest or "it ended"
        return None

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def start(build):
    """Clef first, then every peer that is here; the names of those that are not."""
    avx512 = "avx512f" in open("/proc/cpuinfo").read() if os.path.exists("/proc/cpuinfo") else False
    wanted = [("clef", [os.path.join(build, "bench", "bench_clef")], None),
              ("openblas", [os.path.join(build, "bench", "peer_openblas")], {"OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", "SkylakeX")} if avx512 else None),
              ("clblast", [os.path.join(build, "bench", "peer_clblast")], None),
              ("onednn", [os.path.join(build, "bench", "peer_onednn")], None),
              ("torch", [sys.executable, os.path.join(os.path.dirname(__file__), "peers", "peer_torch.py")], None)]
    programs, missing = [], []
    for name, command, environment in wanted:
        try:
            programs.append(Program(name, command, environment))
        except OSError:
            missing.append(name)
    if not programs or programs[0].name != "clef":
        sys.exit("compare: bench_clef did not start; build it first (bench/compare.sh does)")
    return programs, missing


def calls_for(program, line, target):
    """How many calls of this program make a round of about `target` seconds; None if it does not take the case."""
    if line.startswith("epoch "):
        return 1
    if line.startswith("host "):
        return 30
    if line.startswith("idle "):
        return 100
    if program.ask(f"{line} calls=4") is None:  # with what is done once, such as compiling: a round's length does not follow from it
        return None
    return max(2, min(200, int(target / max(program.ask(f"{line} calls=2"), 1e-6))))


def machine(clef):
    peak = [clef.ask("peak calls=10") for _ in range(3)]
    stream = [clef.ask("stream calls=5") for _ in range(3)]
    good = lambda times: [t for t in times if t]
    return {"fma_peak_gflops": 2 * 12 * 1024 * (3 << 12) / min(good(peak)) / 1e9 if good(peak) else None,
            "stream_gbs": 2 * 4 * (16 << 20) / min(good(stream)) / 1e9 if good(stream) else None}


def measure(programs, line, rounds, target):
    calls = {p.name: calls_for(p, line, target) for p in programs}
    if calls["clef"] is None:
        return None, {}, programs[0].reason
    times = {p.name: [] if calls[p.name] else None for p in programs}
    for _ in range(rounds):
        for p in programs:
            if times[p.name] is not None:
                time.sleep(SETTLE)
                seconds = p.ask(f"{line} calls={calls[p.name]}")
                times[p.name] = None if seconds is None else times[p.name] + [seconds]
    medians = {name: statistics.median(t) for name, t in times.items() if t}
    return medians.pop("clef", None), medians, ""


def unit_of(suite, flops, moved, seconds):
    if suite in ("gemm", "conv", "attention", "rnn") or (suite == "lm" and not moved):
        return flops / seconds / 1e9, "GFLOP/s"
    if suite in ("train", "infer", "idle"):
        return 1e3 * seconds, "ms"
    if suite == "host":
        return 1e6 * seconds, "µs/launch"
    return moved / seconds / 1e9, "GB/s"


def geomean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def run_suite(suite, programs, missing, args):
    ratios, measured, listed = [], 0, cases.SUITES[suite](args.quick)
    clef = programs[0]
    if not args.json:
        print(f"\n{suite}: {len(listed)} cases; {clef.ready}; " + ", ".join(p.ready for p in programs[1:]))
        if missing:
            print(f"missing peers: {', '.join(missing)} (--install)")
    for name, line, flops, moved in listed:
        seconds, peers, reason = measure(programs, line, args.rounds, args.seconds)
        if seconds is None:
            print(json.dumps({"suite": suite, "case": name, "skipped": reason}) if args.json else f"  {name:34} skipped: {reason}")
            continue
        measured += 1
        value, unit = unit_of(suite, flops, moved, seconds)
        others = {p: unit_of(suite, flops, moved, t)[0] for p, t in peers.items()}
        ratio = min(peers.values()) / seconds if peers else None
        if ratio:
            ratios.append(ratio)
        if args.json:
            print(json.dumps({"suite": suite, "case": name, "clef": value, "unit": unit, "peers": others, "ratio": ratio}), flush=True)
        else:
            text = "  ".join(f"{p} {v:9.2f}" for p, v in others.items())
            print(f"  {name:34} clef {value:9.2f} {unit:8} {text}  ratio {ratio or float('nan'):.2f}", flush=True)
    summarise(suite, measured, ratios, {**machine(clef), "device": clef.ready}, args)


def summarise(suite, measured, ratios, facts, args):
    """The suite's last line: how many cases, what Clef is beside the best peers where there are some, and on what."""
    beside = {"geomean": geomean(ratios), "min": min(ratios)} if ratios else {}
    end = {"suite": suite, "cases": measured, **beside, **facts, "date": time.strftime("%Y-%m-%d")}
    if suite in cases.left_out:
        end["deepbench_left_out"], end["deepbench_cases"], _ = cases.left_out[suite]
    if args.json:
        print(json.dumps(end), flush=True)
        return
    print("  " + "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in end.items()
                           if k != "suite" and not k.startswith("deepbench")))
    if suite in cases.left_out:
        left, listed, flops = cases.left_out[suite]
        print(f"  left out {left} of {listed} cases from DeepBench, of more than {flops / 1e9:.0f} GFLOP or {cases.MOST_BYTES / 1e6:.0f} MB")


def seconds_to_first_step(command, environment):
    """From the process's start until it says that its first training step is done, and until it has ended; and on which device."""
    begin, first, device = time.perf_counter(), None, None
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout:
            event = json.loads(line)
            device = event.get("device", device)
            if event["event"] == "first_step":
                first = time.perf_counter() - begin
    if process.returncode or first is None:
        raise RuntimeError(f"{command[0]} failed")
    return first, time.perf_counter() - begin, device


def cold_and_warm(args):
    """LeNet's first step with empty caches, which the run fills, and then with these."""
    import shutil
    import tempfile
    tool = os.path.join(args.build, "clef")
    command = [tool, "train", "--data", "digits", "--model", "lenet", "--epochs", "1", "--limit", "32", "--batch", "32", "--json", "--quiet"]
    seconds = {"cold": [], "warm": [], "cold process": [], "warm process": []}
    for _ in range(args.rounds):
        home = tempfile.mkdtemp()
        environment = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "POCL_CACHE_DIR": os.path.join(home, "pocl")}
        os.makedirs(environment["POCL_CACHE_DIR"])
        for case in ("cold", "warm"):
            first, all_of_it, device = seconds_to_first_step(command, environment)
            seconds[case].append(first)
            seconds[case + " process"].append(all_of_it)
        shutil.rmtree(home)
    for case, values in seconds.items():
        line = {"suite": "start", "case": f"lenet {case}", "clef": statistics.median(values), "unit": "s", "peers": {}, "ratio": None}
        text = "to the first training step" if " " not in case else "one step, evaluation and exit, which keeps what was compiled"
        print(json.dumps(line) if args.json else f"  start {case:13} {line['clef']:6.2f} s  {text}")
    summarise("start", len(seconds), [], {"device": device}, args)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("suites", nargs="+", choices=[*cases.SUITES, "start", "all"])
    parser.add_argument("--build", required=True)
    parser.add_argument("--quick", action="store_true", help="fewer cases, two rounds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a round")
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.quick else 5)
    wanted = [*cases.SUITES, "start"] if "all" in args.suites else args.suites
    if any(s != "start" for s in wanted):
        programs, missing = start(args.build)
        for suite in wanted:
            if suite != "start":
                run_suite(suite, programs, missing, args)
        for p in programs:
            p.close()
    if "start" in wanted:
        cold_and_warm(args)


if __name__ == "__main__":
    main()
