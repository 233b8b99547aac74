#!/usr/bin/env python3
"""Checks that every library opens: those that ztrain is linked with, those that it opens while it runs, and MPI's.

    tools/acceptance/libraries.py --build build/cuda --out FOLDER [--gpus N]
"""
import ctypes
import pathlib
import re
import subprocess

import runs

DRIVERS = ("libcuda.so", "libnvidia-ml.so")
PROGRAM = b"extern \"C\" __global__ void add(float* x) { x[threadIdx.x] += __fdividef(1.f, 2.f); }\n"


def judge_linked(checks, executable):
    listed = subprocess.run(["ldd", str(executable)], capture_output=True, text=True).stdout
    missing = re.findall(r"(\S+) => not found", listed)
    others = [name for name in missing if not name.startswith(DRIVERS)]
    detail = f"not found: {' '.join(others)}" if others else "all are there"
    checks.judge(listed != "" and not others, "linked", detail + ("; the driver is missing" if missing != others else ""))


def judge_cudnn(checks, executable):
    """cuDNN opens its parts when they are first used, from the folder that it lies in."""
    main = runs.library(executable, r"libcudnn\.so")
    if not main:
        return checks.lack("cuDNN's parts", "this build has no cuDNN")
    parts = sorted(pathlib.Path(main).parent.glob("libcudnn_*.so.[0-9]*"))
    failures = []
    for part in [main, *parts]:
        try:
            ctypes.CDLL(str(part), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            failures.append(str(error))
    checks.judge(bool(parts) and not failures, "cuDNN's parts", "; ".join(failures) or f"{len(parts)} beside {main}")


def judge_nvrtc(checks, executable):
    """cuDNN compiles kernels by NVRTC, which opens the library of its built-in functions for that."""
    path = runs.library(executable, r"libnvrtc\.so")
    if not path:
        return checks.lack("NVRTC", "this build has no cuDNN, which compiles by it")
    try:
        nvrtc = ctypes.CDLL(path)
        program = ctypes.c_void_p()
        code = nvrtc.nvrtcCreateProgram(ctypes.byref(program), PROGRAM, b"add.cu", 0, None, None)
        code = code or nvrtc.nvrtcCompileProgram(program, 0, None)
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        text = nvrtc.nvrtcGetErrorString(code).decode()
    except (OSError, AttributeError) as error:
        code, text = 1, str(error)
    checks.judge(code == 0, "NVRTC", f"{path} compiles" if code == 0 else f"{path}: {text}")


def judge_ranks(checks, arguments):
    runner = runs.Runner(arguments)
    if not checks.have_mpirun("two ranks", runner):
        return
    run = runner.start("links", runner.command(2), ["links", "--mebibytes", "1", "--times", "1"], timeout=60)
    if checks.ended("two ranks", run):
        checks.judge(True, "two ranks", "they start and send messages to each other")


def main():
    arguments = runs.arguments_of(__doc__)
    checks = runs.Checks()
    executable = arguments.build / "ztrain"
    judge_linked(checks, executable)
    judge_cudnn(checks, executable)
    judge_nvrtc(checks, executable)
    judge_ranks(checks, arguments)
    checks.exit()


if __name__ == "__main__":
    main()
