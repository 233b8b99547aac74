#!/usr/bin/env python3
"""What the node and the build are: GPUs, driver, and the libraries that the executable is linked with.

    tools/acceptance/facts.py --build build/cuda --out FOLDER [--gpus N]
"""
import ctypes
import shutil
import subprocess

import runs


def say(what, value):
    print(f"{what:<10} {value}", flush=True)


def call(path, function, by_reference=False):
    """An int that a library's function gives, as its result or through its only argument."""
    entry = getattr(ctypes.CDLL(path), function)
    if not by_reference:
        entry.restype = ctypes.c_size_t
        return entry()
    value = ctypes.c_int()
    code = entry(ctypes.byref(value))
    if code != 0:
        raise OSError(f"{function} returned {code}")
    return value.value


# Name, pattern of the file, function, whether the version comes by reference.
LIBRARIES = [("CUDA", r"libcudart\.so", "cudaRuntimeGetVersion", True),
             ("driver", r"libcuda\.so", "cuDriverGetVersion", True),
             ("cuBLASLt", r"libcublasLt\.so", "cublasLtGetVersion", False),
             ("cuDNN", r"libcudnn\.so", "cudnnGetVersion", False),
             ("NCCL", r"libnccl\.so", "ncclGetVersion", True)]


def print_libraries(executable):
    for name, pattern, function, by_reference in LIBRARIES:
        path = runs.library(executable, pattern) or ("libcuda.so.1" if name == "driver" else "")
        try:
            say(name, f"{call(path, function, by_reference)} ({path})" if path else "not linked as a shared library")
        except (OSError, AttributeError) as error:
            say(name, f"version not known: {error}")


def nccl_version(executable):
    """23003 for 2.30.3; 0 where it is not known."""
    path = runs.library(executable, r"libnccl\.so")
    try:
        return call(path, "ncclGetVersion", True) if path else 0
    except (OSError, AttributeError):
        return 0


def nccl_text(version):
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def main():
    arguments = runs.arguments_of(__doc__)
    checks = runs.Checks()
    executable = arguments.build / "ztrain"
    version = subprocess.run([str(executable), "--version"], capture_output=True, text=True)
    checks.judge(version.returncode == 0, "executable", (version.stdout or version.stderr).strip()[:200])
    say("mpirun", shutil.which("mpirun") or "none: nothing on several ranks is tested, which is a failure")
    if arguments.gpus == 0:
        return checks.exit()
    query = "name,driver_version,memory.total,memory.used,compute_cap,mig.mode.current"
    smi = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True)
    for line in (smi.stdout or smi.stderr).splitlines():
        say("GPU", line)
    checks.judge(smi.returncode == 0 and smi.stdout.strip() != "", "nvidia-smi", f"{arguments.gpus} GPUs")
    print_libraries(executable)
    checks.exit()


if __name__ == "__main__":
    main()
