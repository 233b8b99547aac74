"""Runs tools/prepare_data.py for its tests, and reads the files that it wrote."""

import json
import resource
import subprocess
import sys

import h5py
import numpy as np
import ztrain_run as zt

sys.path.insert(0, str(zt.SOURCE / "tools"))

TOOL = zt.SOURCE / "tools" / "prepare_data.py"
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hé?"},
    {"role": "assistant", "content": "Hello 😀"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "So long!"},
]


def text_of(ids):
    """Documents as text; token 256 as |."""
    return b"".join(b"|" if i == 256 else bytes([i]) for i in ids).decode()


def trained(ids, mask):
    """The trained stretches as texts."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]])))
    return [text_of(ids[a:b]) for a, b in zip(edges[::2], edges[1::2])]


class PrepareCase(zt.Case):
    def lines(self, name, *records):
        path = self.folder / name
        path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
        return path

    def prepare(self, *words, output="out.h5", tokenizer="bytes", fails=False, largest=None):
        """The finished process; fails unless its exit status says what is expected. largest: bytes a file may have."""
        command = [sys.executable, "-B", TOOL, *words, "--tokenizer", tokenizer, "--output", self.folder / output]

        def limit():
            if largest is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

        done = subprocess.run([*map(str, command), "--force"], capture_output=True, text=True, timeout=60, preexec_fn=limit)
        self.assertEqual(done.returncode, int(fails), done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def documents(self, name="out.h5"):
        with h5py.File(self.folder / name) as file:
            ids, offsets = (file[n][...] for n in ("tokens", "document_offsets"))
            mask = file["loss_mask"][...] if "loss_mask" in file else np.ones_like(ids)
            self.assertEqual(ids.dtype, np.uint16)
            self.assertEqual("loss_mask" in file, not mask.all())
        return [(ids[a:b], mask[a:b]) for a, b in zip(offsets[:-1], offsets[1:])]

    def refused(self, *words, pattern, **more):
        self.assertRegex(self.prepare(*words, fails=True, **more).stderr, pattern)
        left = [p.name for p in self.folder.iterdir() if ".partial" in p.name]
        self.assertEqual(left, [])
