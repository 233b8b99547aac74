#!/usr/bin/env python3
"""NCCL, on a single GPU too:

    tools/acceptance/nccl.py --build build/cuda --out FOLDER --gpus N

Its tests, on one rank (whose groups are NCCL's as well) and on each GPU; a training run of one rank through NCCL
(ZTRAIN_NCCL_OF_ONE=1) against the same without, bit for bit, and as one CUDA graph with NCCL inside; several ranks on one
GPU, where NCCL is 2.30 or later and NCCL_MULTI_RANK_GPU_ENABLE=1 lets them.
"""
import checks as smaller
import facts
import parity
import runs
import tests

OF_ONE = {"ZTRAIN_NCCL_OF_ONE": "1"}
SAID = "groups of one rank too"
TEST = "mpi_comm_nccl"


def own_tests(arguments, runner, checks):
    path = arguments.build / "tests" / "mpi" / TEST
    for count in sorted({1, arguments.gpus}):
        name = f"tests, {count} rank{'s' if count > 1 else ''}"
        if not path.is_file():
            checks.skip(name, f"there is no {path}")
        elif count == 1 or checks.have_mpirun(name, runner):
            tests.run_test(runner, checks, path, count, name)


def trained(runner, name, env, more):
    keys = {"sharding.strategy": "FULL_SHARD", "device.communicator": "nccl", **more}
    return runner.train(name, 1, smaller.short(keys), env=env)


def of_one(runner, checks):
    without = trained(runner, "alone", {}, {})
    through = trained(runner, "of_one", OF_ONE, {})
    if through.code == 0 and SAID not in through.text:
        return checks.judge(False, "groups of one rank", "the run did not take NCCL for them")
    smaller.same(checks, "groups of one rank", without, through)
    captured = trained(runner, "of_one_graph", OF_ONE, {"device.cuda_graphs": "step"})
    if captured.code == 0 and SAID not in captured.text:
        return checks.judge(False, "a graph of the step", "NCCL was not inside")
    smaller.same(checks, "a graph of the step", through, captured)


def sharing(arguments, runner, checks):
    name = "ranks on one GPU"
    if not checks.have_mpirun(name, runner):
        return None
    version = facts.nccl_version(runner.executable)
    if 0 < version < 23000:
        return checks.lack(name, f"NCCL {facts.nccl_text(version)} serves one rank per GPU; several from 2.30 on")
    comparison = parity.Parity(arguments, runner, checks)
    comparison.check("FULL_SHARD", 2, "bf16 short", {"device.communicator": "nccl"}, parity.one_gpu(), name)


def main():
    arguments = runs.arguments_of(__doc__)
    checks = runs.Checks()
    if arguments.gpus == 0:
        checks.lack("nccl", "a build for CPUs has none")
        return checks.exit()
    runner = runs.Runner(arguments)
    own_tests(arguments, runner, checks)
    of_one(runner, checks)
    sharing(arguments, runner, checks)
    checks.exit()


if __name__ == "__main__":
    main()
