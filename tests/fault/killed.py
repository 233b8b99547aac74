"""Processes that are killed: the job ends, and the same command goes on from the newest checkpoint."""

import os
import signal
import time

import ztrain_run as zt


class Killed(zt.Case):
    def test_a_killed_rank_ends_the_job(self):
        for victim in (0, 2):
            process, ranks, _, log = self.begin(
                4,
                f"rank_{victim}",
                {"run.steps": 1000000, "metrics.interval": 100000, "schedule.name": "constant"},
                5,
            )
            os.kill(ranks[victim], signal.SIGKILL)
            killed_at = time.monotonic()
            zt.wait_for("the end of the job", lambda: process.poll() is not None, timeout=10)
            zt.wait_for(
                "the end of all ranks",
                lambda: not any(zt.alive(pid) for pid in ranks.values()),
                timeout=10 - (time.monotonic() - killed_at),
            )
            text = log.read_text()
            self.assertNotEqual(process.returncode, 0, text)
            self.assertRegex(text, rf"(?i)rank {victim}\b.*(signal 9|killed)", "nothing names the rank")

    def test_a_rank_that_hangs_is_noticed(self):
        process, ranks, _, log = self.begin(
            2, "hung", {"run.steps": 1000000, "schedule.name": "constant", "watchdog.timeout": 2}, 3
        )
        os.kill(ranks[1], signal.SIGSTOP)
        zt.wait_for("the end of the job", lambda: process.poll() is not None, timeout=20)
        text = log.read_text()
        self.assertNotEqual(process.returncode, 0, text)
        # Where the other is stopped between two steps, this one waits behind a step.
        waits = r"waiting in: (step \(\S+|what comes behind that|hearing from all ranks behind step)"
        self.assertRegex(text, r"ztrain: rank 0 \(\S+\): no progress for 2 s \(watchdog\.timeout\); " + waits)
        zt.wait_for("the end of all ranks", lambda: not any(zt.alive(p) for p in ranks.values()), timeout=20)

    def test_terminated_job_leaves_no_process(self):
        process, ranks, _, log = self.begin(
            3, "terminated", {"run.steps": 1000000, "batch.global": 6, "schedule.name": "constant"}, 3
        )
        process.terminate()
        zt.wait_for("the end of the job", lambda: process.poll() is not None, timeout=10)
        zt.wait_for(
            "the end of all ranks", lambda: not any(zt.alive(pid) for pid in ranks.values()), timeout=10
        )
        self.assertNotEqual(process.returncode, 0, log.read_text())

    def test_a_killed_job_goes_on(self):
        overrides = {
            "run.steps": 100,
            "checkpoint.interval": 20,
            "checkpoint.resume": "auto",
            "model.hidden_size": 128,
            "model.intermediate_size": 512,
            "data.sequence": 128,
        }
        process, ranks, output, log = self.begin(2, "job", overrides, 26)
        zt.end(process)
        process.wait()
        for pid in ranks.values():
            zt.wait_for("the end of a killed rank", lambda pid=pid: not zt.alive(pid))
        before, checkpoints = zt.losses(output), output / "checkpoints"
        newest = max(zt.saved_steps(checkpoints))
        self.assertLess(newest, len(before), f"not killed between checkpoints\n{log.read_text()}")
        self.train(2, "job", overrides)
        self.assertRegex(self.last.out, rf"checkpoint \S+/step_{newest} \(step {newest},")
        after = zt.losses(output)  # fails on a step that is there twice
        self.assertEqual(list(after), list(range(1, 101)))
        for step, value in before.items():
            self.assertEqual(after[step], value, f"step {step} differs from what the killed job wrote")
        self.assertEqual(zt.names_in(checkpoints), ["step_100", "step_80"])


if __name__ == "__main__":
    zt.main()
