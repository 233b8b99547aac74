"""Kernels of the sources named *.cu, which need the CUDA toolkit alone: what nvcc makes of them."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from kernel_limits import Kernel

ARCHITECTURES = ("80", "90a", "100")
# As cmake/ZtrainCuda.cmake has them, and as a Release build optimises.
OPTIONS = ["-std=c++20", "-O3", "-DNDEBUG", "--extended-lambda", "--expt-relaxed-constexpr", "-DFMT_USE_CONSTEXPR=1",
           "--diag-suppress=1675,554"]


def known_architectures(nvcc):
    text = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"compute_(\d+)", text))
    return [a for a in ARCHITECTURES if a.rstrip("a") in known]


def compiled(nvcc, root, source, architectures):
    """The kernels of a source for all architectures. Throws RuntimeError with nvcc's text."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, *OPTIONS, f"-I{root}/src", f"-I{root}", "--threads", str(os.cpu_count() or 1), "--resource-usage",
                   "--keep", "--keep-dir", folder, "-fatbin", "-o", f"{folder}/kernels.fatbin", str(source)]
        for a in architectures:
            command += ["-gencode", f"arch=compute_{a},code=sm_{a}"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{source}: nvcc failed:\n{result.stdout}{result.stderr}")
        bounds = {a: ptx_bounds(folder, source, a) for a in architectures}
    return list(from_ptxas(result.stdout + result.stderr, bounds))


def ptx_bounds(folder, source, architecture):
    """(threads, resident, bytes of parameters) by mangled name, from what nvcc hands to ptxas."""
    found = list(pathlib.Path(folder).glob(f"{source.stem}*{architecture}*.ptx")) or \
        list(pathlib.Path(folder).glob(f"{source.stem}.ptx"))
    if not found:
        raise RuntimeError(f"{source}: nvcc kept no PTX for compute_{architecture}")
    return bounds_of(found[0].read_text())


def bounds_of(ptx):
    entries = {}
    for head in re.finditer(r"\.entry\s+(\w+)\s*\(([^)]*)\)([^{]*)\{", ptx):
        threads = re.search(r"\.maxntid\s+(\d+)", head[3])
        resident = re.search(r"\.minnctapersm\s+(\d+)", head[3])
        entries[head[1]] = (int(threads[1]) if threads else 0, int(resident[1]) if resident else 0,
                            parameter_bytes(head[2]))
    return entries


def parameter_bytes(parameters):
    end = 0
    for alignment, bits, count in re.findall(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z](\d+)\s+(?:\.ptr[^,\[]*)?\w+(?:\[(\d+)\])?",
                                             parameters):
        size = int(bits) // 8
        alignment = int(alignment) if alignment else size
        end = -(-end // alignment) * alignment + size * int(count or 1)
    return end


def from_ptxas(text, bounds):
    """From what ptxas -v says: for each kernel and architecture a few lines."""
    entry = r"Compiling entry function '(\w+)' for 'sm_(\w+)'"
    parts = re.split(entry, text)
    for name, architecture, said in zip(parts[1::3], parts[2::3], parts[3::3]):
        kernel = Kernel(name, "sm_" + architecture)
        registers = re.search(r"Used (\d+) registers", said)
        memory = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
        if not registers or not memory or name not in bounds[architecture]:
            raise RuntimeError(f"ptxas says of {name} what this script does not know:\n{said}")
        kernel.registers, kernel.stack = int(registers[1]), int(memory[1])
        kernel.spilled = int(memory[2]) + int(memory[3])
        kernel.threads, kernel.resident, kernel.parameters = bounds[architecture][name]
        yield kernel


def sources(root):
    return sorted([p for folder in ("kernels", "src") for p in pathlib.Path(root, folder).rglob("*.cu")])


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
