"""Model folders made to break a reader: each is refused with one message, within seconds, on every rank."""

import json
import struct
import sys

import ztrain_run as zt

sys.path.insert(0, str(zt.SOURCE / "tests" / "regress"))
import hf_model as hf  # noqa: E402

NORM = "model.norm.weight"


class Hostile(hf.Models):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hostile = cls.write_model("hostile", {})
        content = (cls.folder / "model" / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        cls.header, cls.data = json.loads(content[8 : 8 + length]), content[8 + length :]

    def refused(self, *patterns, ranks=0):
        words = [self.deck, "--model.from=hostile", f"--run.output={self.folder / 'refused'}"]
        result = zt.run(ranks, words, timeout=60)
        self.assert_refused(result, *patterns)
        self.assertLess(len(zt.message_of(result)), 2000, "a message, not the file")

    def write(self, header, data=None, length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        start = struct.pack("<Q", len(text) if length is None else length)
        (self.hostile / "model.safetensors").write_bytes(start + text + (self.data if data is None else data))

    def changed(self, **members):
        return {**self.header, NORM: {**self.header[NORM], **members}}

    def test_sizes_that_lie(self):
        """The header's own length, and shapes that are not those of the bytes."""
        begin, end = self.header[NORM]["data_offsets"]
        for header, data, length, pattern in (
            (self.header, None, 2**63, r"header would have 9223372036854775808 bytes, above the format's"),
            (self.header, None, 99_999_999, r"is truncated: its header has 99999999 bytes and the file"),
            (self.header, None, 3, r"is not valid JSON"),
            (self.changed(shape=[37]), None, None, r"shape \[37\] of F32 does not take 144 bytes"),
            (self.changed(shape=[2**40, 2**40]), None, None, r"shape \S+ \d+\] is too large"),
            (self.changed(shape=[-36]), None, None, r"shape holds -36, which is no size"),
            (self.changed(dtype="BF16"), None, None, r"shape \[36\] of BF16 does not take 144 bytes"),
            (self.changed(data_offsets=[end, begin]), None, None, r"its data_offsets are no range"),
            (self.header, b"", None, r"its bytes end at \d+ of 0: the file is truncated or damaged"),
        ):
            self.write(header, data, length)
            self.refused(rf"hostile/model\.safetensors: .*{pattern}", ranks=0)

    def test_ranges_that_lie(self):
        """Offsets outside the file, over another tensor's bytes, and beside a hole; on all ranks alike."""
        begin, end = self.header[NORM]["data_offsets"]
        beyond = len(self.data) + 144
        for offsets, pattern in (
            ([beyond - 144, beyond], rf"tensor '{NORM}': its bytes end at {beyond} of {len(self.data)}"),
            ([2**62, 2**62 + 144], r"data_offsets holds \d+, which is no size"),
            ([0, 144], r"the bytes of tensor '\S+' overlap those before them"),
            ([begin + 4, end + 4], r"(bytes \d+ to \d+ before tensor '\S+' belong to none|overlap those before)"),
        ):
            self.write(self.changed(data_offsets=offsets))
            self.refused(rf"hostile/model\.safetensors: .*{pattern}", ranks=4)

    def test_headers_that_are_bombs(self):
        deep = b'{"a":' + b"[" * 40_000_000 + b"]" * 40_000_000 + b"}"
        many = b"{" + b",".join(b'"%d":0' % n for n in range(3_000_000)) + b"}"
        for header, pattern in (
            (deep, r"its JSON is nested more than 3 deep"),
            (many, r"tensor '\S+': has no dtype"),
            (b'{"' + b"a" * 90_000_000, r"is not valid JSON"),
            (b'{"' + b"a" * 90_000_000 + b'": 1}', r"tensor 'a+\.\.\.': has no dtype"),
        ):
            self.write(header)
            self.refused(rf"hostile/model\.safetensors: .*{pattern}", ranks=2)

    def test_other_json_that_is_a_bomb(self):
        config = self.hostile / "config.json"
        sound = config.read_text()
        for text, pattern in (
            ("[" * 100_000 + "]" * 100_000, r"config\.json: its JSON is nested more than 16 deep"),
            (" " * 2_000_000 + sound, r"config\.json' has \d+ bytes, and no such file has more"),
            ("{", r"config\.json: is not valid JSON"),
            (json.dumps({**json.loads(sound), "num_hidden_layers": 10**12}), r"model\.num_hidden_layers = 1000000000000"),
            (json.dumps({**json.loads(sound), "hidden_size": -36}), r"hidden_size \(-36\) must be positive"),
        ):
            config.write_text(text)
            self.refused(pattern)
        config.write_text(sound)
        (self.hostile / "model.safetensors").unlink()
        index = self.hostile / "model.safetensors.index.json"
        index.write_text('{"weight_map":' + '{"a":' * 1_000_000 + "}" * 1_000_001)
        self.refused(r"index\.json: its JSON is nested more than 4 deep")
        index.write_text(json.dumps({"weight_map": {NORM: "../model/model.safetensors"}}))
        self.refused(r"is no safetensors file beside it")
        index.unlink()

    def test_weights_of_which_one_is_nan(self):
        """In a checkpoint's place, too: what comes out of ztrain is checked as what comes from elsewhere."""
        name = "model.layers.1.self_attn.k_proj.weight"
        begin, end = self.header[name]["data_offsets"]
        for value in (float("nan"), float("inf")):
            self.write(self.header, self.data[: end - 4] + struct.pack("<f", value) + self.data[end:])
            self.refused(rf"tensor {name} holds NaN or infinity.*\(elements \d+ to \d+\)", ranks=4)


if __name__ == "__main__":
    zt.main()
