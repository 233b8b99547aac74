"""What never answers, before a run has begun: a file system, a rank. The run ends with a message within watchdog.timeout."""

import ctypes
import os
import re
import signal
import unittest

import under_mpirun
import ztrain_run as zt

libc = ctypes.CDLL(None, use_errno=True)
DETACH = 2


class HangingFiles(zt.Case):
    """A file system whose server never answers, as that of a disk in the network may."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.disk = cls.folder / "disk"
        cls.disk.mkdir()
        try:
            server = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            raise unittest.SkipTest(f"/dev/fuse cannot be opened here: {error}") from None
        cls.addClassCleanup(os.close, server)
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"none", bytes(cls.disk), b"fuse", 0, options) != 0:
            raise unittest.SkipTest("no file system can be mounted here")
        cls.addClassCleanup(libc.umount2, bytes(cls.disk), DETACH)

    def test_the_deck_and_the_data(self):
        deck, data = f"{self.disk}/deck.toml", f"--data.train={self.disk}/text.txt"
        for ranks, words, phase in (
            (0, [deck], "reading the (command line|deck)"),
            (0, ["check", deck], "reading the (command line|deck)"),
            (2, [self.deck, data], "opening the data"),
        ):
            result = zt.run(ranks, [*words, "--watchdog.timeout=1"], timeout=20)
            self.assertNotEqual(result.code, 0, str(result))
            pattern = rf"ztrain: rank [01] \(\S+\): no progress for 1 s \(watchdog\.timeout\); waiting in: {phase}"
            self.assertRegex(result.err, pattern)
            if under_mpirun.OUTER_PMIX:
                self.assertNotRegex(result.output, under_mpirun.LINES_OF_MPIRUN)


class HangingRank(zt.Case):
    def test_a_rank_that_never_starts(self):
        stopped = ["-np", "1", "sh", "-c", "kill -STOP $$; sleep 60"]
        result = zt.run(1, [self.deck, "--watchdog.timeout=1", ":", *stopped], timeout=20)
        self.assertNotEqual(result.code, 0, str(result))
        waits = r"ztrain: process \d+: no progress for 1 s \(watchdog\.timeout\); waiting in: starting MPI\n"
        self.assertRegex(result.err, waits + r"rank 1 on the same node is stopped: process \d+\n")


class StoppedRank(zt.Case):
    """A rank that stops in the middle of a step: the others find it out beside the communicators, which hang."""

    def test_the_others_name_it(self):
        overrides = {"run.steps": 1000000, "schedule.name": "constant", "watchdog.timeout": 3}
        process, pids, _, log = self.begin(4, "stopped", overrides, 3)
        os.kill(pids[2], signal.SIGSTOP)
        zt.wait_for("the end of the job", lambda: process.poll() is not None, 60)
        self.assertNotEqual(process.returncode, 0)
        text = log.read_text()
        # The others may print too, where the launcher takes longer than they wait for the speaker.
        speaks = r"(?m)^ztrain: rank 0 \(\S+\): no progress for 3 s \(watchdog\.timeout\); waiting in: (?:step \(|hearing from all ranks)"
        self.assertEqual(len(re.findall(speaks, text)), 1, text)
        self.assertRegex(text, rf"rank 2 \(\S+\) gives no answer: its process {pids[2]} is stopped\n")
        # The others are in the step, or where all ranks meet behind it.
        here = r"where the ranks are:\n(.*\n)*?  "
        in_step = r"(?s)(ranks|rank) [013, ]+ waits? in \w+.* for:\n.*" + here + r"step, op \d+ of \d+, .*: .*[013]\n"
        self.assertRegex(text, rf"{in_step}|{here}hearing from all ranks behind step: 0, 1, 3\n")
        zt.wait_for("the end of all ranks", lambda: not any(zt.alive(pid) for pid in pids.values()), 10)


if __name__ == "__main__":
    zt.main()
