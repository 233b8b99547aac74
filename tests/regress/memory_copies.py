"""Snapshots in the memory of nodes (checkpoint.memory_copies), of runs on one node: a run that is killed goes on from the newest, and
nothing is left of one that ends well. tests/slurm has those of several nodes."""

import json
import re
import shutil

import ztrain_run as zt

TIME = 60


class MemoryCopies(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 100000
        sections["schedule"] = {"name": "constant"}
        sections["checkpoint"] = {"memory_copies": 1, "memory_interval": 4}
        return sections

    def setUp(self):
        self.memory = self.folder / self.id().rsplit(".", 1)[1]
        self.memory.mkdir()

    def keys(self, more=None):
        return {"checkpoint.memory_folder": self.memory, **(more or {})}

    def snapshots(self):
        """{step: folder} of those that are whole."""
        return {int(path.name[5:]): path for path in self.memory.glob("ztrain-*/step_*") if path.name[5:].isdigit()}

    def killed(self, name, more=None, ranks=2):
        """A run whose ranks are killed when memory is ahead of the disk, which has step 6 alone; its output."""
        output = self.train(ranks, name, self.keys({"run.steps": 6, **(more or {})}))
        process, pids, _, log = self.begin(ranks, name, self.keys(more), 16)
        told = r"step \d+: a snapshot is in the memory of 1 node \(.* by this rank\), as every 4 steps"
        zt.wait_for("the line on the first", lambda: re.search(told, log.read_text()))
        zt.wait_for("a newer snapshot", lambda: max(self.snapshots(), default=0) > 6)
        zt.end(process)
        process.wait()
        # Until a rank is gone, and not its launcher alone, it holds its folder.
        zt.wait_for("the ranks' end", lambda: not any(zt.alive(pid) for pid in pids.values()))
        self.assertEqual(zt.saved_steps(output / "checkpoints"), [6])
        self.assertIn("warning: checkpoint.memory_copies = 1, and all ranks are on one node", log.read_text())
        return output

    def resumed(self, name, more=None, ranks=2):
        """Goes on for some steps: (the step that it goes on from, the step of its end)."""
        output = self.folder / name
        last = max(zt.losses(output)) + 9
        self.train(ranks, name, self.keys({"run.steps": last, **(more or {})}), timeout=TIME)
        first = int(self.last.out.split("training starts at step ")[1].split()[0])
        return first - 1, last

    def test_a_run_that_is_killed_goes_on_from_the_newest(self):
        output = self.killed("killed")
        newest = max(self.snapshots())
        stayed = sorted(self.snapshots())
        self.assertLessEqual(len(stayed), 2, "the newest two")
        resumed, last = self.resumed("killed")
        self.assertEqual(resumed, newest)
        said = f"the nodes' memory has a snapshot of step {newest}, and the newest checkpoint is of step 6: it is now "
        self.assertIn(said, self.last.out)
        whole = self.train(2, "whole", {"run.steps": last, "checkpoint.memory_copies": 0})
        self.assert_same(zt.losses(whole), zt.losses(output))
        checkpoint = output / f"checkpoints/step_{last}"
        self.assert_same_tensors(self.folder / f"whole/checkpoints/step_{last}", checkpoint)
        self.assertEqual(list(self.memory.iterdir()), [], "a run that ends well leaves nothing")

    def test_a_copied_folder_leaves_the_original_its_snapshots(self):
        output = self.killed("original")
        newest = max(self.snapshots())
        shutil.copytree(output, self.folder / "copied")
        self.train(2, "copied", self.keys({"run.steps": 7}))
        self.assertIn("copied/checkpoints is a copy of a run's folder: that run's snapshots in the nodes' memory stay its own\n", self.last.out)
        self.assertIn("training starts at step 7 of 7", self.last.out)
        self.assertEqual(self.resumed("original")[0], newest)

    def test_a_damaged_checkpoint_hides_none(self):
        """A snapshot between a sound checkpoint and one whose damage shows when its tensors are read."""
        output = self.killed("hidden")
        newest = max(self.snapshots())
        last = output / f"checkpoints/step_{newest + 1}"
        self.train(2, "later", {"run.steps": newest + 1, "checkpoint.memory_copies": 0})
        shutil.copytree(self.folder / f"later/checkpoints/step_{newest + 1}", last)
        shard = last / "shard_0000.h5"
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.write_bytes(content)
        resumed, _ = self.resumed("hidden")
        self.assertEqual(resumed, newest)
        self.assertIn(f"step_{newest + 1} is damaged; it stays as it is, and step_{newest} is taken: ", self.last.out)
        self.assertTrue(last.exists())

    def test_those_that_are_not_looked_at_are_told(self):
        self.killed("without")
        self.train(2, "without", self.keys({"run.steps": 6, "checkpoint.memory_copies": 0}))
        self.assertRegex(self.last.out, r"warning: this run has snapshots in \S+ \(.* on this node\), which are not looked at: set checkpoint.memory_copies = 1 ")

    def test_on_another_mesh(self):
        output = self.killed("mesh")
        resumed, last = self.resumed("mesh", ranks=1)
        self.assertGreater(resumed, 6)
        self.assert_close(zt.losses(self.train(2, "mesh_whole", {"run.steps": last, "checkpoint.memory_copies": 0})), zt.losses(output), 1e-4)

    def test_one_that_is_damaged_is_named_and_the_one_before_taken(self):
        output = self.killed("damaged")
        for path in self.snapshots().values():
            shard = path / "shard_0000.h5"
            if not shard.exists():  # the ranks were killed while they removed that snapshot
                continue
            content = bytearray(shard.read_bytes())
            content[len(content) // 2] ^= 1
            shard.write_bytes(content)
        newest = max(self.snapshots())
        resumed, last = self.resumed("damaged")
        self.assertEqual(resumed, 6, "of memory all is damaged")
        said = rf"warning: a snapshot in the nodes' memory is passed over: step {newest}: no node has shard_0000.h5 as it was written \("
        self.assertRegex(self.last.out, said)
        self.assertEqual(zt.run(0, ["verify", output / f"checkpoints/step_{last}"]).code, 0)

    def test_whoever_starts_anew_finds_nothing_of_it(self):
        self.killed("anew")
        self.train(2, "anew", self.keys({"run.steps": 2, "checkpoint.resume": "none"}))
        self.assertIn("no checkpoint is read", self.last.out)
        self.assertEqual(list(self.memory.iterdir()), [])
        output = self.killed("removed")
        shutil.rmtree(output)
        self.train(2, "removed", self.keys({"run.steps": 2}))
        self.assertIn("snapshots of 1 dead run are removed from the nodes' memory\n", self.last.out)
        self.assertIn("training starts at step 1 of 2", self.last.out)
        self.assertEqual(list(self.memory.iterdir()), [])

    def test_saves_and_signals_do_not_meet_it(self):
        """Of two that fall due at one step the checkpoint is written; losses know of neither."""
        keys = self.keys({"run.steps": 24, "checkpoint.interval": 6, "checkpoint.memory_interval": 1, "checkpoint.keep": 0})
        output = self.train(2, "both", keys)
        self.assertEqual(zt.saved_steps(output / "checkpoints"), [6, 12, 18, 24])
        plain = self.train(2, "plain", {"run.steps": 24, "checkpoint.memory_copies": 0})
        self.assert_same(zt.losses(plain), zt.losses(output))
        self.train(2, "waits", {**keys, "checkpoint.async": False, "watchdog.audit_interval": 5})
        self.assert_same(zt.losses(plain), zt.losses(self.folder / "waits"))

    def test_a_folder_that_is_lost_is_made_again(self):
        """As when the system clears what users who have logged out left in memory."""
        process, _, _, log = self.begin(2, "lost", self.keys(), 8)
        zt.wait_for("a snapshot", self.snapshots)
        (folder,) = self.memory.glob("ztrain-*")
        shutil.rmtree(folder, ignore_errors=True)
        zt.wait_for("another", lambda: self.snapshots() and (folder / "checkpoints").exists())
        before = max(self.snapshots())
        zt.wait_for("one behind it", lambda: max(self.snapshots(), default=0) > before)
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        zt.end(process)

    def test_memory_is_what_was_planned(self):
        """Of one node twice what its ranks save; at most as much as the plan says, and little less."""
        self.killed("planned", {"model.hidden_size": 256, "model.intermediate_size": 512})
        plan = zt.run(0, ["plan", self.deck, "--ranks", "2", "--json", "--model.hidden_size=256", "--model.intermediate_size=512"])
        planned = find(json.loads(plan.out))
        newest = max(self.snapshots())
        used = 2 * sum(file.stat().st_size for file in self.snapshots()[newest].iterdir())
        self.assertLess(abs(used - planned), 0.05 * planned, f"{used} of {planned}")

    def test_what_cannot_be_is_refused(self):
        for more, said in (
            ({"checkpoint.memory_folder": self.folder / "nowhere"}, r"checkpoint\.memory_folder: '.*nowhere' is no folder of this node"),
            ({"checkpoint.interval": -1}, r"checkpoint\.memory_copies = 1 goes on from snapshots .* nearest legal: 0"),
            ({"checkpoint.memory_copies": 2}, r"checkpoint\.memory_copies"),
        ):
            result = zt.run(2, [self.deck, *zt.words_of({"run.output": self.folder / "refused", **self.keys(more)})])
            self.assert_refused(result, said)
        # Another run, on this node or on one that sees the same folder.
        process, _, _, _ = self.begin(2, "first", self.keys(), 5)
        (held,) = self.memory.glob("ztrain-*")
        token = (self.folder / "first/checkpoints/.snapshots").read_text()
        self.assertEqual(held.name, f"ztrain-{token}")
        other = self.folder / "second/checkpoints"
        other.mkdir(parents=True)
        (other / ".snapshots").write_text(token)
        (held / "checkpoints").write_text(str(other))  # a folder of two names, not a copy
        result = zt.run(2, [self.deck, *zt.words_of({"run.output": self.folder / "second", **self.keys()})])
        self.assert_refused(result, r"checkpoint\.memory_folder: another run is writing to '.*ztrain-.*' \(process \d+ on ")
        zt.end(process)


def find(value):
    """node_snapshots, wherever it stands."""
    if isinstance(value, dict):
        if "node_snapshots" in value:
            return value["node_snapshots"]
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        found = find(part)
        if found is not None:
            return found
    return None


if __name__ == "__main__":
    zt.main()
