"""Drives of [offload] that fail under a run: it ends with an error that names the folder, on every rank and within seconds, it
trained on no wrong byte, and its last checkpoint is whole and goes on without offload, bit for bit. A folder that is removed
harms nothing: the files in it have no names."""

import os
import shutil
import signal

import ztrain_run as zt

KINDS = ("parameters", "master", "optimizer", "activations")
RUN = {"run.steps": 400, "checkpoint.interval": 10, "checkpoint.keep": 3, "schedule.name": "constant"}


def nameless_files(pid, folder):
    """Of a process: /proc paths of its files in the folder."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            if os.readlink(path).startswith(f"{folder}/"):
                found.append(path)
        except OSError:
            continue
    return found


class DrivesFail(zt.Case):
    on_disk = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plain = zt.losses(cls.train(2, "plain", {**RUN, "checkpoint.interval": -1}))

    def drives(self, name):
        folder = self.folder / f"{name}_drive"
        folder.mkdir()
        return folder, {**RUN, **{f"offload.{kind}": "nvme" for kind in KINDS}, "offload.nvme_path": [folder],
                        "offload.checksums": True}

    def spoil(self, name, harm, message):
        """harm(file): done to the files of rank 1 while it is stopped."""
        folder, keys = self.drives(name)
        process, ranks, output, log = self.begin(2, name, keys, 25)  # the save of the tenth is over
        os.kill(ranks[1], signal.SIGSTOP)
        files = nameless_files(ranks[1], folder)
        self.assertTrue(files, "the run has no file in its folder")
        for file in files:
            harm(file)
        os.kill(ranks[1], signal.SIGCONT)
        zt.wait_for("the end of the job", lambda: process.poll() is not None, timeout=20)
        zt.wait_for("the end of all ranks", lambda: not any(zt.alive(pid) for pid in ranks.values()), timeout=10)
        text = log.read_text()
        self.assertNotEqual(process.returncode, 0, text)
        self.assertRegex(text, message.format(folder=folder))
        told = zt.losses(output)
        self.assertEqual(told, {step: self.plain[step] for step in told}, "trained on bytes that nobody wrote")
        newest = output / "checkpoints" / f"step_{max(zt.saved_steps(output / 'checkpoints'))}"
        self.assertEqual(zt.run(0, ["verify", newest]).code, 0)
        step = int(newest.name[5:])
        resumed = self.train(2, f"{name}_again", {**RUN, "run.steps": step + 5, "checkpoint.resume": newest})
        self.assertEqual(zt.losses(resumed), {s: self.plain[s] for s in range(step + 1, step + 6)})

    def test_bytes_that_changed(self):
        def garble(file):
            # The rank's direct reads see these pages without a sync. One would report direct writes that were under way meanwhile.
            size = os.stat(file).st_size
            with open(file, "r+b", buffering=0) as out:
                for at in range(0, size, 4096):
                    out.seek(at)
                    out.write(b"\xa5" * 16)

        self.spoil("garbled", garble, r"offload\.nvme_path.* of the file in '{folder}' on are not what was written")

    def test_a_file_that_is_torn(self):
        # What is written later makes it as long as before: what lies in between is then zeros, which checksums find.
        self.spoil("torn", lambda file: os.truncate(file, 4096), r"offload\.nvme_path.*(cannot read|bytes from byte) .*'{folder}'")

    def test_a_folder_that_is_removed(self):
        folder, keys = self.drives("removed")
        process, _, output, log = self.begin(2, "removed", {**keys, "run.steps": 60}, 8)
        shutil.rmtree(folder)
        zt.wait_for("the end of the run", lambda: process.poll() is not None, timeout=60)
        self.assertEqual(process.returncode, 0, log.read_text())
        self.assertEqual(zt.losses(output), {step: self.plain[step] for step in range(1, 61)})


if __name__ == "__main__":
    zt.main()
