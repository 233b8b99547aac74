"""A step that fails while the file system holds a checkpoint up."""

import os

import ztrain_run as zt

LIBRARY = os.environ["ZTRAIN_FAILING_STEP"]
HELD_UP = 60  # seconds


class FailsWhileSaving(zt.Case):
    def test_the_failure_is_told_at_once(self):
        """And ends the job: nobody waits for the file system."""
        variables = {"LD_PRELOAD": LIBRARY, "FAILING_RANK": 1, "FAILING_SECONDS": HELD_UP}
        # Steps enough between saves that some are left when the file system is asked.
        overrides = {"run.output": self.folder / "out", "run.steps": 100000, "schedule.name": "constant", "checkpoint.interval": 400}
        result = zt.run(
            2,
            [self.deck, *zt.words_of(overrides)],
            wrapper=["env", *(f"{name}={value}" for name, value in variables.items())],
            timeout=HELD_UP + 30,
        )
        self.assertNotEqual(result.code, 0, str(result))
        self.assertLess(result.seconds, HELD_UP / 2, str(result))
        self.assertRegex(result.err, r"ztrain: rank 1 \(\S+\) failed: train step, .*: MPI_Testall failed")


if __name__ == "__main__":
    zt.main()
