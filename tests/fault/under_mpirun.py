"""What mpirun does with ranks that have failed: the message is the last that a user reads, and no other program is ended."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest
from unittest import mock

import ztrain_run as zt

# Asking mpirun to end the job takes the PMIx library that Open MPI was built with, which may be one inside it.
OUTER_PMIX = "MCA pmix: ext" in (subprocess.getoutput("ompi_info") if shutil.which("ompi_info") else "")
# What mpirun prints of a job that ended in another way.
LINES_OF_MPIRUN = r"MPI_ABORT|mpirun detected|Primary job"


SAVED = 75


class UnderMpirun(zt.Case):
    @unittest.skipUnless(OUTER_PMIX, "this Open MPI has a PMIx of its own: lines of mpirun follow each message")
    def test_the_message_is_the_last(self):
        saved = self.train(1, "saved", {"run.steps": 1}) / "checkpoints" / "step_1"
        for words, pattern in (
            ([self.deck, "--run.stpes=4"], r"unknown key 'run\.stpes'"),
            ([self.deck, "--data.train=nowhere"], r"data\.train"),
            (["check"], None),
            # Of one rank alone, while the other waits for it in the model.
            (["generate", saved, "--prompt", "abc", "--logits", "/dev/full"], r"--logits: cannot write '/dev/full'"),
        ):
            result = zt.run(2, words, timeout=20)
            self.assertNotEqual(result.code, 0, str(result))
            if pattern:
                self.assert_refused(result, pattern)
            self.assertNotRegex(result.output, LINES_OF_MPIRUN, str(result))

    def test_what_ends_a_run(self):
        """Ctrl-C kills the ranks in a step that takes longer, as its start and the notice say; SIGUSR1 saves."""
        keys = {"run.steps": 1000000, "schedule.name": "constant", "checkpoint.resume": "auto"}
        name = pathlib.Path(zt.LAUNCHER[0]).name
        saving = rf"`pkill -USR1 {name}`"
        slow = {**keys, "model.hidden_size": 512, "model.intermediate_size": 2048, "model.num_hidden_layers": 6, "data.sequence": 1024}
        started = []
        for word, extra in (("slow", {}), ("unsaved", {"checkpoint.interval": -1, "checkpoint.resume": "none"})):
            output, log = self.folder / word, self.folder / f"{word}.log"
            with mock.patch.dict(os.environ, {"OMPI_MCA_odls_base_sigkill_timeout": "1"}):  # as without a word
                process = zt.start(2, [self.deck, *zt.words_of({"run.output": output, **slow, **extra})], log)
            self.addCleanup(process.wait)
            self.addCleanup(zt.end, process)
            started.append((process, output, log, bool(extra)))
        for process, output, log, unsaved in started:
            zt.wait_for("the first step", lambda: "time left" in log.read_text())
            process.send_signal(signal.SIGINT)
            process.wait(10)
            text = log.read_text()
            self.assertNotIn(process.returncode, (0, SAVED), text)
            self.assertEqual(zt.saved_steps(output / "checkpoints"), [])
            start = re.findall(rf"^to stop +{saving} saves .*Ctrl-C kills the ranks within 2 s$", text, re.M)
            self.assertEqual(len(start), not unsaved, text)
            notice = rf"SIGTERM: .* kills the ranks in 1 s: .* are lost\. {saving} ends"
            self.assertEqual(bool(re.search(notice, text)), not unsaved, text)
            self.assertNotIn("after this step, with a checkpoint", text)
        process, _, output, log = self.begin(2, "quick", keys, 3)
        process.send_signal(signal.SIGUSR1)
        process.wait(20)
        self.assertEqual(process.returncode, SAVED, log.read_text())
        self.assertEqual(zt.saved_steps(output / "checkpoints"), [max(zt.losses(output))])

    def test_a_setting_that_kokkos_does_not_take(self):
        result = zt.run(2, [self.deck], env={"KOKKOS_NUM_THREADS": "many"})
        self.assert_refused(result, r"^ztrain: Kokkos does not start: Error: .*KOKKOS_NUM_THREADS.*")
        self.assertNotIn("Traceback", result.output)

    def test_a_shell_that_started_the_ranks_goes_on(self):
        shell = ("sh", "-c", '"$@" || echo "the shell goes on"', "sh")
        result = zt.run(2, [self.deck, "--run.stpes=4"], wrapper=shell)
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(result.out.count("the shell goes on"), 2, str(result))


if __name__ == "__main__":
    zt.main()
