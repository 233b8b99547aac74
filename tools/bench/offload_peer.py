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


def adam(who, millions, master, threads, repeats):
    """Seconds of a step of AdamW over tensors of ten million elements: torch's as it comes, foreach or fused, or DeepSpeed's. With
    master, fp32 weights are stepped from fp32 gradients and copied to bf16 parameters, as mixed precision has it."""
    import statistics
    import torch
    torch.set_num_threads(threads)
    stepped = [torch.rand(10_000_000).sub_(0.5) for _ in range(millions // 10)]
    copies = [weight.bfloat16() for weight in stepped] if master else []
    for weight in stepped:
        weight.requires_grad_()
        weight.grad = torch.rand_like(weight).sub_(0.5).mul_(1e-3)
    settings = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
    if who == "deepspeed":
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        optimizer = DeepSpeedCPUAdam(stepped, adamw_mode=True, **settings)
    else:
        way = {} if who == "default" else {"foreach": who == "foreach", "fused": who == "fused"}
        optimizer = torch.optim.AdamW(stepped, **way, **settings)

    def step():
        optimizer.step()
        with torch.no_grad():
            for copy, weight in zip(copies, stepped):
                copy.copy_(weight)

    step()
    return {"seconds": statistics.median(clock(step) for _ in range(repeats)), "version": torch.__version__}


PARTS = {"nvme": nvme, "adam": adam}


def main():
    if len(sys.argv) != 2 or not sys.argv[1].startswith("{"):
        sys.exit(__doc__)
    settings = json.loads(sys.argv[1])
    result = PARTS[settings.pop("part")](**settings)
    sys.stdout.flush()
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
