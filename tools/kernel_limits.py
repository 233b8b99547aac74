"""What a GPU, and Kokkos, take of a kernel: registers for its threads, no spills, parameters that a launch carries."""
import re
from dataclasses import dataclass, field

# Of the compute capabilities 8.0, 9.0 and 10.0.
REGISTERS = 65536       # of a multiprocessor, and of a block at most
THREADS = 2048          # of a multiprocessor
REGISTERS_AT_ONCE = 256  # a warp's registers are a multiple of these
# Before CUDA 12.1 and its drivers a launch carried no more. Kokkos, too, passes more by other means.
PARAMETER_BYTES = 4096

# Why some kernels use local memory: by a regular expression on the name that a report gives them.
LOCAL = {
    r"normal_init\b": "sin and cos of large arguments, which do not occur",
    r"rope_table\b": "sin and cos of very large angles",
    r"finish_step\b": "one thread with an exact sum of 536 bytes, once per step",
    r"add_batch\b": "one warp that picks addresses from a launch's parameters, once per step",
    r"dropout\b": "words of a pack that ends a row, where a rank has a part of the columns",
    r"BackwardTeam<true, 4, ": "rows wider than 16,384, of which each thread keeps four packs",
    r"\w+<.*\bdouble\b": "fp64, in which tests train",
}


def excuse(name):
    """The expression of LOCAL that the kernel's name matches, or None."""
    return next((pattern for pattern in LOCAL if re.match(pattern, name)), None)


@dataclass
class Kernel:
    name: str
    arch: str
    registers: int = 0
    stack: int = 0
    local: int = 0        # instructions that access local memory
    spilled: int = 0      # bytes that ptxas says it stores and loads since registers do not suffice
    threads: int = 0      # of a block at most; 0: the compiler was not told
    resident: int = 0     # blocks of a multiprocessor that registers must suffice for; 0: one
    parameters: int = 0   # bytes; 0: not known
    launch: str = ""      # what Kokkos passes the functor in: "local_memory" is a launch's parameters
    bounded: bool = True  # whoever launches it does not ask how many threads it takes
    loads: list = field(default_factory=lambda: [0, 0])  # of global memory: of 16 bytes, all
    stores: list = field(default_factory=lambda: [0, 0])


def block_registers(kernel):
    warps = -(-kernel.threads // 32)
    return warps * (-(-kernel.registers * 32 // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE)


def refused(kernel):
    """Sentences on what no launch takes, or what makes one slow."""
    name = f"{kernel.name} ({kernel.arch})"
    if (kernel.stack or kernel.local or kernel.spilled) and not excuse(kernel.name):
        yield (f"{name} uses local memory: stack {kernel.stack}, {kernel.local} accesses, {kernel.spilled} bytes of spills")
    if kernel.bounded and not kernel.threads:
        yield f"{name} has no __launch_bounds__: registers need not suffice for the threads that it is launched with"
    blocks = max(kernel.resident, 1)
    if kernel.threads and block_registers(kernel) * blocks > REGISTERS:
        yield (f"{name} needs {kernel.registers} registers: {blocks} x {kernel.threads} threads have "
               f"{REGISTERS // (blocks * kernel.threads)} each, and a launch is refused")
    if kernel.threads * blocks > THREADS:
        yield f"{name}: {blocks} blocks of {kernel.threads} threads are more than the {THREADS} of a multiprocessor"
    if kernel.parameters > PARAMETER_BYTES:
        yield f"{name} has {kernel.parameters} bytes of parameters, more than the {PARAMETER_BYTES} of a launch"
    if kernel.launch not in ("", "local_memory"):
        yield (f"{name} is launched through {kernel.launch.replace('_', ' ')}: its functor is so large that the host has "
               "to wait, which cannot be captured either")
