"""The scripts of slurm/ on a cluster of four nodes: jobs come to their time limit, are preempted, lose a node or a link, and go on.

What happens to a run may change no bit of its losses, so each is held against a run on this machine to which nothing happens. Runs
have no end of their own, so that none comes to it before the test is ready: a job is told to stop once it has come far enough.
"""

import os
import pathlib
import re
import signal
import subprocess

import cluster
import ztrain_run as zt

ENDLESS = {
    "run.steps": 1000000,
    "schedule.name": "constant",
    "checkpoint.resume": None,  # as slurm/launch.sh says
    "checkpoint.interval": 10,
}
ENDED = ("FAILED", "CANCELLED", "COMPLETED", "TIMEOUT", "NODE_FAIL")


class Jobs(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cluster.Cluster(4)
        cls.cluster.start()
        cls.folder = cls.cluster.shared
        cls.text = zt.write_text_data(cls.folder / "text.txt")

    def setUp(self):
        for node in self.cluster.nodes:
            if node.process.poll() is not None:  # a test that has failed left it dead
                node.start()
        self.cluster.wait_for_nodes(4)

    def run(self, result=None):
        """A failure shows what SLURM and the jobs have logged, which goes with the cluster."""
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > before:
            print(self.cluster.report())
            subprocess.run(["scancel", "--user=root"], check=False)

    def submit(self, name, *options, words=(), nodes=2, env=None, keys=None):
        """A job with two ranks on each node; the folder of its run has its name. Unless env says otherwise, it wants all its nodes:
        one that a busy machine lets answer late would else change the mesh."""
        batch = 4 * nodes
        self.ranks = 2 * nodes
        deck = self.write_deck(name, {**ENDLESS, "run.output": self.folder / name, "batch.global": batch, **(keys or {})})
        script = cluster.ROOT / "source/slurm/train_multi_node.sh"
        size = [f"--nodes={nodes}", "--ntasks-per-node=2"]
        wanted = {"ZTRAIN_MIN_NODES": str(nodes)} | (env or {})
        self.job = self.cluster.submit(f"--job-name={name}", *size, *options, script, deck, *words, env=wanted)
        self.output, self.log = self.folder / name, self.folder / f"{name}-{self.job}.out"

    def said(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def step(self):
        return max(zt.losses(self.output), default=0)

    def state(self):
        return self.cluster.job(self.job)["JobState"]

    def wait_for(self, what, condition):
        """Of a job that goes on: one that has ended will not come there."""
        zt.wait_for(what, lambda: condition() or self.state() in ENDED, 120)
        self.assertTrue(condition(), f"the job has ended before {what}")

    def wait_for_steps(self, more=3):
        step = self.step() + more
        self.wait_for(f"step {step}", lambda: self.step() >= step)

    def wait_for_start(self, number):
        """The training of that start of the job; gives the nodes that it is on."""
        self.wait_for(f"start {number}", lambda: self.said().count("training starts at step") >= number)
        return self.cluster.job(self.job)["NodeList"]

    def stop(self):
        """Some steps later the ranks are told to stop: after which they have."""
        self.wait_for_steps()
        for more in (True, True, False):  # a signal may be lost where a node has just come back
            subprocess.run(["scancel", "--signal=TERM", str(self.job)], check=True)
            try:
                zt.wait_for("the save", lambda: self.state() in ("PENDING", *ENDED), 40)
                break
            except AssertionError:
                if not more:
                    raise
        self.assertEqual(self.state(), "PENDING")
        subprocess.run(["scancel", str(self.job)], check=True)
        last = self.step()
        self.assertIn(last, zt.saved_steps(self.output / "checkpoints"))
        return last

    def undisturbed(self, what, ranks, last, keys=None):
        """The losses of the job's deck up to that step, on this machine."""
        name, deck = f"{self.output.name}_{what}", self.folder / f"{self.output.name}.toml"
        return zt.losses(self.train(ranks, name, {"run.steps": last, **(keys or {})}, deck))

    def finish(self):
        """All steps of the job are those of an undisturbed run."""
        last = self.stop()
        self.assert_same(self.undisturbed("straight", self.ranks, last), zt.losses(self.output))

    def test_the_end_of_the_allocation(self):
        """A minute is the least that SLURM knows: the run is told to leave most of it free. Its next start has more."""
        self.submit("limited", "--time=1", "--exclude=n[3-4]", words=["--run.end_margin=50"])
        self.assertEqual(self.wait_for_start(1), "n[1-2]")
        self.wait_for("the requeue", lambda: self.state() == "PENDING")
        self.assertRegex(self.said(), r"the allocation ends within \d+ s: the run stops after step \d+ of 1000000")
        self.assertIn("state saved: requeueing job", self.said())
        subprocess.run(["scontrol", "update", f"JobId={self.job}", "TimeLimit=60"], check=True)
        self.wait_for_start(2)
        stopped = int(re.search(r"the run stops after step (\d+) of", self.said())[1])
        self.assertIn(f"training starts at step {stopped + 1} of", self.said())
        self.finish()
        for rank in range(4):
            log = (self.folder / f"limited-{self.job}.ranks" / f"{rank}.log").read_text()
            self.assertRegex(log, rf"^start 1, rank {rank} on n{rank // 2 + 1}: process \d+, cores ")
            self.assertRegex(log, rf"\nstart 2, rank {rank} on n{rank // 2 + 1}: ")

    def test_a_job_is_preempted(self):
        self.submit("preempted")
        self.wait_for_start(1)
        self.wait_for_steps()
        other = self.folder / "other.sh"
        other.write_text("#!/bin/sh\nexit\n")
        self.cluster.submit("--partition=urgent", "--nodes=4", "--exclusive", other)
        self.wait_for_start(2)
        self.assertRegex(self.said(), r"SIGTERM: the run stops after step \d+ of 1000000")
        self.finish()

    def test_nodes_and_links_fail(self):
        """A job that wants all its nodes is requeued, by its script or, with that one's node, by the guard; also to one that came back."""
        self.submit("failing", "--exclude=n4", env={"ZTRAIN_GUARD": "1"})
        self.assertEqual(self.wait_for_start(1), "n[1-2]")
        self.wait_for_steps(20)
        first, second, *_ = self.cluster.nodes
        second.kill()
        self.assertEqual(self.wait_for_start(2), "n[1,3]")
        self.assertIn("too few nodes are left: ZTRAIN_MIN_NODES = 2: requeueing job", self.said())
        self.wait_for_steps()
        second.start()
        self.cluster.wait_for_nodes(2)
        # The ranks there hold the run's folder until SLURM reaches them. They wait for the others, which keeps processors busy, unless they
        # are stopped.
        first.cut()
        for rank in zt.rank_processes(first.process.pid).values():
            os.kill(rank, signal.SIGSTOP)
        waits = "an earlier start of this job may not have ended yet"
        self.wait_for("the start after that", lambda: waits in self.said())
        first.mend()
        self.assertEqual(self.wait_for_start(3), "n[2-3]")
        # Where a step of this number was under way when the node died, it refuses the step of the next start.
        if "launch failed" in self.said():
            self.assertIn("slurm/launch.sh: a node refused to launch the step", self.said())
        self.finish()

    def test_a_job_goes_on_with_what_is_left(self):
        """In the same allocation: after a rank is killed with all ranks, after a node is gone without it, with one copy of the
        state for two and twice as many micro-batches of the same size; from what the memory of the nodes that are left has of the
        others. Steps have the bits of their mesh, and are one run up to the rounding of sums."""
        keys = {"mesh.replicate": -1, "mesh.shard": 2, "checkpoint.interval": 100, "checkpoint.keep": 0}
        copies = {"checkpoint.memory_copies": 1, "checkpoint.memory_interval": 5}
        self.submit("shrinking", keys={**keys, **copies}, env={"ZTRAIN_MIN_NODES": "1"})
        self.wait_for_start(1)
        self.wait_for_steps(12)
        first, second, *_ = self.cluster.nodes
        memory = pathlib.Path(f"/proc/{first.children()[0]}/root/dev/shm")
        newest = lambda: max((int(path.name[5:]) for path in memory.glob("ztrain-*/step_*") if path.name[5:].isdigit()), default=0)
        # It is written behind training, by a thread that a machine with other work may keep waiting.
        self.wait_for("a first snapshot", lambda: newest() >= 5)
        subprocess.run(["kill", "-9", str(zt.rank_processes(first.process.pid)[1])], check=True)
        self.wait_for_start(2)
        self.assertIn("slurm/launch.sh: a rank has crashed or was killed; all are started again", self.said())
        self.assertGreaterEqual(self.resumed(), 5, "from memory, since there is no checkpoint yet")
        self.wait_for("the checkpoint of step 100", lambda: 100 in zt.saved_steps(self.output / "checkpoints"))
        self.wait_for("a snapshot behind it", lambda: newest() > 100)
        second.kill()
        self.wait_for_start(3)
        self.assertIn("slurm/launch.sh: training goes on with 2 ranks on n1", self.said())
        self.assertIn("and the newest checkpoint is of step 100: it is now", self.said())
        self.assertEqual(self.cluster.job(self.job)["Restarts"], "0")
        resumed = self.resumed()
        self.assertGreater(resumed, 100)
        last = self.stop()
        self.assertEqual(list(memory.glob("ztrain-*")), [], "what a run that ends well has left in memory")
        second.start()
        self.assert_steps_of_meshes(resumed, last)

    def resumed(self):
        """The step that the newest start of the job goes on from."""
        return int(re.findall(r"training starts at step (\d+) of", self.said())[-1]) - 1

    def assert_steps_of_meshes(self, resumed, last):
        """Up to that step those of two copies of the state, then those of one, which begin near to them."""
        job, straight = zt.losses(self.output), self.undisturbed("straight", 4, last)
        before = lambda losses: {step: loss for step, loss in losses.items() if step <= resumed}
        behind = lambda losses: {step: loss for step, loss in losses.items() if step > resumed}
        self.assert_same(before(straight), before(job))
        # How many steps follow is a matter of time, and differences of sums grow with each.
        near = lambda losses: {step: loss for step, loss in losses.items() if step <= resumed + 50}
        self.assert_close(near(straight), near(job), 1e-4)
        saved = self.output / f"checkpoints/step_{resumed}"
        fewer = self.undisturbed("fewer", 2, last, {"mesh.replicate": 1, "checkpoint.resume": str(saved)})
        self.assert_same(fewer, behind(job))
        self.assertNotEqual(fewer, behind(straight), "the mesh has changed no sum")

    def test_a_link_becomes_slow(self):
        self.submit("slow")
        self.wait_for_start(1)
        node = self.cluster.nodes[1]
        self.addCleanup(node.fast)
        node.slow("8mbit")
        self.wait_for_steps()
        node.fast()
        self.finish()
        self.assertEqual(self.said().count("training starts at step"), 1)

    def test_a_slow_node_is_left_out(self):
        """It is found before the first step; the job then waits for others."""
        second = self.cluster.nodes[1]
        self.addCleanup(second.fast)
        second.slow("50mbit")
        # A job of three nodes then waits for all of the others, if need be.
        fourth = ["scontrol", "update", "NodeName=n4"]
        subprocess.run([*fourth, "State=DRAIN", "Reason=later"], check=True)
        self.submit("preflown", nodes=3, env={"ZTRAIN_PREFLIGHT": "1", "ZTRAIN_LINK_MEBIBYTES": "1", "ZTRAIN_LEAST_DISK": "0", "ZTRAIN_LEAST_LINK": "0.2"})
        self.wait_for("its nodes", lambda: self.state() == "RUNNING")
        subprocess.run([*fourth, "State=RESUME"], check=True)
        self.assertEqual(self.wait_for_start(1), "n[1,3-4]")
        self.assertRegex(self.said(), r"\nslow node n2: \S+ .B/s on its fastest link, where \S+ .B/s is usual\n")
        self.assertIn("nodes are bad: n2: requeueing job", self.said())
        for node in ("n1", "n2", "n3", "n4"):
            self.assertRegex(self.said(), rf"(?m)^{node}: memory \d+ GB, \d+ GB free; cores .*; NUMA nodes: ")
        self.finish()

    def test_ranks_that_know_nothing_of_each_other(self):
        """As with a plugin of srun that the MPI library does not know."""
        self.write_deck("alone", {"run.output": self.folder / "alone"})
        executable = self.cluster.environment()["ZTRAIN"]
        done = subprocess.run(
            ["srun", "--mpi=none", "--nodes=2", "--ntasks=2", executable, self.folder / "alone.toml"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertNotEqual(done.returncode, 0, str(done))
        self.assertEqual(len(re.findall(r"ztrain: srun has started 2 tasks \(.*\), and to MPI each is a job of one rank", done.stderr)), 1, str(done))
        self.assertIn("srun --mpi=pmix", done.stderr)
        self.assertFalse((self.folder / "alone").exists())


if __name__ == "__main__":
    cluster.enter()
    zt.main()
