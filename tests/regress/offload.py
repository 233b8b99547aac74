"""[offload] from the command line: bit for bit the numbers without it, checkpoints that resume with any other setting, a
small memory that suffices, and refusals that name the folder."""

import json
import re

import ztrain_run as zt

KINDS = ("parameters", "gradients", "master", "optimizer", "activations")


def all_to(tier, **more):
    return {f"offload.{kind}": tier for kind in KINDS} | more


class Offload(zt.Case):
    on_disk = True

    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 8
        sections["data"].update({"validation": [str(cls.text)]})
        sections["evaluation"] = {"interval": 4, "batches": 2}
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.train(2, "plain", {"checkpoint.interval": 4})
        cls.expected = zt.losses(cls.output), zt.validation_losses(cls.output)
        drives = [cls.folder / "drive1", cls.folder / "drive2"]
        for drive in drives:
            drive.mkdir()
        cls.nvme = {"offload.nvme_path": drives, "offload.checksums": True}

    def agrees(self, name, ranks, overrides):
        output = self.train(ranks, name, overrides)
        self.assertEqual((zt.losses(output), zt.validation_losses(output)), self.expected, name)
        return output

    def test_no_bit_changes(self):
        self.agrees("host", 2, all_to("cpu"))
        self.assertIn("host", self.last.out)
        self.agrees("nvme", 2, all_to("nvme", **self.nvme))
        self.assertRegex(self.last.out, r"NVMe +(io_uring|\d+ threads).*2 folders.*; writes .*/s, reads .*/s")
        self.assertRegex(self.last.out, r"time left +tier-copies +nvme-wait\n.*\d+\.\d% +\d+\.\d%\n")
        seconds = zt.metrics(self.folder / "nvme")[0]["seconds"]
        self.assertGreater(seconds["exposed_drives"] + seconds["fetch"], 0)
        self.assertNotIn("fetch", zt.metrics(self.output)[0]["seconds"])
        self.assertEqual([list(d.iterdir()) for d in self.nvme["offload.nvme_path"]], [[], []], "files were left behind")
        self.agrees("parts", 2, {"offload.optimizer": "nvme", "offload.optimizer_fraction": 0.4,
                                 "offload.activations": "cpu", "offload.activations_fraction": 0.5, **self.nvme})

    def test_checkpoints_know_nothing_of_it(self):
        away = all_to("nvme", **self.nvme)
        half = self.train(2, "half", {**away, "run.steps": 8, "checkpoint.interval": 4})
        step_4 = half / "checkpoints" / "step_4"
        plain = self.train(2, "plain_again", {"checkpoint.resume": step_4})
        other = self.train(2, "host_again", all_to("cpu", **{"checkpoint.resume": step_4, "offload.optimizer_on": "device"}))
        tail = {step: of for step, of in self.expected[0].items() if step > 4}
        self.assertEqual(zt.losses(plain), tail)
        self.assertEqual(zt.losses(other), tail)

    def test_the_plan_says_what_each_tier_holds(self):
        def planned(overrides):
            deck = self.write_deck("planned")
            result = zt.run(0, ["plan", deck, "--ranks", 2, "--json", *zt.words_of(overrides)])
            self.assertEqual(result.code, 0, str(result))
            return json.loads(result.out)["memory"][0]["total"]

        plain, away = planned({}), planned(all_to("nvme", **self.nvme))
        self.assertEqual((plain["host"], plain["nvme"]), (0, 0))
        self.assertGreater(away["nvme"], 0)
        self.assertLess(away["device"], plain["device"])

    def test_the_memory_table_says_what_each_tier_holds(self):
        """Of check and of a run alike, and it is what the plan has."""
        away = {"offload.optimizer": "nvme", "offload.master": "cpu", **self.nvme}
        self.agrees("told", 2, away)
        self.assertIn("\noffload    master -> cpu; optimizer -> nvme\n", self.last.out)
        table = r"(?s)  memory per rank .*\n  besides, in the host's memory: .*\n  besides, on NVMe drives: .*? optimizer; [^\n]*\n"
        told = re.search(table, self.last.out).group()
        checked = zt.run(0, ["check", self.deck, "--ranks", 2, *zt.words_of(away)])
        self.assertIn(told, checked.out, str(checked))
        plan = json.loads(zt.run(0, ["plan", self.deck, "--ranks", 2, "--json", *zt.words_of(away)]).out)
        for tier, place in (("host", "in the host's memory"), ("nvme", "on NVMe drives")):
            size, unit = re.search(rf"{place}: .*; an arena of ([\d.]+) (KiB|MiB)", told).groups()
            planned = plan["memory"][0]["total"][tier]
            self.assertAlmostEqual(float(size) * {"KiB": 2**10, "MiB": 2**20}[unit], planned, delta=0.006 * planned)

    def test_the_benchmark_takes_it(self):
        words = [self.deck, *zt.words_of(all_to("nvme", **self.nvme)), "--steps", 1, "--warmup", 1, "--kernels"]
        result = zt.run(1, ["bench", *words])
        self.assertEqual(result.code, 0, str(result))
        self.assertRegex(result.out, r"\ncopy +\[\d+\]")

    def test_refusals(self):
        def refused(pattern, overrides):
            result = zt.run(2, [self.deck, *zt.words_of({"run.output": self.folder / "refused", **overrides})])
            self.assert_refused(result, pattern)

        to_nvme = {"offload.optimizer": "nvme"}
        refused(r'offload\.optimizer = "nvme" needs offload\.nvme_path', to_nvme)
        file = self.folder / "a_file"
        file.write_text("")
        for path in (self.folder / "nowhere", file):
            refused(rf"offload\.nvme_path.*{path.name}|{path.name}.*offload\.nvme_path",
                    {**to_nvme, "offload.nvme_path": [path]})
        refused(r"offload\.optimizer_fraction = 1\.5", {"offload.optimizer_fraction": 1.5})


if __name__ == "__main__":
    zt.main()
