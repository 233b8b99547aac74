"""A job that cannot fit is refused before any rank allocates, with the account and changes that make it fit."""

import re
import shlex

import ztrain_run as zt

SMALL = {"cluster.device_memory": 0.005, "cluster.outside_memory": 0.001}
SMOKE = zt.SOURCE / "inputs" / "smoke.toml"


class DoesNotFit(zt.Case):
    def refused(self, name, keys):
        output = self.folder / name
        result = zt.run(2, [SMOKE, *zt.words_of({"run.output": output, **SMALL, **keys})], timeout=60)
        self.assert_refused(result, r"the job does not fit: a rank needs [\d.]+ MB, 1\.00 MB of it outside")
        self.assertRegex(result.output, r"activations +0 B +[\d.]+ MiB", "the table")
        self.assertFalse(output.exists(), "a refused job wrote something")
        return result.output

    def fixes(self, text):
        found = re.findall(r"(?:It fits with|; or with) (--.+?) \((same numbers|same up to rounding|other numerics)", text)
        self.assertTrue(found, text)
        return found

    def test_each_printed_fix_runs(self):
        keys = {"batch.micro": 2, "sharding.strategy": "zero1"}
        text = self.refused("refused", keys)
        fixes = self.fixes(text)
        for i, (words, effect) in enumerate(fixes):
            given = zt.words_of({"run.output": self.folder / f"fixed_{i}", **SMALL, **keys})
            result = zt.run(2, [SMOKE, *given, *shlex.split(words)])
            self.assertEqual(result.code, 0, f"{words}\n{result}")
            self.assertEqual(list(zt.losses(self.folder / f"fixed_{i}")), list(range(1, 21)), words)
        effects = [effect for _, effect in fixes]
        order = ["same numbers", "same up to rounding", "other numerics"]
        self.assertEqual(effects[0], min(effects, key=order.index), "the least intrusive comes first")

    def test_plan_says_the_same(self):
        keys = {"batch.micro": 2, "sharding.strategy": "zero1"}
        words, _ = self.fixes(self.refused("also_refused", keys))[0]
        plan = zt.run(0, ["plan", SMOKE, "--ranks", "2", *zt.words_of({**SMALL, **keys})])
        self.assertIn("does not fit", plan.out)
        self.assertIn(words, plan.out)

    def test_nothing_helps(self):
        result = zt.run(2, [SMOKE, *zt.words_of({"run.output": self.folder / "x", "cluster.device_memory": 0.0012,
                                                 "cluster.outside_memory": 0.001})], timeout=60)
        self.assert_refused(result, r"the job does not fit", r"No change of the deck that is known to save memory")


if __name__ == "__main__":
    zt.main()
