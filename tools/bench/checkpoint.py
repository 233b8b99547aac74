#!/usr/bin/env python3
"""What checkpoints cost a run, beside PyTorch's distributed checkpoints (DCP) of the same bytes and beside dd.

    tools/bench/checkpoint.py [--ztrain build/cpu/ztrain] [--python ENV/bin/python] [--ranks 2] [--layers 6] [--rounds 3]

Trains a Llama-shaped model whose states (weights and Adam's moments in fp32, 1.7 GB with 6 layers) are sharded over the ranks,
once with checkpoint.async = false and once with true, and resumes; and lets PyTorch save and load as many bytes, sharded
alike (checkpoint_peer.py), with save and with async_save. Prints for how long training stands still, how fast bytes are written
and read, dd's speeds on the same disk (what it reads is the checkpoint's own file), and how long the processes take to copy
as many bytes in memory. Caches are dropped before what is read, and memory is at hand (import_export.take_memory). Medians
over --rounds; each round runs all, one after the other. Needs mpirun, and 6 times the bytes of disk; as root it drops the
whole page cache.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "bench"))
import import_export  # noqa: E402

HIDDEN, INTERMEDIATE, VOCABULARY = 1024, 2816, 32000
INTERVAL, SAVES = 20, 2
AT_ONCE = 2  # steps between saves that training waits for: nothing goes on behind them


def sections(folder, arguments):
    return {
        "run": {"steps": INTERVAL * SAVES + 5},
        "data": {"train": [str(folder / "ids.bin")], "sequence": 8},
        "model": {
            "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": arguments.layers,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "vocab_size": VOCABULARY,
        },
        "batch": {"global": arguments.ranks, "micro": 1},
        "precision": {"preset": "fp32"},
        "checkpoint": {"interval": INTERVAL, "keep": 1},
    }


def run(zt, arguments, deck, overrides):
    result = zt.run(arguments.ranks, [deck, *zt.words_of(overrides)], timeout=3600)
    if result.code != 0:
        sys.exit(str(result))
    return result.out


def stall(zt, output):
    """Seconds for which training stood still, for each save but the last, which nothing follows."""
    records = [r["seconds"] for r in zt.metrics(output) if "seconds" in r]
    waited = sum(r.get("save_wait", 0) for r in records)
    if waited > 0:
        sys.exit(f"a save was waited for ({waited:.2f} s): the interval is too short for this disk")
    return sum(r["save"] for r in records) / SAVES


def of_ztrain(zt, arguments, deck, folder):
    """{"sync", "async", "load": seconds, "dd": seconds in which dd reads the same file}, bytes."""
    found = {}
    behind = {"checkpoint.async": True}
    at_once = {"checkpoint.async": False, "checkpoint.interval": AT_ONCE, "run.steps": AT_ONCE * SAVES + 1}
    for name, how in (("sync", at_once), ("async", behind)):
        output = folder / name
        run(zt, arguments, deck, {"run.output": output, "checkpoint.resume": "none"} | how)
        found[name] = stall(zt, output)
    last = folder / "async" / "checkpoints" / f"step_{INTERVAL * SAVES + 5}"
    shutil.rmtree(folder / "sync")
    file = last / "shard_0000.h5"
    read = f"dd if={file} of=/dev/null bs=16M"
    import_export.timed(read)  # what has just been written may be nearer to a virtual machine than to its disk
    import_export.drop_cache(last)
    resumed = run(zt, arguments, deck, {"run.output": folder / "resumed", "checkpoint.resume": last})
    found["load"] = float(re.search(r"sequences consumed, read in ([\d.]+) s", resumed).group(1))
    import_export.drop_cache(last)
    found["dd"] = import_export.timed(read)
    bytes_saved = file.stat().st_size
    shutil.rmtree(folder / "resumed")
    shutil.rmtree(folder / "async")
    return found, bytes_saved


def of_peer(arguments, folder, total, drop):
    """The same of PyTorch, and {"copy": seconds}."""
    settings = {"ranks": arguments.ranks, "folder": str(folder / "peer"), "bytes": total, "drop": drop}
    words = [arguments.python, ROOT / "tools" / "bench" / "checkpoint_peer.py", json.dumps(settings)]
    ranks = []
    for rank in range(arguments.ranks):
        place = {"RANK": str(rank), "WORLD_SIZE": str(arguments.ranks), "LOCAL_RANK": str(rank)}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(arguments.port), "OMP_NUM_THREADS": "1"}
        ranks.append(
            subprocess.Popen([str(w) for w in words], env=os.environ | place | address, stdout=subprocess.PIPE, text=True)
        )
    outputs = [process.communicate()[0] for process in ranks]
    if any(process.returncode != 0 for process in ranks):
        sys.exit("the peer has failed")
    shutil.rmtree(folder / "peer", ignore_errors=True)
    return json.loads(re.search(r"RESULT (.*)", outputs[0]).group(1))


def of_disk(folder, total):
    """Seconds in which dd writes as many bytes, with fsync."""
    count = total // (16 * import_export.MIB)
    import_export.timed(f"dd if=/dev/urandom of={folder}/noise bs=16M count=1 iflag=fullblock conv=fsync")
    return import_export.timed(
        f"for i in $(seq {count}); do cat {folder}/noise; done | dd of={folder}/dd bs=16M iflag=fullblock conv=fsync"
    )


def warm(folder, total):
    """Blocks that were never written may be slow to get, as those of a virtual disk are from its host."""
    import_export.timed(f"dd if=/dev/zero of={folder}/warm bs=16M count={4 * total // (16 * import_export.MIB)} conv=fsync")
    (folder / "warm").unlink()


def one_round(zt, arguments, deck):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ztrain-checkpoint-", dir=arguments.folder))
    try:
        warm(folder, 12 * HIDDEN * (2 * VOCABULARY + arguments.layers * (4 * HIDDEN + 3 * INTERMEDIATE)))
        ztrain, total = of_ztrain(zt, arguments, deck, folder)
        ztrain["dd_writes"] = of_disk(folder, total)
        peer = of_peer(arguments, folder, total, os.geteuid() == 0) if arguments.python else {}
        return {"bytes": total, "ztrain": ztrain, "peer": peer}
    finally:
        shutil.rmtree(folder)


def median(rounds, side, name):
    return statistics.median(r[side][name] for r in rounds)


def report(arguments, rounds):
    total = rounds[0]["bytes"]
    speed = lambda seconds: total / seconds * 1e-9
    ours = {name: median(rounds, "ztrain", name) for name in ("sync", "async", "load", "dd", "dd_writes")}
    print(f"checkpoint  {total * 1e-9:.2f} GB, {arguments.ranks} ranks, medians of {len(rounds)} rounds")
    print(f"dd          writes {speed(ours['dd_writes']):.2f} GB/s with fsync, reads {speed(ours['dd']):.2f} GB/s")
    sync, load = speed(ours["sync"]), speed(ours["load"])
    print(f"ztrain      saves in {ours['sync']:.2f} s, {sync:.2f} GB/s: {sync / speed(ours['dd_writes']):.2f} of dd")
    print(f"            loads in {ours['load']:.2f} s, {load:.2f} GB/s: {load / speed(ours['dd']):.2f} of dd")
    print(f"            async: training stands still for {ours['async']:.3f} s, {ours['async'] / ours['sync']:.1%} of a save")
    if not arguments.python:
        return
    peer = {name: median(rounds, "peer", name) for name in ("sync", "async", "async_all", "load", "load_again", "copy")}
    beyond = (ours["async"] - peer["copy"]) / ours["sync"]
    print(f"            copying as many bytes takes {peer['copy']:.3f} s: beyond that {beyond:.1%} of a save")
    print(
        f"DCP         saves in {peer['sync']:.2f} s, {speed(peer['sync']):.2f} GB/s; loads in {peer['load']:.2f} s, "
        f"{peer['load_again']:.2f} s into memory that its process already has"
    )
    print(f"            async_save: training stands still for {peer['async']:.3f} s, of {peer['async_all']:.2f} s in all")
    print(
        f"ratios      ztrain saves {peer['sync'] / ours['sync']:.2f} times as fast, loads {peer['load'] / ours['load']:.2f} "
        f"times as fast, and stands still for {ours['async'] / peer['async']:.2f} of the time"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ztrain", type=pathlib.Path, default=ROOT / "build/cpu/ztrain")
    parser.add_argument("--python", help="of an environment with PyTorch; without it DCP is left out")
    parser.add_argument("--mpirun", default=import_export.MPIRUN)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=6, help="of 154 MB of states, beside 786 MB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument("--folder", type=pathlib.Path, help="on the disk to measure; default: a temporary one")
    arguments = parser.parse_args()
    os.environ.update(ZTRAIN=str(arguments.ztrain), ZTRAIN_MPIRUN=arguments.mpirun, ZTRAIN_SOURCE=str(ROOT))
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    import ztrain_run as zt

    work = pathlib.Path(tempfile.mkdtemp(prefix="ztrain-checkpoint-", dir=arguments.folder))
    try:
        (work / "ids.bin").write_bytes(zt.write_text_data(work / "text.txt").read_text().encode("utf-16-le"))
        deck = work / "deck.toml"
        deck.write_text(zt.deck_text(sections(work, arguments)))
        rounds = [one_round(zt, arguments, deck) for _ in range(arguments.rounds)]
        report(arguments, rounds)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
