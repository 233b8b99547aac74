"""What slurm/launch.sh does where ranks crash and nodes fail, with stand-ins for SLURM's programs and for ztrain."""

import os
import pathlib
import signal
import subprocess

import ztrain_run as zt
from slurm_stand_ins import NODE, NODES, Scripts, put


class Failures(Scripts):
    def test_ranks_that_crash_are_started_again_once(self):
        """Unlike a run that fails, whose ranks may be killed once it has."""
        again = "slurm/launch.sh: a rank has crashed or was killed; all are started again\n"
        failed = "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: task 8: Killed"
        for status, says, count in (
            ("139", "", 1),
            ("143", "srun: error: n1: task 0: Segmentation fault", 1),
            ("137", "srun: error: n2: tasks 8-9: Killed\nsrun: error: n1: task 0: Exited with exit code 1", 1),
            ("141", "srun: error: n1: task 0: Broken pipe", 1),
            ("137", "srun: error: n1: task 3: Out Of Memory", 1),
            ("141", "", 1),
            ("143", "", 0),
            ("137", failed, 0),
            ("1", "", 0),
        ):
            job = {**NODE, "FAIL": "9", "FAILS": says, "STATUS": status}
            for allowed, times in (({}, count), ({"ZTRAIN_FAILURES": "3"}, 3 * count), ({"ZTRAIN_FAILURES": "0"}, 0)):
                calls = self.submit({**job, **allowed}, "inputs/smoke.toml")
                self.assertEqual(self.done.returncode, int(status))
                self.assertEqual(self.done.stdout.count(again), times, says)
                self.assertEqual(len(calls), 2 * (1 + times), "srun and ztrain for each start")

    def test_training_goes_on_with_the_nodes_that_are_left(self):
        """One of four is not SLURM's any more, or does not answer; three have 24 ranks, and the deck takes 16."""
        for gone in ({"LEFT": "a,b,d"}, {"DEAD": "c"}):
            job = {**NODES, **gone, "FAIL": "1", "RANKS": "16"}
            first, _, second, program = self.submit(job, "inputs/smoke.toml", "--run.steps=3")
            self.assertEqual(self.done.returncode, 0, self.done.stderr)
            self.assertNotIn("--nodelist", first)
            self.assertIn(" --nodes=2 --ntasks=16 --ntasks-per-node=8 --nodelist=a,b ", second)
            self.assertIn("--kill-on-bad-exit=1", second)
            self.assertTrue(program.endswith(" inputs/smoke.toml --run.steps=3 --checkpoint.resume=auto"), program)
            self.assertIn("launch.sh: 3 of the job's nodes answer (a b d), and training was on 4, ", self.done.stdout)
            self.assertIn("launch.sh: training goes on with 16 ranks on a b\n", self.done.stdout)
            asked = f"ztrain ranks inputs/smoke.toml --run.steps=3 --checkpoint.resume=auto --most 24 --per-node 8\n"
            self.assertIn(asked, self.beside.read_text())
            self.assertRegex((self.root / "ztrain-7.ranks/0.log").read_text(), r"(?m)^start 1, try 2, rank 0 on ")
        # A second failure, of which the four nodes know nothing, is that of the run.
        self.submit({**NODES, "DEAD": "c", "FAIL": "9", "RANKS": "24"}, "inputs/smoke.toml")
        self.assertEqual((self.done.returncode, self.done.stdout.count("training goes on with 24 ranks on a b d")), (1, 1))

    def test_a_second_node_fails_where_the_mesh_has_left_one_idle(self):
        """Of a, b and d, with 16 ranks for 24, training takes a and b; then b dies, and d takes its place. A failure where both answer is
        that of the run."""
        calls = self.submit({**NODES, "DIES": "c b", "FAIL": "2", "RANKS": "16"}, "inputs/smoke.toml")
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertIn(" --nodelist=a,b ", calls[2])
        self.assertIn(" --nodelist=a,d ", calls[4])
        self.assertIn("launch.sh: 2 of the job's nodes answer (a d), and training was on 2, ", self.done.stdout)
        self.submit({**NODES, "DIES": "c d", "FAIL": "9", "RANKS": "16"}, "inputs/smoke.toml")
        self.assertEqual((self.done.returncode, self.done.stdout.count("training goes on with")), (1, 1))

    def test_a_guard_on_another_node_looks_after_the_script(self):
        """It is not there where there is no other node."""
        put(self.root / "slurm/guard.sh", '#!/bin/sh\necho "guard $*" >> "$CALLS.guard"\n')
        called = pathlib.Path(str(self.calls) + ".guard")
        for job, expected in ((NODES, ["guard 7 b 9"]), ({**NODES, "LEFT": "b"}, []), (NODE, [])):
            called.write_text("")
            self.beside.write_text("")
            self.submit({**job, "ZTRAIN_GUARD": "9", "SLURMD_NODENAME": "b"}, "inputs/smoke.toml")
            zt.wait_for("the guard", lambda: called.read_text().splitlines() == expected)
            self.assertEqual("--nodelist=d --mpi=none" in self.beside.read_text(), expected != [])

    def test_a_guard_requeues_a_job_whose_script_is_gone(self):
        """And ends with the job, not with the signals that come to its ranks."""
        asked = pathlib.Path(str(self.calls) + ".asked")
        for job, calls in (({"LEFT": "a,c"}, ["scontrol requeue 7"]), ({"LEFT": "a,b"}, []), ({"LEFT": ""}, [])):
            self.calls.write_text("")
            asked.write_text("")
            command = [zt.SOURCE / "slurm/guard.sh", "7", "b", "0.1"]
            environment = self.environment({**NODES, **job})
            with subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.PIPE) as guard:
                self.addCleanup(zt.end, guard)
                try:
                    zt.wait_for("a look", lambda: asked.read_text().count("%N") > 2)
                    guard.terminate()
                    zt.wait_for("another", lambda: asked.read_text().count("%N") > 4)
                    self.assertIsNone(guard.poll())
                finally:
                    # With what it has started, which would write into the next round's calls: all of them hold the pipe.
                    os.killpg(guard.pid, signal.SIGKILL)
                    guard.communicate()
            self.assertEqual(sorted(set(self.calls.read_text().splitlines())), calls)
        done = [zt.SOURCE / "slurm/guard.sh", "7", "b", "0.1"]
        subprocess.run(done, env=self.environment({**NODES, "LEFT": "a", "STATE": "COMPLETING"}), check=True, timeout=20)
        self.assertEqual(self.calls.read_text(), "")

    def test_a_job_of_which_too_little_is_left_waits_for_nodes(self):
        requeued = ["scontrol requeue 7"]
        gone = {**NODES, "LEFT": "a,b,d", "FAIL": "1"}
        for job, said in (
            ({**gone, "RANKS": "24", "ZTRAIN_MIN_NODES": "4"}, "too few nodes are left: ZTRAIN_MIN_NODES = 4: requeueing"),
            ({**gone, "RANKS": "8"}, "the deck's mesh takes 1 of the nodes: ZTRAIN_MIN_NODES = 2: requeueing"),
            ({**gone, "LEFT": "a"}, "too few nodes are left: ZTRAIN_MIN_NODES = 2: requeueing"),
            (gone, "the deck's mesh takes none of the 24 ranks that are left: requeueing"),
            ({**gone, "FAIL": "2", "RANKS": "24", "FAILS": "ztrain: the job does not fit: ..."}, "does not fit 3 of its 4 nodes: requeueing"),
        ):
            calls = self.submit(job, "inputs/smoke.toml")
            self.assertEqual((calls[-1:], self.done.returncode), (requeued, 0), self.done.stderr)
            self.assertIn(said, self.done.stdout)
        calls = self.submit({**gone, "ZTRAIN_MPI": "mpirun"}, "inputs/smoke.toml")
        self.assertEqual((calls[2:], self.done.returncode), (requeued, 0), self.done.stderr)
        self.assertIn("nodes have failed, and mpirun does not go on without them: requeueing", self.done.stdout)
        # What SLURM takes from its nodes it starts again itself; where nothing answers nothing is known.
        for job in ({**gone, "RANKS": "24", "STATE": "COMPLETING"}, {**gone, "LEFT": ""}, {**gone, "LEFT": "c", "DEAD": "c"}):
            self.assertEqual(len(self.submit(job, "inputs/smoke.toml")), 2)
            self.assertEqual(self.done.returncode, 1)


if __name__ == "__main__":
    zt.main()
