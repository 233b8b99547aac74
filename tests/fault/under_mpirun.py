"""What mpirun does with ranks that have failed: the message is the last that a user reads, and no other program is ended."""

import shutil
import subprocess
import unittest

import ztrain_run as zt

# Asking mpirun to end the job takes the PMIx library that Open MPI was built with, which may be one inside it.
OUTER_PMIX = "MCA pmix: ext" in (subprocess.getoutput("ompi_info") if shutil.which("ompi_info") else "")
# What mpirun prints of a job that ended in another way.
LINES_OF_MPIRUN = r"MPI_ABORT|mpirun detected|Primary job"


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
