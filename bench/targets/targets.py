"""What kernels of GPU profiles take of devices that are not here.  See bench/targets.sh.

    targets.py tools        is there a compiler for any target?
    targets.py list    OUT  the programs and launches of every case under each device of cl/devices.def, as stub_opencl.c writes them down
    targets.py compile OUT  those programs through the makers' compilers: OUT/kernels.json, OUT/report.md; fails where a gate does

A gate holds for every kernel that a GPU launches: it compiles; no spills; no private memory; no more local memory than a
work-group of the device may have; at least a quarter of the work-items that a compute unit can hold (occupancy); no division of 64 bits
in a loop unless 32 bits are tried first, and no product of 64 bits in the main loop.  exceptions.txt lists what is let through, each
with its reason.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import cases as bench  # noqa: E402
import compile as compilers  # noqa: E402

LEAST_OCCUPANCY = 0.25
FIELDS = ("key platform name extensions units mhz gib kib dedicated in_step group lanes target loops fma matrix bandwidth mib regs items groups "
          "unit_kib launch issue local_bytes").split()


# ---- cl/devices.def ----
def read_value(text):
    text = text.strip()
    return text[1:-1] if text.startswith('"') else {"true": True, "false": False}.get(text, float(text) if text[0].isdigit() else text)


def read_devices():
    with open(os.path.join(os.path.dirname(os.path.dirname(HERE)), "cl", "devices.def")) as f:
        rows = re.findall(r"(?m)^DEVICE\((.*)\)$", f.read())
    devices = [dict(zip(FIELDS, map(read_value, re.findall(r'"[^"]*"|[^,]+', row)))) for row in rows]
    return {d["key"]: d for d in devices}


# ---- listing ----
def all_cases(quick, halves):
    """(case, line) of bench_clef: every suite, and what can be had in half types in these, too."""
    suites = ("gemm", "conv", "reduce", "ops", "norm", "attention", "pointwise", "unary", "rnn", "train", "infer", "lm")
    encoder = "lm part=encoder layers=2 heads=12 width=768 vocabulary=30522 batch=4 context=64"
    listed = [("lm: BERT step b4 t64", encoder)] + [(f"lm: BERT step b4 t64, {half}", f"{encoder} dtype={half}") for half in halves]
    for suite in suites[-3:] if quick else suites:
        for name, line, *_ in bench.SUITES[suite](True):
            if not line.startswith("epoch") and "dtype=" not in line:
                line = re.sub(r" steps=\d+", " steps=4", line)  # of a sequence: more of them launch no other kernels
                listed.append((f"{suite}: {name}", line))
                if suite not in ("pointwise", "unary", "train", "infer"):
                    listed += [(f"{suite}: {name}, {half}", f"{line} dtype={half}") for half in halves]
    return listed


def has_tf32(device):
    """Matrix units by PTX: compute capability 8.0 and later."""
    return device["target"].startswith("sm_") and device["target"][3] >= "8"


def tf32_cases(quick):
    """(case, line) with f32 rounded to TF32: products in all orders, a language model and one of images."""
    listed = [("gemm", bench.gemm_case(4096, 4096, 4096, ta, tb)) for ta in (0, 1) for tb in (0, 1)]
    for suite in () if quick else ("gemm", "conv"):
        listed += [(suite, case) for case in bench.SUITES[suite](True)]
    listed += [(suite, case) for suite in ("lm", "train") for case in bench.SUITES[suite](True) if case[0].startswith(("GPT-2", "resnet18"))]
    return [(f"{suite}: {name}, TF32", f"{line} precision=high") for suite, (name, line, *_) in listed]


def list_case(out, device, case, line, build):
    environment = dict(os.environ, LD_PRELOAD=os.path.join(build, "bench", "stub_opencl.so"), CLEF_STUB_DEVICE=device["key"], CLEF_STUB_OUT=out,
                       CLEF_STUB_CASE=case, CLEF_CACHE="0", CLEF_DEVICE="0")
    done = subprocess.run([os.path.join(build, "bench", "bench_clef")], input=f"{line} calls=1 copies=2\n", text=True, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = done.stdout.splitlines()
    good = done.returncode == 0 and len(said) == 2 and device["name"] in said[0] and said[1].startswith("seconds")
    return None if good else f"{device['key']}, {case}: {(said + [done.stderr])[-1].strip()}"


def list_all(out, devices, build, quick, threads):
    os.makedirs(out, exist_ok=True)
    for old in os.listdir(out):
        if old.endswith((".cl", ".jsonl")):
            os.remove(os.path.join(out, old))
    # In short each half type on every other device.
    halves = lambda i: ("f16", "bf16") if not quick else ("f16",) if i % 2 == 0 else ("bf16",)
    cases_of = lambda i, device: all_cases(quick, halves(i)) + (tf32_cases(quick) if has_tf32(device) else [])
    jobs = [(out, device, case, line, build) for i, device in enumerate(devices) for case, line in cases_of(i, device)]
    with ThreadPoolExecutor(threads) as pool:
        failures = [f for f in pool.map(lambda job: list_case(*job), jobs) if f]
    programs = sum(name.endswith(".cl") for name in os.listdir(out))
    print(f"listed: {len(jobs)} cases on {len(devices)} devices, {programs} programs, {len(failures)} failures")
    for failure in failures:
        print("  " + failure)
    return not failures


# ---- what a launch can hold of a compute unit ----
def occupancy(device, kernel, group):
    """Work-items at once / the most that a compute unit can hold; limits: registers, local memory, groups, items."""
    step = device["in_step"]
    waves = -(-group // step)
    items = waves * step
    unit = 8 if device["target"].startswith("sm_") else 4
    registers = -(-max(kernel["registers"], 16) // unit) * unit
    fit = [device["groups"], device["items"] // items, device["regs"] // (registers * items)]
    if kernel["local"]:
        fit.append(device["unit_kib"] * 1024 // kernel["local"])
    return max(0, min(fit)) * items / device["items"]


def judge(device, kernel, launch):
    group = launch["local"][0] * launch["local"][1] * launch["local"][2]
    launch["occupancy"] = occupancy(device, kernel, group) if kernel["registers"] else 1.0
    faults = []
    if kernel["spills"]:
        faults.append(f"{kernel['spills']} bytes of spills")
    if kernel["private"]:
        faults.append(f"{kernel['private']} bytes of private memory")
    if kernel["local"] > device["kib"] * 1024:
        faults.append(f"{kernel['local']} bytes of local memory of {device['kib'] * 1024:.0f}")
    if kernel.get("wide_divisions"):
        faults.append(f"{kernel['wide_divisions']} divisions of 64 bits in loops")
    if kernel.get("wide_products"):
        faults.append(f"{kernel['wide_products']} products of 64 bits in the main loop")
    if group > device["group"]:
        faults.append(f"a work-group of {group}")
    if launch["occupancy"] < LEAST_OCCUPANCY:
        faults.append(f"occupancy {launch['occupancy']:.0%} ({kernel['registers']} registers, {kernel['local']} bytes of local memory, groups of {group})")
    return faults


# ---- what goes with a multiply-add along k: src/tools/loops.def ----
def read_loops():
    with open(os.path.join(os.path.dirname(os.path.dirname(HERE)), "src", "tools", "loops.def")) as f:
        rows = re.findall(r'(?m)^LOOP\("(\w+)",(.*)\)$', f.read())
    return {name: dict(zip(("sums", "regs", "each", "nvidia", "other", "bytes"), map(float, numbers.split(",")))) for name, numbers in rows}


def knobs_of(out, program):
    with open(os.path.join(out, program + ".cl")) as f:
        return {name: int(value) for name, value in re.findall(r"-D(\w+)=(\d+)\b", f.readline())}


def is_half(out, program):
    with open(os.path.join(out, program + ".cl")) as f:
        return re.search(r"_IN=b?f16\b", f.readline())


def loop_name(out, launch):
    """The row of loops.def: on matrix units f32 has rows of its own."""
    with open(os.path.join(out, launch["program"] + ".cl")) as f:
        rounds = launch["kernel"].startswith("matrix") and re.search(r"-DIN=f32\b", f.readline())
    return launch["kernel"] + ("_tf32" if rounds else "")


def per_multiply(kernel, name, knobs):
    """Instructions issued, and bytes of local memory read by a work-item, for each of the instructions that multiply.  The loop along k
    is run once for TK: it is the main loop where the compiler unrolled what multiplies one block, else the loop around that."""
    inner = kernel["loop"]
    by_units = name.startswith("matrix")
    here = inner.get("matrix" if by_units else "fma", 0)
    product = 1 if not by_units else 16 * 8 * 8 if name.endswith("_tf32") else 16 * 8 * 16
    trips = max(1, knobs["TK"] * knobs["RM"] * knobs["RN"] / product / here)
    issued = sum((kernel["around"] if trips > 1 else inner).values()) + (trips - 1) * sum(inner.values())
    return issued / (trips * here), 16 * inner.get("local128", 0) / here


def check_loops(out, devices, launches, results):
    """What loops.def says and the compiled code does not, of the largest tiles with k of one level, of f32 or for matrix units."""
    wrong = set()
    for launch in launches:
        device, name = devices[launch["device"]], loop_name(out, launch)
        told = read_loops().get(name)
        if not told or device["target"] not in ("sm_80", "gfx906"):
            continue
        kernel = results.get((device["target"], launch["program"]), {}).get("kernels", {}).get(launch["kernel"])
        knobs = knobs_of(out, launch["program"])
        largest = knobs.get("GM", 0) * knobs["RM"] == 128 and knobs["GN"] * knobs["RN"] == 128
        if not kernel or not kernel.get("loop") or not largest or not knobs["FLAT"] or (launch["kernel"] == "tile" and is_half(out, launch["program"])):
            continue
        issued, read = per_multiply(kernel, name, knobs)
        key = device["loops"]
        for what, counted, said in ((f"{key} instructions", issued, told[key]), ("bytes", read / told["each"], told["bytes"])):
            if counted > 1.05 * said:
                wrong.add(f"{name}, {device['target']} ({launch['program']}): {counted:.3g} {what} for a multiply-add; loops.def says {said}")
    return sorted(wrong)


# ---- compiling ----
def read_launches(out):
    with open(os.path.join(out, "launches.jsonl")) as f:
        return [json.loads(line) for line in f]


def read_exceptions():
    """{(kernel, first words of a fault)}: reason."""
    known = {}
    with open(os.path.join(HERE, "exceptions.txt")) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                kernel, fault, reason = (part.strip() for part in line.split("|"))
                known[kernel, fault] = reason
    return known


def excused(known, kernel, fault):
    return any(re.fullmatch(k, kernel) and re.search(f, fault) for k, f in known)


def any_tools(targets):
    missing = {t: compilers.TOOLS.missing(t) for t in targets}
    if all(missing.values()):
        print("skipped: no compiler for GPUs: " + "; ".join(f"{t} wants {m}" for t, m in sorted(missing.items())))
    return not all(missing.values())


def compile_launches(out, devices, threads):
    launches = [x for x in read_launches(out) if x["device"] in devices]
    jobs = sorted({(devices[x["device"]]["target"], os.path.join(out, x["program"] + ".cl")) for x in launches})
    missing = {t: compilers.TOOLS.missing(t) for t in {t for t, _ in jobs}}
    for target in sorted(t for t in missing if missing[t]):
        print(f"skipped: {target}: no {missing[target]}")
    results = compilers.compile_all([j for j in jobs if not missing[j[0]]], os.path.join(out, "cache"), threads)
    return launches, {(t, os.path.basename(p)[:-3]): r for (t, p), r in results.items()}


def report(out, devices, launches, results):
    known, faults, worst = read_exceptions(), defaultdict(set), {}
    failed = {(target, r["failed"].splitlines()[0]) for (target, _), r in results.items() if "failed" in r}
    for launch in launches:
        device = devices[launch["device"]]
        result = results.get((device["target"], launch["program"]), {})
        kernel = result.get("kernels", {}).get(launch["kernel"])
        if not kernel:
            continue
        for fault in judge(device, kernel, launch):
            faults[launch["kernel"], fault, device["key"], launch["program"]].add(launch["case"])
        key = (device["target"], re.sub(r"_\d+$", "", launch["kernel"]))
        worst[key] = max(worst.get(key, (0, 0, 0, 0, 1.0, {})), (kernel["registers"], kernel["private"], kernel["spills"], kernel["local"],
                                                                 launch["occupancy"], kernel.get("loop", {})), key=lambda w: w[:4])
    open_faults = {k: v for k, v in faults.items() if not excused(known, k[0], k[1])}
    with open(os.path.join(out, "kernels.json"), "w") as f:
        json.dump([dict(launch, **results.get((devices[launch["device"]]["target"], launch["program"]), {}).get("kernels", {}).get(launch["kernel"], {}))
                   for launch in launches], f)
    write_table(os.path.join(out, "report.md"), worst)
    compiled = defaultdict(int)
    for (target, _), r in results.items():
        compiled[target] += "kernels" in r
    print("compiled: " + ", ".join(f"{t} {n}" for t, n in sorted(compiled.items())) + f"; {len(failed)} kinds of failure")
    for target, text in sorted(failed)[:20]:
        print(f"  {target}: {text}")
    for (kernel, fault, device, program), where in sorted(open_faults.items()):
        print(f"  {device}: {kernel} ({program}): {fault}; in {sorted(where)[0]}" + (f" and {len(where) - 1} more" if len(where) > 1 else ""))
    wrong = check_loops(out, devices, launches, results)
    for line in wrong:
        print("  " + line)
    print(f"gates: {len(open_faults)} open, {len(faults) - len(open_faults)} excused by exceptions.txt; {len(wrong)} figures of loops.def too good")
    return not failed and not open_faults and not wrong


def share(loop):
    total = sum(loop.values())
    return f"{(loop.get('fma', 0) + loop.get('matrix', 0)) / total:.0%} of {total}" if total else ""


def write_table(path, worst):
    with open(path, "w") as f:
        f.write("The largest of each kernel's variants.\n\n| target | kernel | registers | private | spills | local, bytes | occupancy | "
                "multiply-adds of the main loop |\n|---|---|---|---|---|---|---|---|\n")
        for (target, kernel), (registers, private, spills, local, held, loop) in sorted(worst.items()):
            f.write(f"| {target} | {kernel} | {registers} | {private} | {spills} | {local} | {held:.0%} | {share(loop)} |\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tools", "list", "compile"))
    parser.add_argument("out", nargs="?")
    parser.add_argument("--devices", help="keys of cl/devices.def, separated by commas; all unless given")
    parser.add_argument("--build", default="build")
    parser.add_argument("--quick", action="store_true", help="models alone")
    args = parser.parse_args()
    devices = read_devices()
    if args.devices:
        devices = {key: devices[key] for key in args.devices.split(",")}
    threads = os.cpu_count() or 2
    if args.what == "tools":
        sys.exit(0 if any_tools({d["target"] for d in devices.values()}) else 77)
    if args.what == "list":
        good = list_all(args.out, devices.values(), os.path.abspath(args.build), args.quick, threads)
    else:
        good = report(args.out, devices, *compile_launches(args.out, devices, threads))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
