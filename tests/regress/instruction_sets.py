"""The same run on processors that have less than this one: ONEDNN_MAX_CPU_ISA forbids instructions to the library of
matrix products. Each way of forming products trains as well, says so, and gives all strategies the same bits."""

import pathlib
import re

import ztrain_run as zt

# Where this build and the operating system have AMX for it, else oneDNN's.
BF16 = ("bf16 by AMX", "oneDNN brg:avx512_core_")
SETS = [None, "AVX512_CORE_BF16", "AVX512_CORE", "AVX2"]
PANELS = "bf16 through fp32 panels, "
FP32 = ("oneDNN gemm:jit", "fp32 as six products of bf16 by AMX")


def has_bf16():
    return "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text()


def products(output):
    return re.findall(r"^products +(.*)$", output, re.M)


class InstructionSets(zt.Case):
    def smoke(self, name, isa, **overrides):
        """Losses of the smoke deck, and what its banner says of products."""
        settings = {"run.output": self.folder / name, "checkpoint.interval": 0, **overrides}
        words = [zt.SOURCE / "inputs" / "smoke.toml", *zt.words_of(settings)]
        result = zt.run(2, words, env={"ONEDNN_MAX_CPU_ISA": isa} if isa else None)
        self.assertEqual(result.code, 0, str(result))
        return zt.losses(self.folder / name), products(result.out)

    def test_every_instruction_set_trains(self):
        first = {}
        for isa in SETS:
            for preset, bound in (("fp32", 1e-4), ("bf16", 2e-2)):
                found, how = self.smoke(f"{preset}_{isa}", isa, **{"precision.preset": preset})
                self.assert_close(first.setdefault(preset, found), found, bound, f"{preset} {isa}")
                # With instructions for bf16, some shapes go another way.
                several = isa in (None, "AVX512_CORE_BF16") and has_bf16()
                self.assertIn(len(how), (1, 2, 3) if several else (1,), how)
                for way in how:
                    self.assertTrue(way.startswith(FP32 if preset == "fp32" else (PANELS, *BF16)), how)
                    self.assertNotIn("ref", way)
                if preset == "bf16" and not several:
                    self.assertIn(PANELS + "oneDNN gemm:jit", how[0])
                if isa == "AVX2":
                    self.assertTrue(how[0].endswith("gemm:jit, avx2"), how[0])

    def test_strategies_are_bitwise_equal_with_every_way(self):
        ways = [("fp32", None), ("auto", "AVX2"), ("auto", None)] + ([("native", None)] if has_bf16() else [])
        for way, isa in ways:
            found = {}
            for strategy in ("zero0", "zero1", "zero2", "FULL_SHARD"):
                settings = {
                    "device.bf16_products": way,
                    "precision.preset": "bf16",
                    "sharding.strategy": strategy,
                    "sharding.gradient_accumulation": "reduce",
                    "run.steps": 5,
                }
                found[strategy], how = self.smoke(f"{way}_{isa}_{strategy}", isa, **settings)
                self.assert_same(found["zero0"], found[strategy], f"{way} {isa} {strategy}")
                if way == "fp32":
                    self.assertIn(PANELS, how[0])
                if way == "native":
                    self.assertTrue(how[0].startswith(BF16), how)

    def test_split_products_of_fp32(self):
        """Where this machine has AMX: near to native ones, and every strategy has the same bits."""
        settings = {"device.fp32_products": "bf16x6", "sharding.gradient_accumulation": "reduce", "run.steps": 5}
        words = [zt.SOURCE / "inputs" / "smoke.toml", *zt.words_of({"run.output": self.folder / "first", **settings})]
        first = zt.run(2, words)
        if 'device.fp32_products = "bf16x6": this processor or this build has no AMX' in first.output:
            self.assertNotEqual(first.code, 0)
            self.skipTest("no AMX")
        self.assertEqual(first.code, 0, str(first))
        self.assertIn("fp32 as six products of bf16 by AMX", products(first.out)[0])
        native, how = self.smoke("native", None, **{**settings, "device.fp32_products": "native"})
        self.assertNotIn("AMX", how[0])
        split = zt.losses(self.folder / "first")
        self.assert_close(native, split, 1e-5, "bf16x6")
        self.assertNotEqual(native, split)
        for strategy in ("zero1", "FULL_SHARD"):
            found, _ = self.smoke(strategy, None, **{**settings, "sharding.strategy": strategy})
            self.assert_same(split, found, strategy)
        # By itself, too; and bf16 goes by tiles where it is native.
        found, how = self.smoke("auto", None, **{**settings, "device.fp32_products": "auto"})
        self.assert_same(split, found, "auto")
        self.assertIn("fp32 as six products of bf16 by AMX", how[0])
        _, how = self.smoke("bf16", None, **{**settings, "device.bf16_products": "native", "precision.preset": "bf16"})
        self.assertIn("bf16 by AMX", how[0])
        resumed = {**settings, "run.steps": 6, "checkpoint.resume": "auto", "device.fp32_products": "native"}
        result = zt.run(2, [zt.SOURCE / "inputs" / "smoke.toml", *zt.words_of({"run.output": self.folder / "first", **resumed})])
        self.assertIn('products of fp32 matrices were "bf16x6" and are "native" now', result.out, str(result))

    def test_a_resumed_run_says_where_products_are_others(self):
        if not has_bf16():
            self.skipTest("this processor has one way")
        settings = {"precision.preset": "bf16", "checkpoint.interval": 2, "checkpoint.resume": "auto"}
        for way, steps, said in (("native", 2, False), ("fp32", 4, True), ("fp32", 6, False)):
            words = [zt.SOURCE / "inputs" / "smoke.toml"]
            words += zt.words_of({"run.output": self.folder / "resumed", "run.steps": steps, **settings})
            result = zt.run(2, [*words, f"--device.bf16_products={way}"])
            self.assertEqual(result.code, 0, str(result))
            note = 'products of bf16 matrices were "native" and are "fp32" now'
            self.assertEqual(note in result.out, said, str(result))
            # Where bf16 is native, how fp32 is multiplied makes no difference, and was not kept.
            self.assertNotIn("products of fp32 matrices", result.out)

    def test_other_instructions_are_told_of(self):
        """Of a resumed run, and of ranks that differ: the last bits of losses do."""
        settings = {"run.output": self.folder / "other", "checkpoint.interval": 2, "checkpoint.resume": "auto"}
        smoke = zt.SOURCE / "inputs" / "smoke.toml"
        of_one = 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then export ONEDNN_MAX_CPU_ISA=AVX; fi; exec "$@"'
        breaks = r'the run computed by "[^"]+ for avx" and computes by "[^"]+ for avx[^"]+" now'
        mixed = r'warning: rank 1 computes by "[^"]+ for avx", rank 0 by "[^"]+ for avx[^"]+"'
        for steps, isa, wrapper, told in ((2, "AVX", (), ""), (4, None, (), breaks), (6, None, ["sh", "-c", of_one, "sh"], mixed)):
            words = [smoke, *zt.words_of({**settings, "run.steps": steps})]
            result = zt.run(2, words, env={"ONEDNN_MAX_CPU_ISA": isa} if isa else None, wrapper=wrapper)
            self.assertEqual(result.code, 0, str(result))
            for note in (breaks, mixed):
                self.assertEqual(bool(re.search(note, result.out)), note == told, str(result))

    def test_native_needs_instructions(self):
        words = [zt.SOURCE / "inputs" / "smoke.toml", "--device.bf16_products=native", f"--run.output={self.folder / 'n'}"]
        result = zt.run(2, words, env={"ONEDNN_MAX_CPU_ISA": "AVX2"})
        self.assertNotEqual(result.code, 0)
        self.assertIn('device.bf16_products = "native": this processor has no AVX512-BF16', result.output)

    def test_split_products_need_amx(self):
        """Which a run and `check` say; of auto rank 0's processor decides for all."""
        less = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
        smoke, asked = zt.SOURCE / "inputs" / "smoke.toml", "--device.fp32_products=bf16x6"
        for ranks, words in (2, [smoke, f"--run.output={self.folder / 's'}"]), (0, ["check", smoke]):
            result = zt.run(ranks, [*words, asked], env=less)
            self.assertNotEqual(result.code, 0, str(result))
            self.assertIn('device.fp32_products = "bf16x6": this processor or this build has no AMX', result.output)
        settings = {"precision.preset": "fp32", "run.steps": 5}
        both, _ = self.smoke("both", "AVX512_CORE", **settings)
        mine = 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ]; then export ONEDNN_MAX_CPU_ISA=AVX512_CORE; fi; exec "$@"'
        words = [smoke, *zt.words_of({**settings, "run.output": self.folder / "first_has_less", "checkpoint.interval": 0})]
        result = zt.run(2, words, wrapper=["sh", "-c", mine, "sh"])
        self.assertEqual(result.code, 0, str(result))
        self.assert_same(both, zt.losses(self.folder / "first_has_less"), "rank 0 decides")

    def test_bench_names_the_way_of_each_product(self):
        report = self.folder / "bench.json"
        words = ["bench", zt.SOURCE / "inputs" / "smoke.toml", "--kernels", "--steps", "1", "--warmup", "1", "--json", report]
        result = zt.run(1, [*words, "--precision.preset=bf16"], env={"ONEDNN_MAX_CPU_ISA": "AVX2"})
        self.assertEqual(result.code, 0, str(result))
        kernels = zt.json.loads(report.read_text())["kernels"]
        for kernel in kernels:
            product = kernel["type"].startswith(("linear", "head_loss")) and kernel["type"] != "linear_grad_bias"
            self.assertEqual(kernel["way"].startswith(PANELS), product, kernel)
        self.assertIn(PANELS, result.out)


if __name__ == "__main__":
    zt.main()
