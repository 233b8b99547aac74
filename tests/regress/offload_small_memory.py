"""A model whose states are more than six times the memory that the system lets the process have trains through NVMe, and
its checkpoint goes on without offload, bit for bit. Skipped, with a line that says so, where no control group can be made."""

import contextlib
import os
import pathlib
import re
import unittest

import ztrain_run as zt

LIMIT = 256 << 20
GROUPS = pathlib.Path("/sys/fs/cgroup")
# Many small blocks: 100.8M parameters, of which a step needs few at once.
DEEP = {"model.hidden_size": 256, "model.intermediate_size": 1024, "model.num_hidden_layers": 96,
        "model.num_attention_heads": 4, "model.num_key_value_heads": 4, "data.sequence": 16, "batch.global": 2,
        "evaluation.interval": 0}


@contextlib.contextmanager
def limited_group():
    """A group of processes with LIMIT bytes, by version 1 or 2 of the system's interface: (its folder, the file that tells
    its peak). OSError where this process may make none."""
    first = GROUPS / "memory"
    parent, limit, peak = (first, "memory.limit_in_bytes", "memory.max_usage_in_bytes") if first.is_dir() else (
        GROUPS, "memory.max", "memory.peak")
    group = parent / f"ztrain-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(LIMIT))
        yield group, group / peak
    finally:
        group.rmdir()


class SmallMemory(zt.Case):
    on_disk = True

    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 3
        return sections

    def test_trains_under_a_limit_and_resumes_without_offload(self):
        drive = self.folder / "drive"
        drive.mkdir()
        away = {f"offload.{kind}": "nvme" for kind in ("parameters", "gradients", "master", "optimizer", "activations")}
        # A copy of the states, for saves behind training, would be in memory.
        away |= {"offload.nvme_path": [drive], "offload.checksums": True, "checkpoint.async": False}
        with contextlib.ExitStack() as stack:
            try:
                group, peak = stack.enter_context(limited_group())
            except OSError as error:
                raise unittest.SkipTest(f"no control group with a limit of memory: {error}") from error
            into = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
            small = self.folder / "small"
            result = zt.run(1, [self.deck, *zt.words_of({"run.output": small, "checkpoint.interval": 2, **DEEP, **away})],
                            timeout=240, wrapper=into)
            self.assertEqual(result.code, 0, str(result))
            parameters = float(re.search(r"([\d.]+)M parameters", result.out).group(1)) * 1e6
            self.assertGreater(16 * parameters, 6 * LIMIT, "fp32 weights, gradients and two moments")
            self.assertLessEqual(int(peak.read_text()), LIMIT)
        resumed = self.train(1, "resumed", {**DEEP, "checkpoint.resume": small / "checkpoints" / "step_2"})
        self.assertEqual(zt.losses(resumed), {step: of for step, of in zt.losses(small).items() if step > 2})


if __name__ == "__main__":
    zt.main()
