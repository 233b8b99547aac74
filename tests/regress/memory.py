"""The process needs what the plan says: peak resident memory against arenas and what is measured outside of them."""

import re

import ztrain_run as zt

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# Big enough for the tensors to outweigh what a process needs anyway.
LARGE = {"model.hidden_size": 512, "model.intermediate_size": 1408, "model.num_hidden_layers": 6}


def sizes(pattern, text):
    """Bytes of the sizes ("1.50 GiB") in the first match of pattern, where each {} stands for one."""
    found = re.search(pattern.replace("{}", r"([\d.]+) (B|KiB|MiB|GiB)"), text)
    assert found, f"{pattern} is not in\n{text}"
    values = found.groups()
    return [float(values[i]) * UNITS[values[i + 1]] for i in range(0, len(values), 2)]


class Memory(zt.Case):
    on_disk = True

    def check(self, name, overrides):
        self.train(
            2,
            name,
            {**LARGE, "run.steps": 2, "checkpoint.interval": -1, "evaluation.interval": 2, **overrides},
        )
        total, live = sizes(r"total {}; largest sum of live bytes in a step {}", self.last.out)
        (outside,) = sizes(r"outside the plan {}", self.last.out)
        peak, planned = sizes(r"peak memory {} of {} planned", self.last.out)
        self.assertAlmostEqual(planned, total + outside, delta=0.02 * planned)
        self.assertLessEqual(peak, 1.05 * planned, name)
        self.assertGreater(peak, 0.7 * planned, f"{name}: the plan is not what is used")
        self.assertGreater(total, 2 * outside, "the model is too small to tell anything")
        extent = float(re.search(r"the plan's extent is ([\d.]+)% above", self.last.out).group(1))
        self.assertLessEqual(extent, 2, f"{name}: extent above the largest sum of live bytes {live}")
        return total

    def test_peak_memory_is_as_planned(self):
        total = {}
        for strategy in ("zero1", "FULL_SHARD"):
            total[strategy] = self.check(strategy, {"sharding.strategy": strategy})
        self.assertLess(total["FULL_SHARD"], total["zero1"])

    def test_recompute_needs_less(self):
        kept = self.check("kept", {"data.sequence": 512, "batch.micro": 2})
        again = self.check("again", {"data.sequence": 512, "batch.micro": 2, "recompute.mode": "full"})
        self.assertLess(again, 0.8 * kept)

    def test_peak_memory_of_layers_and_tokens_over_ranks(self):
        for name, keys in (
            ("overlap", {"mesh.tensor": 2, "tensor.overlap": True}),
            ("ring", {"mesh.context": 2, "context.method": "ring", "recompute.mode": "full"}),
            ("ulysses", {"mesh.context": 2, "context.method": "ulysses"}),
        ):
            self.check(name, {"mesh.shard": 1, **keys})


if __name__ == "__main__":
    zt.main()
