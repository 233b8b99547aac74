"""sharding.reduce_codes from the command line: gradients are rounded by blocks, on each mesh, and sent in as few bytes as planned."""

import json

import numpy as np
import ztrain_run as zt

AWAY = {f"offload.{state}": "cpu" for state in ("parameters", "optimizer", "master", "gradients")}
NODES = {"cluster.ranks_per_node": 2}
LEVELS = {"int8": 127, "int4": 7}

# Two ranks reduce each micro-batch by itself: no bit depends on these keys, nor on stages.
SAME = [
    (2, {"sharding.strategy": "NO_SHARD", "sharding.gradient_accumulation": "reduce", "sharding.reduce_bucket_size": 1}),
    (2, {"sharding.strategy": "zero2", "sharding.overlap_reduce": False, **AWAY}),
    (4, {"mesh.shard": 2, "mesh.pipeline": 2, "sharding.reduce_bucket_size": 5000}),
]
# A sequence is a micro-batch. More ranks add the same codes in another order, unless nodes add up theirs first.
CLOSE = [(4, {}), (4, {"mesh.replicate": 2, "mesh.shard": 2, "sharding.strategy": "HYBRID_SHARD"})]
MESHES = [("int8", 3, {"batch.global": 9}), ("int8", 4, NODES), ("int4", 1, {}), ("int4", 4, NODES),
          ("int4", 4, {"mesh.replicate": 2, "mesh.shard": 2})]


def rounded(gradient, levels):
    """The nearest multiple of a 64-element block's scale, and half of that scale."""
    flat = gradient.astype(np.float64).ravel()
    blocks = np.concatenate([flat, np.zeros(-flat.size % 64)]).reshape(-1, 64)
    scales = np.maximum(np.abs(blocks).max(axis=1, keepdims=True) / levels, 1e-38)
    near = (np.round(blocks / scales) * scales).ravel()[: flat.size]
    return near.reshape(gradient.shape), np.repeat(scales / 2, 64)[: flat.size].reshape(gradient.shape)


class ReduceCodes(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 3
        sections["batch"]["global"] = 8
        sections["sharding"] = {"strategy": "FULL_SHARD"}
        sections["checkpoint"]["interval"] = -1
        return sections

    def coded(self, codes, ranks, name, keys=None):
        return self.train(ranks, f"{codes}_{name}", {"sharding.reduce_codes": codes, **(keys or {})})

    def plan(self, keys):
        result = zt.run(0, ["plan", self.deck, "--ranks", 4, "--json", *zt.words_of(keys)])
        self.assertEqual(result.code, 0, str(result))
        return json.loads(result.out)["traffic"]

    def test_the_same_numbers_on_the_same_mesh(self):
        plain = zt.losses(self.train(2, "plain"))
        two = zt.losses(self.coded("int4", 2, "two"))
        self.assertNotEqual(plain, two, "codes have no effect")
        self.assert_close(plain, two, 1e-2)
        for number, (ranks, keys) in enumerate(SAME):
            self.assert_same(two, zt.losses(self.coded("int4", ranks, f"same_{number}", keys)), str(keys))
        for number, (ranks, keys) in enumerate(CLOSE):
            self.assert_close(two, zt.losses(self.coded("int4", ranks, f"close_{number}", keys)), 1e-7, str(keys))

    def step_of_sgd(self, ranks, name, keys):
        """The parameters after a step of SGD with a rate of 1, from the same sequence in each micro-batch."""
        text = self.folder / "same.txt"
        text.write_text("abcdefgh ijklmnop qrstuvwx yz012" * 40)
        keys = {"data.train": str(text), "run.steps": 1, "optimizer.name": "sgd", "optimizer.momentum": 0, "optimizer.lr": 1,
                "optimizer.max_norm": 0, "optimizer.weight_decay": 0, "schedule.name": "constant", "schedule.warmup": 0,
                "checkpoint.interval": 1, **keys}
        found = zt.tensors(self.train(ranks, name, keys) / "checkpoints" / "step_1")
        return {name: values for name, values in found.items() if name.startswith("model/")}

    def test_gradients_are_those_of_the_codes(self):
        """All ranks have the same gradient, so that the sum of their codes is the code of the sum, in one hop or two."""
        start = self.step_of_sgd(1, "start", {"optimizer.lr": 1e-30})
        exact = self.step_of_sgd(1, "exact", {})
        for number, (codes, ranks, mesh) in enumerate(MESHES):
            stepped = self.step_of_sgd(ranks, f"sgd_{number}", {"sharding.reduce_codes": codes, **mesh})
            for name, before in start.items():
                gradient, found = before - exact[name], before - stepped[name]
                near, half = rounded(gradient, LEVELS[codes])
                slack = 1e-6 * np.abs(before).max() + 1e-5 * np.abs(gradient).max()
                what = f"{codes} {ranks} {mesh} {name}"
                self.assertLessEqual((np.abs(found - gradient) - half).max(), slack, what)
                off = np.abs(found - near) > slack
                self.assertLessEqual(off.mean(), 0.01, what)  # what lies half between two codes may become either

    def test_resume_is_bitwise_and_keeps_the_codes(self):
        straight = self.coded("int8", 2, "straight", {"checkpoint.interval": 2})
        resume = {"checkpoint.resume": straight / "checkpoints" / "step_2"}
        resumed = self.coded("int8", 2, "resumed", resume)
        self.assert_same({s: v for s, v in zt.losses(straight).items() if s > 2}, zt.losses(resumed))
        words = zt.words_of({"run.output": self.folder / "other", "sharding.reduce_codes": "int4", **resume})
        self.assert_refused(zt.run(0, [self.deck, *words]), r"reduce_codes")

    def test_reductions_send_codes(self):
        def of(kind, axes, keys):
            return sum(r["bytes"] for r in self.plan(keys)["rows"] if r["collective"] == kind and r["axes"] == axes)

        plain = of("reduce_scatter", "shard*ring*context", {})
        for codes, share in (("int8", 8.5 / 32), ("int4", 4.5 / 32)):
            keys = {"sharding.reduce_codes": codes}
            self.assertEqual(of("all_to_all", "shard*ring*context", keys), share * plain)
            near, far = of("all_to_all", "shard_inner*ring*context", keys | NODES), of("all_to_all", "shard_outer", keys | NODES)
            self.assertEqual((near, far), (share * plain * 2 / 3, share * plain / 3), "one of two ranks, and one of two nodes")
        keys = {"sharding.reduce_codes": "int8", **NODES}
        across = {"mesh.shard": 1, "mesh.context": 4}  # no part of shard is a node's ranks, so that codes go in one hop
        plain = of("reduce_scatter", "shard*ring*context", across)
        self.assertEqual(of("all_to_all", "shard*ring*context", keys | across), 8.5 / 32 * plain)
        record = [r for r in zt.metrics(self.train(4, "counted", keys)) if "bytes_sent" in r][0]
        self.assertEqual(sum(record["bytes_sent"].values()), self.plan(keys)["bytes"])


if __name__ == "__main__":
    zt.main()
