#!/usr/bin/env python3
"""What tools/bench/offload.py measures of PyTorch and DeepSpeed: it runs in the environment that has them, and prints a
line "RESULT {...}". Its argument is JSON: {"part": ..., and what that part's function takes}."""
import json
import os
import sys
import time


def clock(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def nvme(folder, mib, block, depth, threads):
    """Bytes a second of DeepSpeed's AIO handle: all of a file by one call, from and to a locked tensor."""
    import torch
    import deepspeed
    from deepspeed.ops.op_builder import AsyncIOBuilder
    handle = AsyncIOBuilder().load().aio_handle(block, depth, False, True, threads)
    total, piece = mib << 20, min(mib, 1024) << 20
    tensor = handle.new_cpu_locked_tensor(piece, torch.empty(0, dtype=torch.uint8))
    tensor.fill_(0x5A)
    path = os.path.join(folder, "deepspeed.bin")

    def move(call):
        for at in range(0, total, piece):
            call(tensor, path, at)

    try:
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, total)
        first = clock(lambda: move(handle.sync_pwrite))
        write, read = clock(lambda: move(handle.sync_pwrite)), clock(lambda: move(handle.sync_pread))
    finally:
        os.remove(path)
    return {"first": total / first, "write": total / write, "read": total / read, "version": deepspeed.__version__}


PARTS = {"nvme": nvme}


def main():
    settings = json.loads(sys.argv[1])
    result = PARTS[settings.pop("part")](**settings)
    sys.stdout.flush()
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
