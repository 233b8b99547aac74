#!/usr/bin/env python3
"""The PyTorch side of checkpoint.py: one rank that saves and loads sharded tensors with torch.distributed.checkpoint.

Started once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, and one argument, JSON: ranks, folder, bytes of
the checkpoint, drop (whether the page cache may be dropped). Rank 0 prints "RESULT {...}" with seconds: sync (save), async
(until async_save returns, of the second one: the first makes its buffers), async_all (until it is complete), load (into
tensors that are new, as those of a process that resumes are), load_again (into tensors whose memory the process already has),
copy (all ranks copying their bytes within memory).
"""
import json
import os
import pathlib
import shutil
import statistics
import sys
import time

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
except ModuleNotFoundError as missing:
    sys.exit(f"checkpoint_peer.py: needs the Python package {missing.name}: {sys.executable} -m pip install {missing.name}")

import import_export  # noqa: E402

ROW = 1024


def tensors(settings, mesh, make):
    """As many bytes in fp32 as the checkpoint has: a tensor of 64 MiB for each part of the model, with two moments."""
    rows = settings["bytes"] // (4 * ROW)
    state, number = {}, 0
    while rows > 0:
        some = min(rows, 16384 // settings["ranks"] * settings["ranks"]) // settings["ranks"]
        if some == 0:
            break
        local = make(some, ROW)
        state[f"tensor.{number}"] = DTensor.from_local(local, mesh, [Shard(0)])
        rows -= some * settings["ranks"]
        number += 1
    return state


def timed(work):
    dist.barrier()
    start = time.monotonic()
    work()
    dist.barrier()
    return time.monotonic() - start


def drop_cache(settings):
    dist.barrier()
    if dist.get_rank() == 0:
        os.sync()
        if settings["drop"]:
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
        import_export.take_memory(settings["bytes"])
    dist.barrier()


def synced(path):
    """A writer that syncs its files, as it does by default; said since the comparison rests on it."""
    return dcp.FileSystemWriter(path, single_file_per_rank=True, sync_files=True, thread_count=1)


def copy(state):
    """Seconds of a copy into memory that is there already, the median of five."""
    local = [t.to_local() for t in state.values()]
    to = [torch.empty_like(t).fill_(0) for t in local]
    return statistics.median(timed(lambda: [a.copy_(b) for a, b in zip(to, local)]) for _ in range(5))


def load(settings, state):
    drop_cache(settings)
    reader = dcp.FileSystemReader(pathlib.Path(settings["folder"]) / "sync")
    return timed(lambda: dcp.load(state, storage_reader=reader))


def behind(state, path):
    """(seconds until async_save returns, until all is written), of this rank: a barrier would meet the thread's own
    collectives."""
    dist.barrier()
    start = time.monotonic()
    pending = dcp.async_save(state, storage_writer=synced(path))
    stall = time.monotonic() - start
    pending.result()
    seconds = time.monotonic() - start
    dist.barrier()
    return stall, seconds


def main():
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo")
    mesh = init_device_mesh("cpu", (settings["ranks"],))
    state = tensors(settings, mesh, torch.randn)
    folder = pathlib.Path(settings["folder"])
    result = {"copy": copy(state)}
    result["sync"] = timed(lambda: dcp.save(state, storage_writer=synced(folder / "sync")))
    result["load_again"] = load(settings, state)
    result["load"] = load(settings, tensors(settings, mesh, torch.empty))
    for name in ("first", "second"):
        drop_cache(settings)
        result["async"], result["async_all"] = behind(state, folder / name)
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
        shutil.rmtree(folder)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
