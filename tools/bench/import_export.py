#!/usr/bin/env python3
"""Reads a Hugging Face model into a run and writes it back, and prints memory and speed.

    tools/bench/import_export.py [--ztrain build/cpu/ztrain] [--ranks 2] [--layers 27] [--folder FOLDER]

Writes a Llama of random bf16 weights (27 layers: 3.0 GB), trains it for one step with FULL_SHARD in pure bf16 (SGD), and
exports the checkpoint. Memory is the operating system's figure (VmRSS, VmHWM), of each rank: right after the weights were
read, before any other memory of the run is touched, and over a whole export. The bound is the rank's shard of the weights
(an export: one block) + 256 MiB. Speeds are of bytes of weights, with a cold page cache for what is read and synced to the
disk for what is written, beside those of dd on the same files. Exits with 1 when a bound is exceeded. Needs numpy,
mpirun, and about 10 GB of disk; as root it drops the whole page cache, else it asks the kernel to drop the files'.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MPIRUN = "mpirun --allow-run-as-root --oversubscribe --bind-to none"
MIB = 2**20
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size(text):
    value, unit = text.split()
    return float(value) * UNITS[unit]


def take_memory(total):
    """A virtual machine gives memory that is free back to its host within seconds, and waits long to get it again. What a
    reader of so many bytes needs, for the page cache and for itself, is touched and freed right before it starts."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    b"\1" * min(3 * total, available // 2)  # written, unlike zeros


def drop_cache(folder):
    """Clean pages only can be dropped, so the files are synced first."""
    total = sum(path.stat().st_size for path in folder.iterdir())
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    if os.geteuid() == 0:
        try:
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
        except OSError:
            pass  # a container
    take_memory(total)


def timed(command):
    start = time.monotonic()
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def disk_speeds(model, total):
    """(GB/s that dd reads a model's files at, GB/s that it writes as many bytes at)."""
    drop_cache(model)
    read = timed(f"for f in {model}/*.safetensors; do dd if=$f of=/dev/null bs=16M; done")
    written = model.parent / "dd"
    write = timed(f"dd if=/dev/zero of={written} bs=16M count={total // (16 * MIB)} conv=fsync")
    written.unlink()
    return total / read * 1e-9, total / write * 1e-9


def train(zt, arguments, model, folder):
    """One step. The output of the run."""
    ids = folder / "ids.bin"
    ids.write_bytes(zt.write_text_data(folder / "text.txt").read_text().encode("utf-16-le"))
    deck = folder / "deck.toml"
    sections = {
        "run": {"steps": 1, "output": folder / "run"},
        "data": {"train": [str(ids)], "sequence": 8},
        "model": {"from": model},
        "batch": {"global": arguments.ranks, "micro": 1},
        "precision": {"preset": "bf16-pure"},
        "optimizer": {"name": "sgd", "momentum": 0.0, "lr": 1e-3},
    }
    deck.write_text(zt.deck_text(sections))
    drop_cache(model)
    result = zt.run(arguments.ranks, [deck], timeout=3600)
    if result.code != 0:
        sys.exit(str(result))
    return result.out


def export(zt, arguments, checkpoint, to):
    """({rank: bytes at its peak}, output)"""
    drop_cache(checkpoint)
    log, peaks = to.parent / "export.log", {}
    process = zt.start(arguments.ranks, ["export", checkpoint, "--to", to], log)
    while process.poll() is None:
        for rank, pid in zt.rank_processes(process.pid).items():
            peaks[rank] = max(peaks.get(rank, 0), zt.peak_memory(pid))
        time.sleep(0.02)
    if process.returncode != 0:
        sys.exit(log.read_text())
    return peaks, log.read_text()


def report_import(out, disk):
    """Prints; whether the bound holds."""
    speed = float(re.search(r"read in [\d.]+ s, ([\d.]+) GB/s", out).group(1))
    print(f"import  {speed:.2f} GB/s over all ranks; dd reads {disk:.2f} GB/s: {speed / disk:.2f} of it")
    quantity = r"([\d.]+ \w+)"
    rows = re.findall(
        rf"rank (\d+): {quantity} of weights; resident memory {quantity} before, {quantity} after, {quantity} at", out
    )
    good = bool(rows)
    for rank, *texts in rows:
        shard, before, after, peak = map(size, texts)
        good = good and peak <= shard + 256 * MIB
        print(
            f"  rank {rank}: shard {shard / MIB:.0f} MiB; resident {before / MIB:.0f} MiB before, {after / MIB:.0f} after, "
            f"{peak / MIB:.0f} at its peak; bound {shard / MIB + 256:.0f}"
        )
    return good


def report_export(out, peaks, disk):
    speed = float(re.search(r"([\d.]+) GB/s", out).group(1))
    print(f"export  {speed:.2f} GB/s over all ranks; dd writes {disk:.2f} GB/s: {speed / disk:.2f} of it")
    for rank, peak in sorted(peaks.items()):
        print(f"  rank {rank}: resident {peak / MIB:.0f} MiB at its peak; bound 256")
    return bool(peaks) and max(peaks.values()) <= 256 * MIB


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ztrain", type=pathlib.Path, default=ROOT / "build/cpu/ztrain")
    parser.add_argument("--mpirun", default=MPIRUN)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=27, help="of 103 MB, beside 262 MB")
    parser.add_argument("--folder", type=pathlib.Path, help="on the disk to measure; default: a temporary one")
    arguments = parser.parse_args()
    os.environ.update(ZTRAIN=str(arguments.ztrain), ZTRAIN_MPIRUN=arguments.mpirun, ZTRAIN_SOURCE=str(ROOT))
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    import streamed_model
    import ztrain_run as zt

    folder = pathlib.Path(tempfile.mkdtemp(prefix="ztrain-import-export-", dir=arguments.folder))
    try:
        config = streamed_model.config_of(2048, 5632, arguments.layers, 16, 32000)
        total = streamed_model.write(folder / "model", config)
        print(f"model   {total * 1e-9:.2f} GB of bf16, {arguments.ranks} ranks", flush=True)
        reads, writes = disk_speeds(folder / "model", total)
        good = report_import(train(zt, arguments, folder / "model", folder), reads)
        shutil.rmtree(folder / "model")
        peaks, out = export(zt, arguments, folder / "run" / "checkpoints" / "step_1", folder / "exported")
        good = report_export(out, peaks, writes) and good
        print("memory is within its bounds" if good else "memory is BEYOND its bounds")
        return 0 if good else 1
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
