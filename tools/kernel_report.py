#!/usr/bin/env python3
"""What the compiler made of the GPU kernels: registers, stack, local memory, and how wide global memory is accessed.

    tools/kernel_report.py build/cuda [--filter gate_rows] [--check]
    tools/kernel_report.py --check

Of a build folder or of objects, libraries and executables, with cuobjdump and nvdisasm of the CUDA toolkit; no GPU.
Columns: registers per thread; bytes of stack; instructions that access local memory (spills, and arrays that did not fit
registers); of the instructions that load and store global memory, how many move 16 bytes. A kernel that takes any address
has narrow accesses too, for what does not begin on a multiple of 16 bytes: they count here and are not executed otherwise.

--check exits with 1 when a kernel needs more registers than its launch has, spills or keeps arrays in local memory (but
those that kernel_limits.py excuses), or is launched in a way that the host has to wait for; and when a kernel of the list
in this file has no 16-byte accesses, or is missing. Without a file it compiles the sources named *.cu, which need the
toolkit alone, for sm_80, sm_90a and sm_100, and checks those: nvcc suffices. Kernels of Kokkos need a build for GPUs.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

import kernel_sources
from kernel_limits import LOCAL, Kernel, excuse, refused

# Kernels that move data at memory speed, and where they must have 16-byte accesses. In "either" one side may be of a
# narrower type: what a warp moves then lies side by side in 8 or 4 bytes per thread.
WIDE = {
    "add": "both",
    "map": "both",
    "cast": "either",
    "gate_rows": "both",
    "gate_rows_backward": "both",
    "activate_all": "both",
    "activate_all_backward": "both",
    "xielu_forward": "both",
    "XieluRow": "both",
    "rope_apply": "both",
    "dropout": "both",
    "constant_init": "stores",
    "embedding_forward": "both",
    "embedding_backward": "both",
    "permute": "both",
    "SumOfRows": "both",
    "gate_tokens": "both",
    "CombineGradRow": "both",
    "GateRowsGradRow": "both",
    "cache_append": "both",
    "CopyBlock": "both",
    "FillBlock": "stores",
    "WarpSquares": "loads",
    "TeamColumnSums": "loads",
    "LargestOfPart": "loads",
    "TileTeam": "loads",
    "QuantizeRow": "loads",
    "TransposeBlocks": "both",
    "LargestOfRows": "loads",
    "EncodeRows": "loads",
}
WRAPPERS = r"^(?:(?:Row)?PackFunctor<\d+l?, |QuantumFunctor<\d+l?, |TeamRow<|RowOfTeam<|RowOfWarp<|WholeRow<|Shifted<)"


# What Kokkos' own kernel says of the one inside it, demangled.
LAUNCH = r"cuda_parallel_launch_(\w+_memory)<"
BOUNDS = r", (\d+)u, (\d+)u>\("


def fail(message):
    print(f"kernel_report: {message}", file=sys.stderr)
    sys.exit(2)


def find_tool(name):
    """In PATH, or in the toolkit that the environment or nvcc names."""
    nvcc = shutil.which("nvcc")
    folders = [os.path.join(os.environ[v], "bin") for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    folders += ([os.path.dirname(os.path.realpath(nvcc))] if nvcc else []) + ["/usr/local/cuda/bin"]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def dump(tool, option, path):
    environment = dict(os.environ, PATH=os.path.dirname(tool) + os.pathsep + os.environ["PATH"])
    result = subprocess.run([tool, option, path], capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        fail(f"cuobjdump {option} {path} failed: {result.stderr.strip()}")
    return result.stdout


def demangled(names):
    tool = shutil.which("cu++filt") or shutil.which("c++filt")
    if not tool or not names:
        return {name: name for name in names}
    text = subprocess.run([tool], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, text.split("\n")))


def argument(text, begin):
    """The template argument that begins there."""
    depth = 0
    for i in range(begin, len(text)):
        if text[i] in "<({[":
            depth += 1
        elif text[i] in ">)}]":
            depth -= 1
        if depth < 0 or (depth == 0 and text[i] == ","):
            return text[begin:i]
    return text[begin:]


def parameters_begin(text):
    """Where the function's parameter list begins: the first parenthesis outside of template arguments."""
    depth = 0
    for i, c in enumerate(text):
        if c == "(" and depth == 0:
            return i
        depth += (c == "<") - (c == ">")
    return len(text)


def short(name):
    """add<float> for the kernel that Kokkos made of a lambda in add<float>, the functor's name for one of a functor."""
    text = re.sub(r"_INTERNAL_\w+::|\(anonymous namespace\)::|ztrain::(?:kernels::)?", "", name)
    start = re.search(r"Parallel(?:For|Reduce|Scan)<", text)
    if start:
        text = argument(text, start.end())
    while re.search(WRAPPERS, text):
        text = argument(text, re.search(WRAPPERS, text).end())
    blocks = re.match(r"(?:void )?for_blocks<\d+l?, ", text)
    if blocks:
        return short(argument(text, blocks.end()))
    lambda_number = re.search(r"::\{lambda\(.*\)#(\d+)\}$", text)
    text = text[:parameters_begin(text)].removeprefix("void ")
    return text + (f" #{lambda_number[1]}" if lambda_number and lambda_number[1] != "1" else "")


def kernels_of(tool, path):
    """Kernels of the project by (architecture, mangled name); those inside of Kokkos are left out."""
    kernels, arch, kernel = {}, "", None
    for line in dump(tool, "-sass", path).splitlines():
        if found := re.search(r"code for (sm_\w+)|Function : (\S+)", line):
            arch = found[1] or arch
            kernel = kernels.setdefault((arch, found[2]), Kernel(found[2], arch)) if found[2] else None
        elif kernel and (found := re.search(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(LDG|STG|LDL|STL)(\S*)", line)):
            if found[1] in ("LDL", "STL"):
                kernel.local += 1
            else:
                counts = kernel.loads if found[1] == "LDG" else kernel.stores
                counts[0] += ".128" in found[2]
                counts[1] += 1
    for line in dump(tool, "-res-usage", path).splitlines():
        if found := re.search(r"arch = (sm_\w+)", line):
            arch = found[1]
        elif found := re.search(r"Function (\S+):", line):
            kernel = kernels.get((arch, found[1]))
        elif kernel and (found := re.search(r"REG:(\d+) STACK:(\d+)", line)):
            kernel.registers, kernel.stack = int(found[1]), int(found[2])
    names = demangled([k.name for k in kernels.values()])
    ours = [k for k in kernels.values() if "ztrain" in names[k.name]]
    for kernel in ours:
        read_launch(kernel, names[kernel.name])
        kernel.name = short(names[kernel.name])
    return sorted(ours, key=lambda k: (k.name, k.arch))


def read_launch(kernel, name):
    """How Kokkos launches it: teams with the bounds that they must have, else as many threads as registers suffice for. What is
    of *.cu is checked where it is compiled."""
    kernel.bounded = False
    launch = re.search(LAUNCH, name)
    if launch:
        kernel.launch = launch[1]
        bounds = re.search(BOUNDS, name)
        if bounds:
            kernel.threads, kernel.resident = int(bounds[1]), int(bounds[2])
        kernel.bounded = "TeamPolicy<" in name


def base(name):
    return re.split(r"[<( ]", name)[0]


def complaints(kernels):
    for kernel in kernels:
        name = base(kernel.name)
        yield from refused(kernel)
        wide = {"loads": kernel.loads[0] > 0, "stores": kernel.stores[0] > 0}
        need = WIDE.get(name)
        missing = {"both": [s for s in wide if not wide[s]], "either": [] if any(wide.values()) else list(wide),
                   None: []}.get(need, [need] if need in wide and not wide[need] else [])
        for side in missing:
            yield f"{kernel.name} ({kernel.arch}) has no 16-byte {side}"
    there = {base(k.name) for k in kernels}
    for name in WIDE:
        if name not in there:
            yield f"{name} is missing"


def libraries(path):
    """A file, or those of a build folder that have GPU code."""
    if not os.path.exists(path):
        fail(f"{path} does not exist")
    if not os.path.isdir(path):
        return [path]
    found = [os.path.join(path, name) for name in ("kernels/libztrain_kernels.a", "src/runtime/libztrain_runtime.a")]
    with open(os.path.join(path, "CMakeCache.txt"), encoding="utf-8") as cache:
        if not re.search(r"^ZTRAIN_CUDA:BOOL=(ON|1|TRUE|YES)$", cache.read(), re.M):
            fail(f"{path} is no build for GPUs (ZTRAIN_CUDA)")
    return [name for name in found if os.path.exists(name)] or fail(f"{path} has no library of kernels: build it first")


def show(kernels):
    width = max([len(k.name) for k in kernels] + [6])
    print(f"{'kernel':{width}}  arch    registers  stack  local  16-byte loads  16-byte stores")
    for k in kernels:
        loads, stores = (f"{a} of {b}" for a, b in (k.loads, k.stores))
        print(f"{k.name:{width}}  {k.arch:7} {k.registers:9}  {k.stack:5}  {k.local:5}  {loads:>13}  {stores:>14}")
    for pattern in sorted({excuse(k.name) for k in kernels if k.stack or k.local} - {None}):
        print(f"{pattern}: {LOCAL[pattern]}")


def report(files, options):
    """Shows what is in the files; returns what is wrong with it."""
    tool = find_tool("cuobjdump")
    if not tool:
        fail("cuobjdump not found: it comes with the CUDA toolkit; put the toolkit's bin folder on PATH or set CUDA_HOME")
    kernels = [k for path in files for k in kernels_of(tool, path)]
    show([k for k in kernels if re.search(options.filter, k.name)])
    if not kernels:
        fail("no GPU kernels of ztrain in " + ", ".join(files))
    return list(complaints(kernels)) if options.check else []


def check_sources():
    """Compiles the sources that need no Kokkos, says what became of them, and returns what is wrong."""
    nvcc = kernel_sources.find_nvcc()
    if not nvcc:
        fail("nvcc not found: it comes with the CUDA toolkit; put the toolkit's bin folder on PATH")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    known = kernel_sources.known_architectures(nvcc)
    for architecture in kernel_sources.ARCHITECTURES:
        if architecture not in known:
            print(f"sm_{architecture} is not checked: this nvcc does not know it")
    problems = []
    for source in kernel_sources.sources(root):
        try:
            kernels = kernel_sources.compiled(nvcc, root, source, known)
        except RuntimeError as error:
            fail(str(error))
        names = demangled([k.name for k in kernels])
        for kernel in kernels:
            kernel.name = short(names[kernel.name])
        registers = {a: max(k.registers for k in kernels if k.arch == "sm_" + a) for a in known}
        print(f"{os.path.relpath(source, root)}: {len(kernels) // len(known)} kernels; most registers "
              + ", ".join(f"{registers[a]} on sm_{a}" for a in known))
        problems += [p for k in kernels for p in refused(k)]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="a build folder, or objects, libraries or executables with GPU code")
    parser.add_argument("--filter", default="", help="only kernels whose short name has this regular expression")
    parser.add_argument("--check", action="store_true", help="exit with 1 unless all kernels are as they should be")
    options = parser.parse_args()
    if not options.files and not options.check:
        parser.error("name a build folder or a file, or give --check")
    problems = check_sources() if options.check else []
    if options.files:
        problems += report([name for path in options.files for name in libraries(path)], options)
    else:
        print("Kernels of Kokkos are not checked: they need a build for GPUs (tools/kernel_report.py --check build/cuda)")
    for problem in problems:
        print(f"kernel_report: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
