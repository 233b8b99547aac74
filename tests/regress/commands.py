"""The subcommands: check, deck, generate, help."""

import re

import ztrain_run as zt


class Commands(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.checkpoint = cls.train(2, "model", {"run.steps": 30}) / "checkpoints" / "step_30"

    def succeed(self, ranks, *words):
        result = zt.run(ranks, words, timeout=30)
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(result.said, "", str(result))
        return result.out

    def generate(self, ranks, *words):
        """What generation prints; memory and speed go to stderr."""
        result = zt.run(ranks, ["generate", *words], timeout=30)
        self.assertEqual(result.code, 0, str(result))
        self.assertRegex(result.err, r"^memory per rank: weights .*\nprefill .*; decode .*\n$")
        return result.out

    def test_help_and_version(self):
        for words in (["--help"], ["-h"], ["help"]):
            text = self.succeed(0, *words)
            for command in ("ztrain DECK", "ztrain check", "ztrain deck", "ztrain generate"):
                self.assertIn(command, text)
        for option in ("--without-files", "--sbatch", "--compare", "--parameters", "--section.key=value"):
            self.assertIn(option, self.succeed(0, "--help"))
        self.assertIn("--markdown", self.succeed(0, "deck", "--help"))
        self.assertRegex(self.succeed(0, "--version"), r"^ztrain \d+\.\d+\.\d+, built for (cpu|cuda), with \S.+ and (io_uring|threads) for NVMe drives\n$")

    def test_help_under_the_launcher_comes_once(self):
        self.assertEqual(self.succeed(3, "--help").count("ztrain check DECK"), 1)

    def test_help_of_a_subcommand_under_the_launcher_comes_once(self):
        self.assertEqual(self.succeed(2, "generate", "--help").count("--prompt-ids"), 1)

    def test_no_words_is_an_error_that_shows_the_help(self):
        result = zt.run(2, [], timeout=20)
        self.assertNotEqual(result.code, 0)
        self.assertEqual(result.output.count("ztrain check DECK"), 1, str(result))

    def test_a_process_alone_needs_no_folder_for_open_mpi(self):
        nowhere = {"OMPI_MCA_orte_tmpdir_base": "/proc/nowhere"}
        result = zt.run(0, ["check", zt.SOURCE / "inputs/llama3_70b.toml", "--without-files"], env=nowhere)
        self.assertEqual(result.code, 0, str(result))

    def test_check_accepts_every_shipped_deck_that_needs_no_data(self):
        text = self.succeed(0, "check", zt.SOURCE / "inputs" / "smoke.toml", "--ranks", "4")
        self.assertIn("mesh 1 x 1 x 4 x 1 x 1", text)
        self.assertIn("256 tokens a step", text)
        self.assertIn("proven free of deadlock over all ranks", text)
        self.assertIn("the deck is valid", text)

    def test_check_knows_what_fits(self):
        """The deck's device; else the memory of this machine, where the job may never run."""
        large = ["check", zt.SOURCE / "inputs" / "llama3_70b.toml", "--without-files", "--ranks"]
        result = zt.run(0, [*large, 8, "--cluster.preset=h100-80gb"])
        self.assert_refused(result, r"does not fit: 18\d\.\d+ GB of 80\.00 GB of a device \(3\.00 GB of it outside .*; `ztrain plan` says")
        self.assertRegex(self.succeed(0, *large, 64, "--cluster.preset=h100-80gb"), r"\nmemory: 51\.57 GB of 80\.00 GB of a device ")
        # Of the stage that needs most.
        stages = [*large, 4, "--mesh.pipeline=4", "--batch.global=8", "--model.preset=llama3-8b", "--data.sequence=2048"]
        result = zt.run(0, [*stages, "--cluster.preset=h100-80gb", "--pipeline.layers=[1,1,1,29]"])
        self.assert_refused(result, r"does not fit: 1[23]\d\.\d+ GB of 80\.00 GB of a device")
        offload = [*stages, "--cluster.preset=h100-80gb", "--offload.optimizer=cpu", "--cluster.host_memory=1"]
        self.assert_refused(zt.run(0, offload), r"does not fit: .* GB of 1\.00 GB of a node")
        self.assertRegex(self.succeed(0, *large, 8), r"\nnote: this machine has not the memory for it: 8 ranks on a node need \S+ TB, ")
        self.assertNotIn("note: this machine", self.succeed(0, "check", self.deck, "--ranks", 2))

    def test_check_without_ranks_proves_no_mesh(self):
        text = self.succeed(0, "check", self.deck, "--mesh.shard=64", "--batch.global=64")
        self.assertIn("the deck is valid; --ranks N looks at", text)
        self.assertIn("vocabulary 257", text)
        epochs = self.write_deck("epochs", {"run.steps": None, "run.epochs": 2})
        self.assertRegex(self.succeed(0, "check", epochs), r"\nlength +\d+ steps of 4 sequences: (2|2\.0\d|1\.99) epochs of ")
        self.assertIn("how many steps these are is not known without the data", self.succeed(0, "check", epochs, "--without-files"))

    def test_check_finds_what_training_would(self):
        self.assert_refused(
            zt.run(0, ["check", self.deck, "--ranks", 3], timeout=20),
            r"deck\.toml:\d+: batch\.global \(4\).*nearest legal: batch\.global = 3 or 6",
        )
        self.assert_refused(
            zt.run(0, ["check", self.deck, "--modle.hidden_size=3"], timeout=20),
            r"unknown key 'modle\.hidden_size'; did you mean 'model\.hidden_size'\?",
        )
        self.assert_refused(
            zt.run(2, ["check", self.folder / "none.toml"], timeout=20), r"the deck: cannot read '.*none"
        )

    def test_check_and_the_run_refuse_to_write_where_they_read(self):
        """Before anything is written, and with both keys; an export that would be in the way of the run likewise."""
        output, model = self.folder / "own", self.folder / "new"
        written = output / "deck.resolved.toml"
        output.mkdir()
        written.write_text(self.text.read_text())
        for words, message in (
            (
                {"run.output": output, "data.train": written},
                rf"data\.train: '{written}' is where the run writes: give another run\.output",
            ),
            (
                {"run.output": model, "checkpoint.export": model},
                rf"checkpoint\.export: '{model}' would be in the way of '{model}', which the run writes too \(run\.output\)",
            ),
        ):
            for ranks, command in ((0, ["check"]), (2, [])):
                self.assert_refused(zt.run(ranks, [*command, self.deck, *zt.words_of(words)], timeout=20), message)
        self.assertEqual(written.read_text(), self.text.read_text())
        self.assertEqual(list(output.iterdir()), [written], "nothing is written")
        self.assertFalse(model.exists())

    def test_check_finds_processors_that_training_would_refuse(self):
        self.assert_refused(
            zt.run(
                0,
                ["check", self.deck, "--precision.preset=fp32", "--device.bf16_products=native"],
                timeout=20,
                env={"ONEDNN_MAX_CPU_ISA": "AVX2"},
            ),
            r"device\.bf16_products = \"native\": this processor has no AVX512-BF16",
        )

    def test_paths_that_are_there_from_another_folder(self):
        sub = self.folder / "sub"
        sub.mkdir()
        deck = sub / "deck.toml"
        deck.write_text(self.deck.read_text().replace(str(self.text), "text.txt"))
        for pattern in ("text.txt", "t?xt.txt"):
            deck.write_text(self.deck.read_text().replace(str(self.text), pattern))
            self.assert_refused(
                zt.run(0, ["check", deck]),
                rf"deck\.toml:\d+: data\.train: '{sub}/{re.escape(pattern)}' does not exist, and "
                rf"'{self.folder}/{re.escape(pattern)}' does: .*: write \.\./{re.escape(pattern)}$",
            )
        (sub / "own.txt").write_text(self.text.read_text())
        self.assert_refused(
            zt.run(0, ["check", "sub/deck.toml", "--data.train=own.txt"]),
            rf"command line: data\.train: '{self.folder}/own.txt' does not exist, and '{sub}/own.txt' does: .*: write sub/own\.txt$",
        )
        self.assert_refused(zt.run(0, ["check", deck, "--data.train=no.txt"]), rf"data\.train: '{self.folder}/no.txt' does not exist$")

    def test_a_list_may_be_emptied_on_the_command_line(self):
        deck = self.write_deck("validated", {"data.validation": [str(self.text)], "optimizer.groups": [{"match": "*norm*"}]})
        words = ["check", deck, "--ranks", 1, "--data.validation=", "--optimizer.groups="]
        self.assertIn("held out", zt.run(0, words).out)

    def test_check_finds_what_no_number_of_ranks_would_mend(self):
        for words, pattern in (
            (["--offload.optimizer=nvme"], r'offload\.optimizer = "nvme" needs offload\.nvme_path'),
            (["--batch.micro=3"], r"batch\.micro \(3\) .*must be whole"),
            (["--mesh.replicate=3"], r"data-parallel ranks \(3\) .*must be whole"),
            (["--sharding.unit=pattern", "--sharding.unit_patterns=nothing"], r"'nothing' matches no module"),
            (["--device.cuda_graphs=step", "--offload.master=nvme", "--offload.nvme_path=."], r'cuda_graphs = "step": .*offload\.master'),
        ):
            self.assert_refused(zt.run(0, ["check", self.deck, *words]), pattern)
        for words in (["--mesh.replicate=2"], ["--sharding.reshard_after_forward=2"], ["--sharding.strategy=HYBRID_SHARD"]):
            result = zt.run(0, ["check", self.deck, *words])
            self.assertEqual(result.code, 0, str(result))

    def test_all_that_an_error_lists_is_named_if_asked_for(self):
        words = ["check", self.deck, *(f"--optimizer.q{i}=1" for i in range(30))]
        self.assert_refused(zt.run(0, words), r"\n  and 19 more, which the same command with --all names$")
        self.assertEqual(zt.run(0, [*words, "--all"]).err.count("unknown key 'optimizer.q"), 30)

    def test_words_that_were_meant_otherwise(self):
        for words, meant in (
            (["chek", self.deck], r"there is no command 'chek': did you mean `ztrain check`\?"),
            (["train", self.deck], r"there is no command 'train': `ztrain DECK` trains"),
            (["eval", self.deck], r"'eval' is neither a command nor a deck; commands are check, deck, .*, diff"),
            (["plan", self.deck, "--memory", "80"], r"there is no option --memory: did you mean --device-memory\?"),
            (["plan", self.deck, "-n", "8"], r"there is no option -n: did you mean --ranks\?"),
            (["generate", self.checkpoint, "--prompt", "a", "-v"], r"there is no option -v: run with --help"),
            (["--ranks", "4"], r"'--ranks' stands where a command or a deck belongs"),
            (["check", self.deck, "--rank", "4"], r"there is no option --rank: did you mean --ranks\?"),
            (["bench", self.deck, "--stepss=3"], r"there is no option --stepss: did you mean --steps\?"),
            (["generate", self.checkpoint, "--prompt", "a", "--temperature", "nan"], r"nan is no number"),
            (["generate", self.checkpoint, "--prompt", "a", "--top-p", "nan"], r"nan is no number"),
        ):
            result = zt.run(0, words, timeout=20)
            self.assertEqual(result.code, 2, str(result))
            self.assertRegex(result.err, meant)
            self.assertLess(result.err.count("\n"), 3, str(result))

    def test_check_needs_a_deck(self):
        result = zt.run(2, ["check"], timeout=20)
        self.assertNotEqual(result.code, 0)
        self.assertEqual(result.output.count("deck is required"), 1, str(result))

    def test_check_wants_at_least_one_rank(self):
        result = zt.run(0, ["check", self.deck, "--ranks", 0], timeout=20)
        self.assertNotEqual(result.code, 0)
        self.assertNotRegex(result.output, r"\d{30}", "a number of 300 digits is no help")

    def test_deck_prints_a_template_that_check_loads(self):
        text = self.succeed(0, "deck")
        path = self.folder / "template.toml"
        path.write_text(text)
        self.assertRegex(text, r"\n# May |\n# ")
        self.assertIn(
            "the deck is valid", self.succeed(0, "check", path, f"--data.train={self.text}", "--ranks", 2)
        )
        for line in (zt.SOURCE / "docs" / "inputs.md").read_text().splitlines():
            key = re.match(r"\| `(\w+)` \|", line)
            if key:
                self.assertRegex(text, rf"(?m)^#?{key[1]} = ", "the template lacks a documented key")

    def test_the_whole_template_holds_when_every_default_is_written_out(self):
        text = re.sub(r"(?m)^#(\w+ = )", r"\1", self.succeed(0, "deck"))
        path = self.folder / "defaults.toml"
        path.write_text(text)
        self.assertIn("the deck is valid", self.succeed(0, "check", path, f"--data.train={self.text}"))

    def test_the_documentation_of_the_keys_is_the_program_s(self):
        self.assertEqual(
            self.succeed(0, "deck", "--markdown"), (zt.SOURCE / "docs" / "inputs.md").read_text()
        )

    def test_the_resolved_deck_of_a_run_is_a_deck(self):
        resolved = self.folder / "model" / "deck.resolved.toml"
        self.assertIn("the deck is valid", self.succeed(0, "check", resolved, "--ranks", "2"))
        again = self.train(2, "again", {}, deck=resolved)
        self.assert_same(zt.losses(self.folder / "model"), zt.losses(again))

    def test_generate_does_not_depend_on_the_ranks(self):
        words = [self.checkpoint, "--prompt-ids", "107,97,108", "--tokens", "29", "--seed", "5"]
        one, two, three = (self.generate(n, *words) for n in (0, 2, 3))
        self.assertEqual(one, two)
        self.assertEqual(one, three)
        ids = one.split()
        self.assertEqual(len(ids), 29)
        self.assertTrue(all(0 <= int(i) < 257 for i in ids))
        self.assertNotEqual(one, self.generate(0, *words[:-1], "6"), "the seed has no effect")

    def test_generate_cuts_heads_that_need_not_divide(self):
        words = [self.checkpoint, "--prompt-ids", "107,97,108", "--tokens", "9", "--temperature", "0"]
        self.assertEqual(self.generate(0, *words), self.generate(3, *words, "--tensor", "3"))
        for ranks, tensor, legal in ((2, 3, "1, 2"), (3, 2, "1, 3"), (5, 5, "1")):
            result = zt.run(ranks, ["generate", self.checkpoint, "--prompt", "a", "--tensor", tensor], timeout=20)
            self.assertNotEqual(result.code, 0, str(result))
            self.assertRegex(result.output, rf"--tensor {tensor}: it has to divide {ranks} ranks, .* has 4: legal here: {legal}\n")

    def test_generate_through_the_stages_of_a_pipeline(self):
        words = [self.checkpoint, "--prompt-ids", "107,97,108", "--tokens", "9", "--seed", "5", "--chunk", "2"]
        one = self.generate(0, *words)
        self.assertEqual(one, self.generate(2, *words, "--pipeline", "2"))
        self.assertEqual(one, self.generate(4, *words, "--pipeline", "2"))
        for ranks, pipeline, legal in ((2, 3, "1, 2"), (3, 2, "1"), (3, 3, "1")):
            result = zt.run(ranks, ["generate", self.checkpoint, "--prompt", "a", "--pipeline", pipeline], timeout=20)
            self.assertNotEqual(result.code, 0, str(result))
            self.assertRegex(result.output, rf"--pipeline {pipeline}: .*divide {ranks} ranks, .* has 2: legal here: {legal}\n")

    def test_generate_text(self):
        words = [self.checkpoint, "--prompt", "kalo", "--tokens", "28", "--temperature", "0"]
        one, two = self.generate(0, *words), self.generate(2, *words)
        self.assertEqual(one, two)
        self.assertTrue(one.startswith("kalo"), one)
        self.assertEqual(len(one), len("kalo") + 28 + 1)
        ids = [int(i) for i in self.generate(0, *words, "--ids").split()]
        self.assertEqual("".join("\n" if i == 256 else chr(i) for i in ids), one[len("kalo") : -1])

    def test_generate_beyond_the_sequence_is_asked_for(self):
        ids = ",".join(str(97 + i % 20) for i in range(50))  # the model was trained on 32 tokens
        words = ["generate", self.checkpoint, "--prompt-ids", ids, "--tokens", "5"]
        self.assert_refused(
            zt.run(2, words, timeout=20), r"a prompt has 50 tokens, more than the 32 .* --max-length 55"
        )
        self.assertEqual(len(self.generate(0, *words[1:], "--max-length", "55").split()), 5)

    def test_generate_takes_a_model_whose_embedding_is_tied(self):
        tied = self.train(2, "tied", {"model.tie_word_embeddings": True, "precision.preset": "bf16"})
        words = [tied / "checkpoints" / "step_6", "--prompt-ids", "1,2", "--tokens", "10"]
        self.assertEqual(self.generate(0, *words), self.generate(2, *words, "--pipeline", "2"))
        self.assertEqual(self.generate(0, *words), self.generate(2, *words))

    def test_generate_refuses_what_is_no_checkpoint(self):
        self.assert_refused(
            zt.run(2, ["generate", self.folder / "none", "--prompt", "a"], timeout=20),
            r"none' is neither a checkpoint of ztrain \(a folder step_N\) nor a Hugging Face model",
        )
        self.assert_refused(
            zt.run(2, ["generate", self.checkpoint.parent, "--prompt", "a"], timeout=20),
            r"it holds checkpoints: give one of them, such as '\S+/step_\d+'",
        )

    def test_words_that_a_command_does_not_take(self):
        for words, told in (
            (["--max-tokens", "10"], r"there is no option --max-tokens: did you mean --tokens\?"),
            (["--top_k=5"], r"there is no option --top_k: did you mean --top-k\?"),
            (["other", "thing"], r"'other thing' was not expected; run with --help"),
        ):
            result = zt.run(0, ["generate", self.checkpoint, "--prompt", "a", *words], timeout=20)
            self.assertEqual(result.code, 2, str(result))
            self.assertRegex(result.err, told)

    def test_resume_names_what_is_there_instead(self):
        for value, told in (
            ("true", r"there is no such folder; \"auto\" takes the newest of this run"),
            (self.checkpoint.parent, r"it holds checkpoints: give one of them, such as '\S+/step_\d+'"),
            (self.checkpoint.parent / "step_999", r"there is no such folder, but '\S+/step_\d+'"),
        ):
            result = zt.run(0, [self.deck, f"--run.output={self.folder / 'resumes'}", f"--checkpoint.resume={value}"], timeout=20)
            self.assert_refused(result, rf"checkpoint\.resume: '\S+' is no checkpoint of ztrain \(a folder step_N\): {told}")

    def test_generate_wants_a_prompt(self):
        self.assert_refused(zt.run(2, ["generate", self.checkpoint], timeout=20), r"--prompt\b.*--prompt-ids")

    def test_generate_refuses_ids_outside_the_vocabulary(self):
        self.assert_refused(
            zt.run(2, ["generate", self.checkpoint, "--prompt-ids", "5,257"], timeout=20),
            r"token 257 of the prompt is outside the model's vocabulary of 257",
        )

    def test_options_are_taken_as_they_are_written(self):
        """Not as the nearest number, without what is empty, or as if they were not there."""
        generate = ["generate", self.checkpoint, "--tokens", "2"]
        ids, prompt = [*generate, "--prompt-ids"], [*generate, "--prompt", "a"]
        whole = r"is not legal: expected a whole number from"
        for words, message in (
            ([*ids, ""], r"--prompt-ids: '' is not legal: expected token ids with commas between them"),
            ([*ids, "1,,2"], r"--prompt-ids: '1,,2' is not legal"),
            ([*ids, "1,2,"], r"--prompt-ids: '1,2,' is not legal"),
            ([*ids, "1,99999999999"], r"--prompt-ids: '1,99999999999' is not legal"),
            ([*prompt, "--seed", "18446744073709551616"], rf"--seed: 18446744073709551616 {whole} 0 to 18446744073709551615"),
            ([*prompt, "--seed", "-1"], rf"--seed: -1 {whole}"),
            ([*prompt, "--tokens", "99999999999999999999"], rf"--tokens: 99999999999999999999 {whole}"),
            ([*prompt, "--chunk", "-1"], r"--chunk: -1 is not legal: expected above 0\n"),
            ([*prompt, "--top-p", "2"], r"--top-p: 2 is not legal: expected from 1e-09 to 1\n"),
            ([*prompt, "--eos", ""], r"--eos: '' is not legal"),
            ([*prompt, "--eos", "300"], r"--eos: 300 is no token of the model's vocabulary of 257"),
            ([*prompt, "--eos", "1,-1"], r"--eos: -1 is no token of the model's vocabulary"),
            ([*prompt, "--logits", ""], r"--logits: an empty text is no value"),
            (["bench", self.deck, "--json", ""], r"--json: an empty text is no value"),
            (["export", self.checkpoint, "--to", ""], r"--to: an empty text is no value"),
            (["export", self.checkpoint, "--to", "s3://bucket/model"], r"--to: 's3://bucket/model' is an address, and ztrain"),
            ([*prompt, "--logits", "gs://bucket/l"], r"--logits: 'gs://bucket/l' is an address"),
        ):
            result = zt.run(0, words, timeout=20)
            self.assertNotEqual(result.code, 0, str(result))
            self.assertRegex(result.err, message)
            self.assertLess(len(result.output), 500, "no numbers of hundreds of digits")
            self.assertEqual(result.out, "")

    def test_nccl_needs_gpus(self):
        cpu = "built for cpu" in zt.run(0, ["--version"]).out
        if not cpu:
            self.skipTest("this build has GPUs")
        words = ["generate", self.checkpoint, "--prompt", "a", "--communicator", "nccl"]
        self.assert_refused(zt.run(2, words), r"--communicator nccl: this ztrain is built for CPUs")
        self.train(0, "nccl", {"device.communicator": "nccl", "run.steps": 1})
        self.assertRegex(self.last.out, r"\ndevice +CPU, .*oneDNN.*\ndevice +note: without effect on CPUs: ")
        words = ["--device.tf32=true", "--device.cuda_graphs=none", "--device.bf16_products=fp32"]
        for told in (self.last.out, zt.run(0, ["check", self.deck, "--device.communicator=nccl", *words]).out):
            (note,) = re.findall(r"\ndevice +note: without effect on CPUs: (.*)", told)
            self.assertIn('device.communicator = "nccl" (command line)', note)
            self.assertNotIn("cuda_graphs", note, "as by default")
            self.assertNotIn("bf16_products", note, "CPUs heed it")
        self.assertIn("device.tf32 = true", note)

    def test_generate_needs_a_checkpoint(self):
        result = zt.run(2, ["generate"], timeout=20)
        self.assertNotEqual(result.code, 0)
        self.assertEqual(result.output.count("model is required"), 1, str(result))


class ShippedDecks(zt.Case):
    def test_quickstart_fits_the_ranks_that_its_header_and_the_slurm_scripts_name(self):
        quickstart = zt.SOURCE / "inputs" / "quickstart.toml"
        for ranks, overrides in (
            (1, []),
            (2, []),
            (4, ["--batch.micro=4"]),
            (8, ["--batch.global=64", "--batch.micro=2"]),
            (32, ["--batch.global=64", "--batch.micro=2"]),
        ):
            result = zt.run(0, ["check", quickstart, "--ranks", ranks, *overrides])
            self.assertEqual(result.code, 0, str(result))
            self.assertIn("the deck is valid", result.out)
        for script in ("train_8gpu_node.sh", "train_multi_node.sh"):
            self.assertIn("--batch.global=64 --batch.micro=2", (zt.SOURCE / "slurm" / script).read_text())


if __name__ == "__main__":
    zt.main()
