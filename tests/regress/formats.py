"""The same tokens in every file format: the same losses."""

import os
import struct

import h5py
import ztrain_run as zt


class Formats(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = list(cls.text.read_bytes())
        cls.expected = zt.losses(cls.train(2, "from_text"))

    def agree(self, name, overrides=None, write=None):
        if write is not None:
            (self.folder / name).write_bytes(write)
        output = self.train(2, f"from_{name}", {"data.train": name, **(overrides or {})})
        self.assert_same(self.expected, zt.losses(output), name)

    def test_raw_uint16(self):
        self.agree("raw16.bin", write=struct.pack(f"<{len(self.ids)}H", *self.ids))

    def test_raw_uint32(self):
        self.agree("raw32.bin", write=struct.pack(f"<{len(self.ids)}I", *self.ids))

    def test_uint16_behind_a_header(self):
        header = struct.pack("<256i", 20240520, 1, len(self.ids), *[0] * 253)
        self.agree("header16.bin", write=header + struct.pack(f"<{len(self.ids)}H", *self.ids))

    def test_uint32_behind_a_header(self):
        header = struct.pack("<256i", 20240801, 7, len(self.ids), *[0] * 253)
        self.agree("header32.bin", write=header + struct.pack(f"<{len(self.ids)}I", *self.ids))

    def test_hdf5(self):
        import h5py

        for dtype in ("uint8", "uint16", "int64"):
            with h5py.File(self.folder / f"{dtype}.h5", "w") as file:
                file.create_dataset("tokens", data=self.ids, dtype=dtype)
            self.agree(f"{dtype}.h5")

    def test_files_cut_anywhere(self):
        for part, ids in enumerate((self.ids[:7001], self.ids[7001:7002], self.ids[7002:])):
            (self.folder / f"part_{part}.bin").write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        self.agree("part_*.bin", {"data.format": "bin-uint16"})

    def test_copies_on_a_drive(self):
        """A run reads the copies, even if their bytes differ from those of the files."""
        file, staged = self.folder / "staged.bin", {"data.stage": self.folder / "drive"}
        self.agree("staged.bin", staged, write=struct.pack(f"<{len(self.ids)}H", *self.ids))
        self.assertIn(f"data.stage: {2 * len(self.ids) / 1024:.2f} KiB copied on 1 node in ", self.last.out)
        self.assertIn(f'train = ["{file}"]', (self.folder / "from_staged.bin/deck.resolved.toml").read_text())
        (copy,) = (self.folder / "drive").glob("*/staged.bin")
        state = copy.stat()
        copy.write_bytes(bytes(state.st_size))
        os.utime(copy, ns=(state.st_atime_ns, state.st_mtime_ns))
        self.assertNotEqual(self.expected, zt.losses(self.train(2, "other", {"data.train": "staged.bin", **staged})))
        self.assertIn("data.stage: 0 B copied on 1 node in ", self.last.out)

    def test_texts_are_joined_by_a_separator(self):
        (self.folder / "joined_0.txt").write_bytes(bytes(self.ids[:5000]))
        (self.folder / "joined_1.txt").write_bytes(bytes(self.ids[5000:]))
        ids = self.ids[:5000] + [256] + self.ids[5000:]
        (self.folder / "separated.bin").write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        raw = self.train(1, "separated", {"data.train": "separated.bin", "data.format": "bin-uint16"})
        joined = self.train(1, "joined", {"data.train": "joined_*.txt"})
        self.assert_same(zt.losses(raw), zt.losses(joined))

    def test_compression_that_hdf5_lacks(self):
        with h5py.File(self.folder / "lzf.h5", "w") as file:
            file.create_dataset("tokens", data=[7] * 4000, dtype="u2", compression="lzf")
            file.attrs["vocab_size"] = 257
        result = zt.run(0, [self.deck, "--data.train=lzf.h5"])
        self.assert_refused(result, r"of '\S+/lzf\.h5' cannot be read: they are compressed by the filter 'lzf' \(32000\)")


if __name__ == "__main__":
    zt.main()
