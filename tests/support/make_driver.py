#!/usr/bin/env python3
"""Writes the source of a driver library (libcuda.so.1) for tests on machines without a GPU.

    make_driver.py NM STUB VERSION OUT.cpp

NM is binutils' nm, STUB the toolkit's own stub of libcuda, whose functions it has all; VERSION the toolkit's ("13.0"). There is no device in
it; every other call succeeds and does nothing, so that cuDNN can load what it has compiled for a GPU that it is told of.
"""

import re
import subprocess
import sys

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE

# What it lacks it says it lacks (CUDA_ERROR_NOT_FOUND, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND), with a null pointer.
LOOK_UP = """#include <dlfcn.h>
#include <string>
namespace {
int look_up(const char* name, void** out, int* found) {
  // Newest version first, which is what the toolkit's headers mean by the plain name.
  static void* const self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  *out = nullptr;
  for (const char* version : {"_v3", "_v2", ""})
    if (*out == nullptr && self != nullptr) *out = dlsym(self, (std::string(name) + version).c_str());
  if (found != nullptr) *found = *out == nullptr ? 1 : 0;
  return *out == nullptr ? 500 : 0;
}
}  // namespace
"""


def handle(value):
    """A function that hands out something that is no null pointer, and that nobody looks into."""
    return f"(void** out) {{ *out = reinterpret_cast<void*>({value:#x}); return 0; }}"


def bodies(version):
    major, minor = (version.split(".") + ["0"])[:2]
    return {
        "cuInit": f"(unsigned) {{ return {NO_DEVICE}; }}",
        "cuDeviceGetCount": f"(int* count) {{ *count = 0; return {NO_DEVICE}; }}",
        "cuDriverGetVersion": f"(int* version) {{ *version = {1000 * int(major) + 10 * int(minor)}; return 0; }}",
        "cuGetProcAddress": "(const char* name, void** out, int, unsigned long long) { return look_up(name, out, nullptr); }",
        "cuGetProcAddress_v2": "(const char* name, void** out, int, unsigned long long, int* found) "
                               "{ return look_up(name, out, found); }",
        "cuLibraryLoadData": handle(0x1000),
        "cuLibraryGetKernel": handle(0x2000),
        "cuKernelGetFunction": handle(0x3000),
        "cuModuleLoadData": handle(0x4000),
        "cuModuleLoadDataEx": handle(0x4000),
        "cuModuleGetFunction": handle(0x5000),
    }


def functions(nm, stub):
    """Names of the functions that the library defines."""
    lines = subprocess.run([nm, "-D", "--defined-only", stub], capture_output=True, text=True, check=True).stdout
    names = {match[1] for match in re.finditer(r" [TW] (cu[A-Z]\w*)(?:@\S*)?$", lines, re.MULTILINE)}
    if "cuInit" not in names:
        sys.exit(f"make_driver.py: {stub} defines no cuInit")
    return sorted(names)


def main():
    nm, stub, version, out = sys.argv[1:]
    special = bodies(version)
    with open(out, "w") as file:
        file.write(LOOK_UP + 'extern "C" {\nint ztrain_driver_of_tests() { return 1; }\n')
        for name in functions(nm, stub):
            file.write(f"int {name}{special.get(name, '() { return 0; }')}\n")
        file.write("}\n")


if __name__ == "__main__":
    main()
