"""Slows a rank, the links, a drive or the reading of data, and expects that the end of the run names the slow part."""

import os
import unittest

import ztrain_run as zt


class Slowed(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 8
        sections["batch"]["global"] = 3
        sections["checkpoint"]["interval"] = -1
        return sections

    def last_lines(self, call, milliseconds, overrides=None, rank=None):
        """Returns the lines at the end of a run of three ranks whose calls of this kind are slow. The run writes no checkpoint."""
        slow = {"LD_PRELOAD": os.environ["ZTRAIN_SLOW_CALLS"], "ZTRAIN_SLOW_CALL": call,
                "ZTRAIN_SLOW_MS": str(milliseconds)}
        if rank is not None:
            slow["ZTRAIN_SLOW_RANK"] = str(rank)
        words = [self.deck, *zt.words_of({"run.output": self.folder / call, **(overrides or {})})]
        result = zt.run(3, words, env=slow)
        self.assertEqual(result.code, 0, result)
        return "\n".join(line for line in result.out.splitlines() if line.startswith(("bound by", "all wait")))

    def test_a_rank(self):
        said = self.last_lines("compute", 3, {"device.fp32_products": "native"}, rank=2)
        self.assertRegex(said, r"^bound by collectives: ")
        self.assertRegex(said, r"\nall wait for slow ranks: forward: rank 2 \(\S+\) \S+ s a step, where \S+ s is usual; backward: rank 2 ")

    def test_links(self):
        said = self.last_lines("send", 3)
        self.assertRegex(said, r"^bound by collectives: ")
        self.assertNotIn("rank 2", said)

    def test_a_drive(self):
        states = {f"offload.{state}": "nvme" for state in ("parameters", "master", "optimizer")}
        said = self.last_lines("ring", 5, {**states, "offload.nvme_path": [str(self.folder)]})
        self.assertRegex(said, r"^bound by copies to and from other memory: ")

    def test_reading_data(self):
        self.assertRegex(self.last_lines("read", 10), r"^bound by reading data: ")


if __name__ == "__main__":
    zt.main()
