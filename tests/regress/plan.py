"""ztrain plan: what a job costs before it runs."""

import json
import re
import resource
import shlex

import ztrain_run as zt

SMOKE = zt.SOURCE / "inputs" / "smoke.toml"
LARGE = zt.SOURCE / "inputs" / "llama3_70b.toml"
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def size(text):
    """Bytes of "1.50 GB"."""
    value, unit = text.split()
    return float(value) * UNITS[unit]


def in_text(text, pattern):
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in\n{text}"
    return found.group(1)


class Plan(zt.Case):
    # By words, what was printed: many tests look at the same plan.
    printed = {}

    def plan(self, *words):
        if words not in self.printed:
            result = zt.run(0, ["plan", *words])
            self.assertEqual(result.code, 0, str(result))
            told = r"(?m)^(note|warning): .*\n" if "--sbatch" in words else "$"
            self.assertEqual(re.sub(told, "", result.said), "", str(result))
            self.printed[words] = result.out
        return self.printed[words]

    def values(self, *words):
        return json.loads(self.plan(*words, "--json"))

    def both(self, *words):
        return self.plan(*words), self.values(*words)

    def assert_text_is(self, text, pattern, expected):
        self.assertAlmostEqual(size(in_text(text, pattern)), expected, delta=0.006 * max(expected, 1))

    def test_the_job_that_is_planned(self):
        """The options that SLURM gets are the plan's, and the deck's overrides come through a shell as they were."""
        words = [LARGE, "--ranks", 64, "--cluster.preset=h100-80gb", "--data.train=/the data/*.h5", "--schedule.warmup=10", "--run.steps=100"]
        script, plan = self.plan(*words, "--sbatch"), json.loads(self.plan(*words, "--json"))
        for option in ("nodes=8", "ntasks-per-node=8", "gpus-per-node=8", "requeue", "exclusive", "job-name=ztrain-llama3_70b"):
            self.assertIn(f"\n#SBATCH --{option}\n", script)
        self.assertNotIn("--ntasks=", script)
        command = shlex.split(script.splitlines()[-1])
        self.assertEqual(command[2:], [str(LARGE), *words[3:]])
        job = plan["time"]["job"]
        self.assertAlmostEqual(job["steps_seconds"], 100 * plan["time"]["step_seconds"])
        planned = 1.25 * (job["steps_seconds"] + job["evaluations_seconds"] + job["saves_seconds"]) + 900
        hours, minutes = in_text(script, r"--time=(\d+:\d+):00").split(":")
        self.assertAlmostEqual(60 * (60 * int(hours) + int(minutes)), planned, delta=61)
        memory = int(in_text(script, r"--mem=(\d+)G")) * 2**30
        self.assertAlmostEqual(memory, plan["verdict"]["node_needed"] + 8 * 4e9, delta=2**30)
        long = self.plan(*words[:4], "--run.steps=1000000", "--sbatch")
        self.assertIn("#SBATCH --time=1-00:00:00\n", long)
        jobs = int(re.search(r"about (\d+) jobs, each of which requeues itself", long)[1])
        self.assertGreater(jobs, 50, "more than launch.sh requeues unasked")
        self.assertRegex(long, rf"\n# how often the job may requeue itself: .*\nexport ZTRAIN_RESTARTS={2 * jobs}\n")
        self.assertNotIn("ZTRAIN_RESTARTS", script)
        small = self.plan(SMOKE, "--ranks", 12, "--batch.global=12", "--cluster.ranks_per_node=8", "--sbatch")
        self.assertRegex(small, r"--nodes=2\n#SBATCH --ntasks=12\n#SBATCH --ntasks-per-node=8\n")
        self.assertIn("\n#SBATCH --exclusive\n", small)
        self.assert_for_processors(small, "--ranks", 12, "--batch.global=12", "--cluster.ranks_per_node=8")
        self.assertIn("gpus-per-node=4", self.plan(SMOKE, "--ranks", 4, "--cluster.device_memory=80", "--sbatch"))
        self.assertNotIn("exclusive", self.plan(SMOKE, "--ranks", 4, "--cluster.ranks_per_node=8", "--sbatch"))
        for other in ("--json", "--fit", "--compare"):
            refused = zt.run(0, ["plan", LARGE, "--ranks", "64", "--sbatch", other])
            self.assert_refused(refused, rf"--sbatch prints the script of a job as it is planned: leave {other} out")
        refused = zt.run(0, ["plan", LARGE, "--ranks", "8", words[3], "--sbatch"])
        self.assert_refused(refused, r"llama3_70b.toml does not fit 8 ranks, so there is no job to submit")

    def test_a_job_for_processors_warns_beside_the_script(self):
        warning = "warning: a job for processors, since the deck has no cluster.preset; for GPUs add --cluster.preset=NAME\n"
        elsewhere = "warning: the job starts slurm/launch.sh, which is not below this folder: "
        said = lambda *words, **env: zt.run(0, ["plan", SMOKE, "--sbatch", *words], env={"ZTRAIN_ROOT": zt.SOURCE, **env}).said
        silent = zt.run(0, ["plan", LARGE, "--ranks", 64, "--sbatch"])
        self.assertTrue(silent.said.startswith(warning + elsewhere), str(silent))
        self.assertIn("note: data.train = \"${ZTRAIN_DATA}", silent.said)
        self.assertNotIn("note: ", silent.out)
        self.assertEqual(said(), warning)
        self.assertEqual(said("--device-memory", 0), "", "as it was asked for")
        self.assertEqual(said("--cluster.preset=h100-80gb"), "")

    def assert_for_processors(self, script, *words):
        """Of a build without GPU kernels, where the deck tells of no devices: all counts in the node."""
        self.assertNotIn("gpus", script)
        self.assertIn("\n# for processors: the deck tells of no devices (cluster.preset), and this ztrain has no kernels for them\n", script)
        self.assertIn("how fast these processors are the plan does not know", script)
        needed = json.loads(self.plan(SMOKE, *words, "--device-memory", 0, "--json"))["verdict"]["node_needed"]
        self.assertGreater(needed, 8 * 16e6)
        planned, processes = re.search(r"# of a node: (\S+ .B) planned, (\S+ .B) for its processes", script).groups()
        self.assertAlmostEqual(size(planned), needed, delta=0.01 * needed)
        self.assertEqual(size(processes), 32e9)

    def test_the_smoke_deck_on_any_number_of_ranks(self):
        for ranks in (1, 4, 64):
            text, plan = self.both(SMOKE, "--ranks", ranks, "--batch.global=64")
            self.assertEqual(plan["ranks"], ranks)
            self.assertEqual(plan["batch"]["tokens_per_step"], 64 * 64)
            self.assertIn(f"on {ranks} rank", text)
            self.assertTrue(plan["verdict"]["fits"])
            for heading in ("Model and batch", "Memory per rank", "Traffic", "Time (an estimate", "Does it fit?"):
                self.assertIn(f"\n{heading}", text)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100, line)

    def test_text_and_json_agree_and_add_up(self):
        text, plan = self.both(SMOKE, "--ranks", 4)
        traffic = plan["traffic"]
        self.assertGreater(traffic["bytes"], 0)
        self.assertEqual(traffic["bytes"], sum(row["bytes"] for row in traffic["rows"]))
        for row in traffic["rows"]:
            self.assertEqual(row["bytes"], sum(s["bytes"] * s["calls"] for s in row["sizes"]))
            self.assertEqual(row["calls"], sum(s["calls"] for s in row["sizes"]))
        self.assert_text_is(text, r"\n  total +\d+ +([\d.]+ \w+)", traffic["bytes"])
        step = plan["memory"][0]["programs"]["train step"]["device"]
        self.assert_text_is(text, r"\n  train step +[\d.]+ \w+ +([\d.]+ \w+)", step["transient"])
        self.assert_text_is(text, r"\n  arena +([\d.]+ \w+)", step["persistent"])
        kept = sum(row["kept"] for row in step["categories"].values())
        self.assertLessEqual(kept, step["persistent"])
        self.assertGreater(kept, 0.98 * step["persistent"])
        self.assertEqual(sum(row["peak"] for row in step["categories"].values()) <= step["live"], True)
        self.assert_text_is(text, r"\n  device +([\d.]+ \w+) of", plan["verdict"]["device_needed"])

    def test_the_plan_is_what_a_run_uses(self):
        plan = self.values(self.deck, "--ranks", 2)
        self.train(2, "run")
        record = [r for r in zt.metrics(self.folder / "run") if "bytes_sent" in r][0]
        self.assertEqual(sum(record["bytes_sent"].values()), plan["traffic"]["bytes"])

    def test_zero_and_the_formula(self):
        rows = {}
        for strategy in ("NO_SHARD", "zero1", "zero2", "FULL_SHARD"):
            plan = self.values(SMOKE, "--ranks", 4, f"--sharding.strategy={strategy}")
            rows[strategy] = plan["classic_states"] / plan["model"]["parameters"]
        self.assertEqual(rows, {"NO_SHARD": 16, "zero1": 7, "zero2": 5.5, "FULL_SHARD": 4})

    def test_70b_on_1024_ranks_takes_seconds_and_little_memory(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        result = zt.run(0, ["plan", LARGE, "--ranks", 1024, "--batch.global=1024"], timeout=120)
        self.assertEqual(result.code, 0, str(result))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"70B on 1,024 ranks: {result.seconds:.2f} s, {peak / 2**20:.0f} MiB")
        self.assertLess(peak, 2 * 2**30, f"children before: {before} KiB")
        self.assertLess(result.seconds, 20)
        self.assertIn("128 nodes of 8", result.out)
        self.assert_length_of_run(result.out, 100_000)
        self.assertIn("8388608 = 1 micro x 1024 data-parallel ranks x 1 accumulation x 8192", result.out)

    def assert_length_of_run(self, text, steps):
        step = float(in_text(text, r"(?m)^  step +([\d.]+) s:"))
        days, found = re.search(r"(?m)^  run +([\d.]+) days,\s+[\d,]+\s+[GC]PU-hours:\s+([\d,]+)\s+steps,", text).groups()
        self.assertEqual(int(found.replace(",", "")), steps)
        in_steps = float(in_text(text, r"(?m)^ +steps ([\d.]+) days, evaluations "))
        self.assertAlmostEqual(in_steps, steps * step / 86400, delta=0.06)
        self.assertGreaterEqual(float(days), in_steps)

    def test_large_meshes_of_layers_and_tokens(self):
        """What tensor.overlap is worth is said beside what the deck does; of a long step, where that is asked for."""
        large = ["--model.preset=llama3.1-405b", "--mesh.tensor=8", "--mesh.context=16", "--mesh.shard=8"]
        for ranks, words, axes, asked in (
            (256, ["--mesh.tensor=8", "--mesh.shard=32"], {"shard", "tensor"}, []),
            (1024, large, {"shard", "context", "tensor"}, ["--compare"]),
        ):
            words = ["plan", LARGE, "--json", "--ranks", ranks, "--batch.global=64", *words]
            result = zt.run(0, words, timeout=120)
            self.assertEqual(result.code, 0, str(result))
            print(f"{' '.join(map(str, words))}: {result.seconds:.2f} s")
            self.assertLess(result.seconds, 30)
            compared = zt.run(0, [*words, *asked], timeout=120) if asked else result
            plan = json.loads(compared.out)
            sent = {axis for row in plan["traffic"]["rows"] for axis in row["axes"].split("*") if row["bytes"]}
            self.assertLessEqual(axes, sent)
            self.assertTrue(plan["other_overlap"]["overlap"])
            self.assertGreater(plan["other_overlap"]["seconds"], 0)
            self.assertLess(plan["other_overlap"]["exposed"], plan["time"]["exposed_seconds"])

    def test_axes_across_nodes_are_named(self):
        keys = ["--batch.global=16", "--mesh.tensor=2", "--mesh.shard=2", "--cluster.ranks_per_node=2"]
        self.assertRegex(self.plan(SMOKE, "--ranks", 4, *keys), r"\n  nodes +shard crosses nodes\n")
        keys[3] = "--cluster.ranks_per_node=1"
        self.assertRegex(self.plan(SMOKE, "--ranks", 4, *keys), r"\n  nodes +warning: shard and tensor cross nodes: ")
        self.assertNotIn("  nodes  ", self.plan(SMOKE, "--ranks", 4))

    def test_a_long_step_is_planned_alone(self):
        words = ["--model.num_hidden_layers=420", "--batch.global=32"]
        text = self.plan(SMOKE, "--ranks", 2, *words)
        self.assertRegex(text, r"\nnote: a step of \d+ ops is planned alone: --compare also says")
        self.assertNotIn("NO_SHARD", text)
        self.assertIn("NO_SHARD", self.plan(SMOKE, "--ranks", 2))

    def test_a_fix_that_is_printed_fits(self):
        words = [LARGE, "--ranks", 64, "--batch.global=64", "--recompute.mode=none"]
        text, plan = self.both(*words)
        self.assertFalse(plan["verdict"]["fits"])
        self.assertIn("does not fit", text)
        fix = shlex.split(in_text(text, r"What makes it fit.*\n  (--.*)"))
        self.assertEqual(fix, ["--" + o for o in plan["fixes"]["best"][0]["overrides"]])
        fixed = json.loads(self.plan(*words, *fix, "--json"))
        self.assertTrue(fixed["verdict"]["fits"])
        self.assertEqual(fixed["verdict"]["device_needed"], plan["fixes"]["best"][0]["device_needed"])

    def test_the_benchmarks_fit_one_gpu(self):
        for size in ("0.5b", "1.5b", "3b", "7b"):
            deck = zt.SOURCE / "inputs" / f"bench_{size}.toml"
            longer = re.search(rf"bench_{size}.toml (--data.sequence=4096 .*)", deck.read_text()).group(1)
            for words in ([], longer.split()):
                plan = json.loads(self.plan(deck, "--json", *words))
                self.assertTrue(plan["verdict"]["fits"], f"{size} {words}")
                self.assertEqual(plan["verdict"]["device_limit"], 80e9)

    def test_one_node_takes_the_70b_as_its_deck_says(self):
        deck = zt.SOURCE / "inputs" / "finetune_llama3_70b.toml"
        words = [w for line in deck.read_text().splitlines() if line.startswith("#   --") for w in line.split()[1:]]
        self.assertEqual(len(words), 6)
        verdict = json.loads(self.plan(deck, "--ranks", 8, "--json", *words))["verdict"]
        self.assertTrue(verdict["fits"])
        self.assertIn(f"{verdict['device_needed'] / 1e9:.1f} GB a rank:", deck.read_text())
        proposed = json.loads(self.plan(deck, "--ranks", 8, "--json"))["fixes"]["best"][0]
        self.assertEqual(
            proposed["overrides"], ["offload.optimizer=cpu", "offload.master=cpu", "offload.activations=cpu"]
        )
        self.assertEqual(proposed["effect"], "same numbers")
        # All that could be sent to the host is too much for a terabyte; some of it is enough.
        smaller = json.loads(self.plan(deck, "--ranks", 8, "--json", "--cluster.host_memory=1000"))["fixes"]["best"][0]
        self.assertEqual(smaller["effect"], "same numbers")
        self.assertIn("offload.optimizer=cpu", smaller["overrides"])
        self.assertNotIn("offload.parameters=cpu", smaller["overrides"])
        one_node = zt.SOURCE / "inputs" / "finetune_llama3_70b_one_node.toml"
        own = json.loads(self.plan(one_node, "--ranks", 8, "--json"))["verdict"]
        self.assertEqual(own["device_needed"], proposed["device_needed"])
        self.assertIn(f"{own['device_needed'] / 1e9:.1f} GB a rank, and {own['node_needed'] / 1e9:.1f} GB", one_node.read_text())

    def test_mixtures_and_runs_without_checkpoints_are_planned(self):
        more = ['--data.train=["a.h5", "b.h5"]', "--data.weights=[3, 1]", "--checkpoint.interval=-1"]
        said, none = r"1\.50 MB,\s+at the end alone .*: after a crash all starts anew", "none (checkpoint.interval = -1)"
        self.assertEqual(re.sub(said, none, self.plan(SMOKE, "--ranks", 2)), self.plan(SMOKE, "--ranks", 2, *more))

    def test_what_cannot_fit_at_all_says_so(self):
        text = self.plan(SMOKE, "--ranks", 2, "--device-memory", "0.0001", "--beside", "0")
        self.assertIn("no change of the deck that is known to save memory makes it fit\n", text)
        self.assertIn("no number of ranks was found on which the deck fits as it is: ", text)

    def test_a_deck_with_other_recomputation_is_offered_more_of_it(self):
        pieces = ["--recompute.mode=selective", '--recompute.pieces=["norm"]']
        for own in (pieces, ["--recompute.mode=full", "--recompute.every=4"]):
            plan = self.values(LARGE, "--ranks", 64, "--batch.global=64", "--recompute.mode=none", *own)
            self.assertFalse(plan["verdict"]["fits"])
            same = [fix["overrides"] for fix in plan["fixes"]["best"] if fix["effect"] == "same numbers"]
            self.assertTrue(any(fix[0].startswith("recompute.mode=") for fix in same), same)

    def test_the_plan_and_check_resolve_a_silent_deck_alike(self):
        words = [SMOKE, "--ranks", 16, "--sharding.strategy=HYBRID_SHARD", "--batch.global=32"]
        plan = self.values(*words)
        self.assertEqual((plan["mesh"]["replicate"], plan["mesh"]["shard"]), (2, 8))
        result = zt.run(0, ["check", *words], timeout=60)
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("mesh 1 x 2 x 8 x 1 x 1", result.out)

    def test_an_assumed_peak_is_named(self):
        text, plan = self.both(SMOKE, "--ranks", 2)
        self.assertIn("the peak is assumed", text)
        self.assertTrue(plan["machine"]["peak_assumed"])
        text, plan = self.both(SMOKE, "--ranks", 2, "--cluster.preset=a100-80gb")
        self.assertNotIn("the peak is assumed", text)
        self.assertEqual(plan["machine"]["peak_flops"], 19.5e12)

    def test_an_assumed_device_is_offered_what_a_named_one_is(self):
        # A quarter of the layers fills a quarter of the ranks as much, and takes a quarter of the time.
        words = [LARGE, "--model.num_hidden_layers=20", "--ranks", 2]
        text, silent = self.both(*words)
        self.assertIn("assumed to be an H100: cluster.preset or cluster.device_memory gives another", text)
        text, named = self.both(*words, "--cluster.preset=h100-80gb")
        self.assertNotIn("assumed", text)
        self.assertTrue(all(fix["effect"] == "same numbers" for fix in silent["fixes"]["best"]))
        self.assertEqual(*([fix["overrides"] for fix in plan["fixes"]["best"]] for plan in (silent, named)))
        in_the_node = json.loads(self.plan(*words, "--device-memory", 0, "--cluster.host_memory=250", "--json"))
        self.assertNotIn("offload", str(in_the_node["fixes"]["best"]), "where there is no device all is in the node")

    def test_the_strategies_do_not_contradict_the_plan(self):
        plan = self.values(SMOKE, "--ranks", 2, "--batch.global=32", "--batch.micro=1")
        own = [row for row in plan["strategies"] if row["strategy"] == plan["strategy"]]
        self.assertEqual(len(own), 1)
        self.assertEqual(own[0]["seconds"], plan["time"]["step_seconds"])
        self.assertEqual(own[0]["total"], max(rank["total"]["device"] for rank in plan["memory"]))

    def test_fit_lists_settings_that_fit_the_fastest_first(self):
        text, plan = self.both(SMOKE, "--ranks", 4, "--batch.global=16", "--fit")
        best = plan["search"]["best"]
        self.assertGreater(len(best), 2)
        speeds = [setting["tokens_per_second"] for setting in best]
        self.assertEqual(speeds, sorted(speeds, reverse=True))
        self.assertTrue(all(setting["fits"] for setting in best))
        self.assertEqual(plan["search"]["least_ranks"], 1)
        words = shlex.split(in_text(text, r"the first, .*:\n  (--.*)"))
        first = json.loads(self.plan(SMOKE, "--ranks", 4, "--batch.global=16", *words, "--json"))
        self.assertAlmostEqual(first["time"]["tokens_per_second"], speeds[0], delta=1e-6 * speeds[0])

    def test_fit_says_what_its_settings_change_besides(self):
        words = (SMOKE, "--ranks", 4, "--beside", 0, "--mesh.context=1", "--mesh.tensor=1", "--fit")
        self.assertNotIn("besides", self.plan(*words))
        text, plan = self.both(*words, "--device-memory", 0.0032)
        found = re.findall(r"\n  besides (\w): (.*?)(, [\d.]+ [kM]B of the host per rank, [\d.]+ MB of a node)?(?=\n)", text)
        self.assertTrue(all(("offload" in does) == bool(host) for _, does, host in found), found)
        besides = {letter: does for letter, does, _ in found}
        rows = re.findall(r"\n  \w+ +(?:\d+ x ){4}\d+ .* ([a-z])(?=\n)", text)
        own = [[o for o in row["overrides"] if re.match("offload|tensor|sharding.overlap", o)] for row in plan["search"]["best"]]
        self.assertIn("offload", str(own))
        self.assertEqual([besides[letter].split() for letter in rows], [[f"--{o}" for o in row] for row in own])

    def test_state_that_is_cut_over_context_alone_is_searched_too(self):
        """On as many ranks as the other axes take, beyond a node; fewer, or no multiple of these, are no mesh."""
        words = (SMOKE, "--ranks", 12, "--batch.global=4", "--mesh.context=6", "--mesh.tensor=2", "--data.sequence=72", "--fit")
        search = json.loads(self.plan(*words, "--json"))["search"]
        self.assertIn("sharding.strategy=zero1", [o for setting in search["best"] for o in setting["overrides"]])
        self.assertEqual((search["least_ranks"], search["least_ranks_overrides"]), (12, []))

    def test_where_no_setting_fits_the_remedies_of_a_plan_are_told(self):
        words = [SMOKE, "--ranks", 4, "--beside", 0, "--mesh.tensor=1", "--mesh.context=1", "--fit"]
        needed = json.loads(self.plan(*words, "--json"))["verdict"]["device_needed"]
        text, plan = self.both(*words, "--device-memory", 0.8 * needed / 1e9)
        self.assertEqual(plan["search"]["best"], [])
        self.assertIn("\n  none fits\n", text)
        effect = plan["fixes"]["best"][0]["effect"]
        self.assertRegex(text, rf"\nWhat makes it fit .*\n  --.*\n.*, {effect}\n.* \({effect}\)\n")

    def test_the_formula_leaves_room_beside_the_states(self):
        text = self.plan("--parameters", "70e9", "--ranks", 16)
        self.assertEqual(text, self.plan("--parameters", "70B", "--ranks", 16))
        self.assertIn("With 20.00 GB beside the states on each rank (a quarter of the device: --beside)", text)
        self.assertRegex(text, r"\n  FULL_SHARD +16 P / N +70.00 GB +90.00 GB +no\n")
        self.assertRegex(text, r"\n  16 +90.00 GB +no\n  24 +66.67 GB +yes\n")

    def test_the_formula_without_a_deck(self):
        text = self.plan("--parameters", "70e9", "--ranks", 256, "--device-memory", 80, "--beside", 18)
        for figure in ("1120.00 GB", "283.28 GB", "143.83 GB", "4.38 GB", "fills 14 of"):
            self.assertIn(figure, text)
        for ranks, gigabytes, fits in ((16, "88.00", "no"), (24, "64.67", "yes"), (32, "53.00", "yes")):
            self.assertRegex(text, rf"\n  {ranks} +{gigabytes} GB +{fits}\n")

    def test_data_are_read_where_only_they_know_the_vocabulary(self):
        deck = self.write_deck("silent", {"model.vocab_size": None})
        self.assertEqual(json.loads(self.plan(deck, "--ranks", 2, "--json"))["model"]["vocabulary"], 257)
        nowhere = self.write_deck("nowhere", {"model.vocab_size": None, "data.train": ["nowhere/*.bin"]})
        self.assert_refused(
            zt.run(0, ["plan", nowhere]), r"data\.train: .*matches no file\n.*: give them, or model\.vocab_size"
        )
        named = self.write_deck("named", {"data.train": ["nowhere/*.bin"]})
        self.assertEqual(json.loads(self.plan(named, "--ranks", 2, "--json"))["model"]["vocabulary"], 257)

    def test_mistakes(self):
        for words, why in (
            (["1e30"], r"1e\+30 parameters fill 2e\+20 devices of 80.00 GB, and 1e\+15 are the most"),
            (["70e9", "--sbatch"], r"--parameters prints the classic formula: leave --sbatch out"),
            (["70e9", "--json"], r"--parameters prints the classic formula: leave --json out"),
            (["70e9", "none.toml"], r"--parameters prints the classic formula: leave none.toml out"),
            (["70e9", "--mesh.shard=3"], r"--parameters prints the classic formula: leave --mesh.shard=3 out"),
        ):
            self.assert_refused(zt.run(0, ["plan", "--parameters", *words], timeout=20), why)
        self.assert_refused(zt.run(0, ["plan"], timeout=20), r"needs a deck, or --parameters")
        self.assert_refused(
            zt.run(2, ["plan", SMOKE, "--ranks", 3], timeout=20), r"batch\.global.*nearest legal: batch\.global = 3 or 6"
        )
        self.assert_refused(zt.run(0, ["plan", SMOKE, "--ranks", 2, "--modle.x=3"], timeout=20), r"unknown key 'modle\.x'")
        self.assert_refused(
            zt.run(0, ["plan", SMOKE, "--ranks", 2, "--offload.optimizer=nvme"], timeout=20),
            r'offload\.optimizer = "nvme" needs offload\.nvme_path'
        )
        pinned = ["--mesh.tensor=1", "--mesh.context=1", "--mesh.pipeline=1", "--fit"]
        self.assert_refused(zt.run(0, ["plan", SMOKE, "--ranks", 3, *pinned], timeout=20), r"batch\.global.*must be whole")


if __name__ == "__main__":
    zt.main()
