"""Programs through the makers' own compilers, which need no device: what each kernel takes of a compute unit.

A target is an instruction set: sm_70, sm_80, sm_86 and sm_90 (NVIDIA: clang makes PTX, ptxas machine code), gfx900, gfx906 and gfx1030
(AMD: clang), spirv (others: clang and llvm-spirv, checked by spirv-val; registers are the device's business).  libclc brings the
built-in functions.  A tool that is missing makes its targets be skipped, and said to be.

For each kernel: registers (32 bits, per work-item), spills and private memory (bytes per work-item), local memory (bytes per
work-group), barriers, and the instructions of its main loop, the innermost loop with the most multiply-adds, and of the loop around it.
For NVIDIA also, by its PTX, wide_divisions: those of 64 bits in loops that do not try 32 bits first; and wide_products: those of 64 bits
in the main loop.
"""
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

NVIDIA, AMD, SPIRV = "nvidia", "amd", "spirv"
KIND = {"sm_70": NVIDIA, "sm_80": NVIDIA, "sm_86": NVIDIA, "sm_90": NVIDIA, "gfx900": AMD, "gfx906": AMD, "gfx1030": AMD, "spirv": SPIRV}
# clang 15 knows no sm_90, and libclc 15 has no file for gfx1030: the nearest that they know.
PTX_FOR = {"sm_90": "sm_86"}
NOT_DISASSEMBLED = {"sm_70"}  # nvdisasm 13 does not know it any more
CLC_FOR = {"gfx1030": "gfx900"}


# ---- tools ----
def find_tool(*names):
    """The first of these below a folder of CLEF_GPU_TOOLS, as Python packages lay them, or on PATH."""
    folders = [f for f in os.environ.get("CLEF_GPU_TOOLS", "").split(":") if f]
    for name in names:
        inside = [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, "**", "bin", name), recursive=True))]
        found = inside[0] if inside else shutil.which(name)
        if found:
            return found
    return None


class Tools:
    def __init__(self):
        self.clang = find_tool("clang-15", "clang-16", "clang-19", "clang")
        self.ptxas = find_tool("ptxas")
        self.nvdisasm = find_tool("nvdisasm")
        self.spirv = find_tool("llvm-spirv-15", "llvm-spirv-16", "llvm-spirv-19", "llvm-spirv")
        self.validate = find_tool("spirv-val")

    def missing(self, target):
        """What keeps a target from being compiled, or None."""
        needs = {NVIDIA: [("ptxas", self.ptxas), ("libclc", self.clc(target))], AMD: [("libclc", self.clc(target))],
                 SPIRV: [("llvm-spirv", self.spirv), ("spirv-val", self.validate)]}[KIND[target]]
        absent = [name for name, found in [("clang", self.clang), *needs] if not found]
        return ", ".join(absent) or None

    @staticmethod
    def clc(target):
        name = "nvptx64--nvidiacl.bc" if KIND[target] == NVIDIA else f"{CLC_FOR.get(target, target)}-amdgcn-mesa-mesa3d.bc"
        found = sorted(glob.glob(f"/usr/lib/clc/{name}"))
        return found[-1] if found else None


TOOLS = Tools()


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        raise RuntimeError(done.stdout.strip() or f"{command[0]}: exit status {done.returncode}")
    return done.stdout


# ---- one program for one target ----
def clang(target, source, options, out):
    level = "-O0" if KIND[target] == SPIRV else "-O3"  # the driver's work; llvm-spirv does not know all that clang's passes leave
    common = [TOOLS.clang, "-x", "cl", level, "-w", "-Xclang", "-finclude-default-header", *options, source, "-o", out]
    if KIND[target] == NVIDIA:
        extra = ["-S", "-target", "nvptx64-nvidia-nvcl", "-Xclang", "-target-cpu", "-Xclang", PTX_FOR.get(target, target)]
    elif KIND[target] == AMD:
        every_call_inlined = ["-mllvm", "-amdgpu-early-inline-all=true", "-mllvm", "-amdgpu-function-calls=false"]  # as ROCm's runtime does
        extra = ["-S", "-nogpulib", "-target", "amdgcn-mesa-mesa3d", f"-mcpu={target}", *every_call_inlined]
    else:
        extra = ["-c", "-emit-llvm", "-target", "spir64"]
    library = [] if KIND[target] == SPIRV else ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", TOOLS.clc(target)]
    run(common + extra + library)


def require_sizes(source, options, ptx):
    """Writes into PTX what NVIDIA's compiler makes of reqd_work_group_size and clang does not: with .reqntid, ptxas limits no registers."""
    text = run([TOOLS.clang, "-x", "cl", "-E", "-P", "-w", "-D_OPENCL_H_", *options, source])
    sizes = re.findall(r"reqd_work_group_size\(([\s\d()+*/-]+),\s*1,\s*1\)\)\)\s*void\s+(\w+)\(", text)
    with open(ptx) as f:
        assembly = f.read()
    for size, name in sizes:
        items = int(eval(size))  # digits and operators alone
        assembly = re.sub(rf"(\.entry {name}\([^)]*\))", rf"\1\n.reqntid {items}, 1, 1", assembly)
    with open(ptx, "w") as f:
        f.write(assembly)


def find_loops(lines, label, jump):
    """(first, last) lines of each jump backwards: to a line that `label` matches, from one that `jump` finds; its group 1 is the name."""
    known = {found.group(1): i for i, found in ((i, re.match(label, line)) for i, line in enumerate(lines)) if found}
    jumps = ((i, re.search(jump, line)) for i, line in enumerate(lines))
    return [(known[found.group(1)], i) for i, found in jumps if found and known.get(found.group(1), i + 1) <= i]


def innermost(loops):
    return [b for b in loops if not any(o != b and o[0] >= b[0] and o[1] <= b[1] for o in loops)]


TRIES_32_BITS = r"\band\.b64\s.*, -4294967296;"  # are the upper halves of both operands 0?


def split_blocks(lines, label, jump):
    """(lines, followers) of each basic block; `label` and `jump` as for find_loops.  A jump with no condition ends the way to the next."""
    begins = sorted({0} | {i for i, line in enumerate(lines) if re.match(label, line)} | {i + 1 for i, line in enumerate(lines) if re.search(jump, line)})
    ends = begins[1:] + [len(lines)]
    named = {found.group(1): n for n, i in enumerate(begins) for found in [re.match(label, lines[i]) if i < len(lines) else None] if found}
    blocks = []
    for n, (begin, end) in enumerate(zip(begins, ends)):
        last = lines[end - 1] if end > begin else ""
        target = re.search(jump, last)
        falls = n + 1 < len(begins) and not (target and "@" not in last)
        blocks.append((lines[begin:end], ([named[target.group(1)]] if target and target.group(1) in named else []) + [n + 1] * falls))
    return blocks


def in_loops(blocks):
    """Numbers of the blocks that lead to themselves, wherever the compiler has put them."""
    def reached(n):
        seen, todo = set(), list(blocks[n][1])
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += blocks[at][1]
        return seen
    return {n for n in range(len(blocks)) if n in reached(n)}


def wide_divisions(blocks):
    """How many of 64 bits are in loops with no look at the upper halves right before."""
    tries = {after for lines, followers in blocks if any(re.search(TRIES_32_BITS, line) for line in lines) for after in followers}
    return sum(bool(re.search(r"\b(div|rem)\.[su]64\b", line)) for n in in_loops(blocks) - tries for line in blocks[n][0])


def read_ptx(ptx):
    """{kernel: its wide divisions and products}."""
    found = {}
    with open(ptx) as f:
        text = f.read()
    label, jump = r"\s*(\$\w+):", r"\bbra(?:\.uni)?\s+(\$\w+);"
    for name, body in re.findall(r"(?ms)^\.(?:visible \.)?entry (\w+)\((.*?)^}", text):
        lines = body.splitlines()
        count = lambda pattern, loop: sum(bool(re.search(pattern, line)) for line in lines[loop[0] : loop[1] + 1])
        multiply_adds = lambda loop: count(r"\bfma\.|\bmma\.", loop)
        main = max(innermost(find_loops(lines, label, jump)), key=multiply_adds, default=None)
        found[name] = {"wide_divisions": wide_divisions(split_blocks(lines, label, jump)),
                       "wide_products": count(r"\b(mul|mad)\.lo\.[su]64\b", main) if main and multiply_adds(main) else 0}
    return found


def compile_nvidia(target, source, options, work):
    ptx, cubin = os.path.join(work, "a.ptx"), os.path.join(work, "a.cubin")
    limits = [o for o in options if o.startswith("-cl-nv-maxrregcount=")]
    rest = [o for o in options if o not in limits]
    clang(target, source, rest, ptx)
    require_sizes(source, rest, ptx)
    limits = [f"-maxrregcount={o.split('=')[1]}" for o in limits]
    kernels = parse_ptxas(run([TOOLS.ptxas, f"-arch={target}", "-v", *limits, ptx, "-o", cubin]))
    for name, wide in read_ptx(ptx).items():
        kernels[name].update(wide)
    if TOOLS.nvdisasm and target not in NOT_DISASSEMBLED:
        for name, body in split_sass(run([TOOLS.nvdisasm, "-c", cubin])).items():
            if name in kernels:
                kernels[name].update(read_code(body, NVIDIA))
    return kernels


def parse_ptxas(text):
    kernels, name = {}, None
    for line in text.splitlines():
        start = re.search(r"Compiling entry function '(\w+)'", line)
        if start:
            name = start.group(1)
            kernels[name] = {"private": 0, "spills": 0, "local": 0, "barriers": 0, "registers": 0}
        numbers = {key: int(value) for value, key in re.findall(r"(\d+) bytes (stack frame|spill stores|spill loads|smem)", line)}
        if name and numbers:
            k = kernels[name]
            k["spills"] += numbers.get("spill stores", 0) + numbers.get("spill loads", 0)
            k["private"] = max(k["private"], numbers.get("stack frame", 0))
            k["local"] = max(k["local"], numbers.get("smem", 0))
        used = re.search(r"Used (\d+) registers", line)
        if name and used:
            kernels[name]["registers"] = int(used.group(1))
            barriers = re.search(r"used (\d+) barriers", line)
            kernels[name]["barriers"] = int(barriers.group(1)) if barriers else 0
    return kernels


def split_sass(text):
    bodies, name = {}, None
    for line in text.splitlines():
        section = re.match(r"\s*\.section\s+\.text\.(\w+)", line)
        if section:
            name = section.group(1)
            bodies[name] = []
        elif name:
            bodies[name].append(line)
    return bodies


def compile_amd(target, source, options, work):
    out = os.path.join(work, "a.s")
    clang(target, source, options, out)
    with open(out) as f:
        text = f.read()
    kernels = {}
    for name in re.findall(r"(?m)^\s*\.amdgpu_hsa_kernel\s+(\w+)", text) or re.findall(r"; -- Begin function (\w+)", text):
        body = text[text.index(f"\n{name}:") :]
        body = body[: body.index("; -- End function")] if "; -- End function" in body else body
        facts = {key.strip(): int(value) for key, value in re.findall(r"(?m)^; ([\w ]+): (\d+)", text[text.index(f"\n{name}:") :][: len(body) + 6000])}
        kernels[name] = {"registers": facts.get("NumVgprs", 0), "private": facts.get("ScratchSize", 0), "spills": 0,
                         "local": facts.get("LDSByteSize", 0), "barriers": body.count("s_barrier")}
        kernels[name].update(read_code(body.splitlines(), AMD))
    return kernels


def compile_spirv(target, source, options, work):
    bc, spv = os.path.join(work, "a.bc"), os.path.join(work, "a.spv")
    clang(target, source, options, bc)
    run([TOOLS.spirv, "--spirv-max-version=1.3", bc, "-o", spv])  # the first with shuffles; later ones llvm-spirv 15 writes wrongly
    run([TOOLS.validate, spv])
    with open(source) as f:
        return {name: {"registers": 0, "private": 0, "spills": 0, "local": 0, "barriers": 0} for name in re.findall(r"(?m)kernel\s+void\s+(\w+)", f.read())}


COMPILE = {NVIDIA: compile_nvidia, AMD: compile_amd, SPIRV: compile_spirv}

# ---- the main loop ----
CLASSES = {  # name: (NVIDIA, AMD), tried in this order; the rest is "other"
    "fma": (r"FFMA|HFMA2|DFMA", r"v_(pk_)?(fma|fmac|mac|mad)_(f32|f16|f64|mix)|v_fmac|v_mac"), "matrix": (r"HMMA|IMMA|BMMA", r"v_mfma|v_wmma"),
    "local128": (r"LDS\.(\w+\.)*128|LDSM\.(\w+\.)*4", r"ds_read_b128|ds_read2_b64|ds_load_b128|ds_load_2addr_b64"),
    "load128": (r"LDG\.E\.(\w+\.)*128", r"(global|flat|buffer)_load_dwordx4"),
    "copy": (r"LDGSTS", r"(?!)"), "load": (r"LDG(?!DEP)|LDS|LD\.|LDC|LDSM", r"(global|flat|buffer)_load|ds_(read|load)|s_(buffer_)?load"),
    "store": (r"STG|STS|ST\.", r"(global|flat|buffer)_store|ds_(write|store)"),
    "float": (r"FADD|FMUL|FSEL|FMNMX|MUFU|FSETP|HADD|HMUL|DADD|DMUL", r"v_(add|sub|mul|max|min|cmp\w*|exp|log|rcp|sqrt|rsq)_(f32|f16|f64)|v_cndmask"),
    "convert": (r"F2F|I2F|F2I|F2FP", r"v_cvt"), "wide_divide": (r"CALL", r"v_div_"),
    "sync": (r"BAR|DEPBAR|LDGDEPBAR|MEMBAR", r"s_barrier|s_waitcnt"), "branch": (r"BRA|BSYNC|BSSY|EXIT|WARPSYNC", r"s_c?branch|s_endpgm")}


def opcode_of(line, kind):
    if kind == NVIDIA:
        found = re.search(r"\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", line)
    else:
        found = re.match(r"\s+([vsdgfb]\w*_\w+)", line)
    return found.group(1) if found else None


def classify(opcode, kind):
    for name, patterns in CLASSES.items():
        if re.match(patterns[kind == AMD], opcode):
            return name
    return "integer" if re.match(r"IMAD|IADD|ISETP|LEA|LOP|SHF|UIADD|UIMAD|ULEA|USHF|MOV|UMOV|IABS|SEL|PRMT|v_(add|sub|mul|mad|lshl|lshr|ash|and|or|mov|bfe)|s_", opcode) else "other"


MULTIPLY, WIDE = {"fma", "matrix"}, {"copy", "load128"}


def way_through(code, jumps, first, last):
    """What a run from first to last issues.  Of all ways the one that multiplies most, then the one that fetches most in one go, then the
    shortest: what stands there for edges, and for operands that are not aligned, is jumped over."""
    best = {last: ((0, 0, 0), None)}
    for i in range(last - 1, first - 1, -1):
        target, always = jumps.get(i, (None, False))
        then = [t for t in ([] if always else [i + 1]) + ([target] if target and i < target <= last else []) if t in best]
        if then:
            t = max(then, key=lambda t: best[t][0])
            more, wide, length = best[t][0]
            best[i] = ((more + (code[i] in MULTIPLY), wide + (code[i] in WIDE), length - 1), t)
    way, i = [], first if first in best else None
    while i is not None:
        way.append(code[i])
        i = best[i][1]
    return way


def read_code(lines, kind):
    """Counts of the whole kernel, and of what is issued in its main loop and in the loop around that: {"code": {...}, "loop": {...},
    "around": {...}}."""
    labels, code, names = {}, [], {}
    for line in lines:
        label = re.match(r"\s*(\.?L?[\w.]+):", line)
        if label:
            labels[label.group(1)] = len(code)
        opcode = opcode_of(line, kind)
        if not opcode:
            continue
        jump = re.match(r"BRA|s_c?branch", opcode) and re.search(r"`\((\.\w+)\)|\s(\.LBB\w+)", line)
        if jump:
            names[len(code)] = (jump.group(1) or jump.group(2), opcode == "s_branch" or (kind == NVIDIA and "@" not in line))
        code.append(classify(opcode, kind))
    jumps = {i: (labels.get(name), always) for i, (name, always) in names.items()}
    back = [(target, i) for i, (target, _) in jumps.items() if target is not None and target <= i]
    best = max(innermost(back), key=lambda b: sum(c in MULTIPLY for c in code[b[0] : b[1] + 1]), default=None)
    tally = lambda part: {name: part.count(name) for name in sorted(set(part))}
    around = lambda loop: loop and min((b for b in back if b != loop and b[0] <= loop[0] and b[1] >= loop[1]), key=lambda b: b[1] - b[0], default=None)
    count = lambda loop, what: sum(c in what for c in way_through(code, jumps, *loop))
    outer = around(best)
    # Two jumps to one beginning: the nearer leaves out what fetches the next block, which the last block does not want.
    if outer and not count(best, WIDE) and count(outer, WIDE) and count(outer, MULTIPLY) == count(best, MULTIPLY):
        best, outer = outer, around(outer)
    return {"code": tally(code), **{name: tally(way_through(code, jumps, *b)) if b else {} for name, b in (("loop", best), ("around", outer))}}


# ---- many, each once ----
def compile_one(target, path, cache):
    with open(path) as f:
        first, text = f.read().split("\n", 1)
    key = hashlib.sha256(f"{target}\n{first}\n{text}\n{os.path.getmtime(__file__)}\n{TOOLS.clang}\n{TOOLS.ptxas}".encode()).hexdigest()[:24]
    known = os.path.join(cache, f"{target}-{key}.json")
    if os.path.exists(known):
        with open(known) as f:
            return json.load(f)
    options = [o for o in first.replace("//OPTIONS", "").split() if o != "-w"]
    with tempfile.TemporaryDirectory() as work:
        source = os.path.join(work, "a.cl")
        with open(source, "w") as f:
            f.write(text)
        try:
            result = {"kernels": COMPILE[KIND[target]](target, source, options, work)}
        except RuntimeError as failure:
            result = {"failed": str(failure)[-600:]}
    with open(known, "w") as f:
        json.dump(result, f)
    return result


def compile_all(jobs, cache, threads):
    """{(target, path): result} of these pairs."""
    os.makedirs(cache, exist_ok=True)
    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(jobs, pool.map(lambda job: compile_one(*job, cache), jobs)))
