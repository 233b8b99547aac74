"""A user's mistakes: each ends the job on all ranks, with one message that names what is wrong.

The checks of the deck run inside one agreement between the ranks, so only some are launched on several ranks.
"""

import os
import struct
import subprocess

import ztrain_run as zt


class BadInput(zt.Case):
    def refuse(self, overrides, *patterns, deck=None, ranks=0, times=1):
        words = [deck or self.deck, *(overrides if isinstance(overrides, list) else zt.words_of(overrides))]
        result = zt.run(ranks, words, timeout=20)
        self.assert_refused(result, *patterns, times=times)
        self.assertNotRegex(result.out, r"(?m)^ +1/6 ", f"it trained before it found the mistake\n{result}")
        return result

    def deck_of(self, name, text):
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    # The deck.

    def test_unknown_key_of_the_deck(self):
        deck = self.write_deck("unknown", {"sharding.stratgy": "zero1"})
        line = deck.read_text().splitlines().index('stratgy = "zero1"') + 1
        self.refuse(
            {},
            rf"unknown\.toml:{line}: unknown key 'sharding\.stratgy'; did you mean 'sharding\.strategy'\?",
            deck=deck,
            ranks=4,
        )

    def test_unknown_section(self):
        deck = self.deck_of("section", self.deck.read_text() + "\n[mseh]\nshard = 2\n")
        self.refuse({}, r"section\.toml:\d+: unknown section 'mseh'; did you mean 'mesh'\?", deck=deck)

    def test_key_outside_its_section(self):
        deck = self.deck_of("outside", "steps = 4\n" + self.deck.read_text())
        self.refuse(
            {},
            r"outside\.toml:1: unknown key 'steps' outside any section; did you mean 'run\.steps' or 'profile\.steps'\?",
            deck=deck,
        )

    def test_unknown_key_of_the_command_line(self):
        self.refuse(
            {"run.stpes": 4}, r"command line: unknown key 'run\.stpes'; did you mean 'run\.steps'\?", ranks=2
        )

    def test_word_that_is_no_override(self):
        self.refuse(["--run.steps", "4"], r"'--run\.steps' has no value: write --run\.steps=VALUE")

    def test_wrong_type_in_the_deck(self):
        deck = self.write_deck("type", {"run.steps": "many"})
        self.refuse(
            {},
            r"type\.toml:2: run\.steps = \"many\" is not legal: expected an integer, 0 or more",
            deck=deck,
            ranks=2,
        )

    def test_wrong_type_on_the_command_line(self):
        self.refuse(
            {"optimizer.lr": "fast"},
            r"command line: optimizer\.lr = \"fast\" is not legal: expected a number",
        )

    def test_value_out_of_range(self):
        self.refuse({"batch.micro": 0}, r"batch\.micro = 0 is not legal: .*nearest legal: 1")

    def test_unknown_strategy(self):
        self.refuse(
            {"sharding.strategy": "FULL_SHRAD"},
            r"sharding\.strategy = \"FULL_SHRAD\" is not legal: .*nearest legal: FULL_SHARD",
        )

    def test_toml_syntax(self):
        deck = self.deck_of("syntax", '[run]\nsteps = 3\noutput = "unfinished\n')
        self.refuse({}, r"syntax\.toml:3: not valid TOML: ", deck=deck, ranks=2)

    def test_key_given_twice(self):
        deck = self.deck_of("twice", "[run]\nsteps = 3\nsteps = 4\n")
        self.refuse({}, r"twice\.toml:3: not valid TOML: ", deck=deck)

    def test_all_mistakes_of_a_deck_at_once(self):
        deck = self.write_deck("several", {"run.steps": "many", "optimizer.lr": -1})
        self.refuse(
            {"learning_rate": 1},
            r"ztrain: the deck has 3 errors:\n"
            r"  \S+several\.toml:2: run\.steps = \"many\" is not legal: .*\n"
            r"  \S+several\.toml:\d+: optimizer\.lr = -1(\.0)? is not legal: .*\n"
            r"  command line: unknown key 'learning_rate'; did you mean 'optimizer\.lr'\?\n",
            deck=deck,
            ranks=3,
        )

    def test_missing_key(self):
        deck = self.write_deck("missing", {"batch.global": None})
        self.refuse({}, r"missing\.toml: batch\.global is missing; it has no default", deck=deck)

    def test_contradicting_lengths(self):
        self.refuse(
            {"run.epochs": 1}, r"run\.steps \(\S+deck\.toml:2\) and run\.epochs \(command line\) contradict"
        )

    def test_missing_deck(self):
        self.refuse({}, r"the deck: cannot read '\S+/none\.toml': No such file", deck=self.folder / "none.toml", ranks=4)

    def test_folder_for_a_deck(self):
        self.refuse({}, r"the deck: cannot read '\S+': it is a folder", deck=self.folder)

    def test_unset_variable(self):
        self.refuse(
            {"data.train": "${ZTRAIN_TEST_UNSET}/a"}, r"the environment variable ZTRAIN_TEST_UNSET is not set"
        )

    # Keys that must fit each other, or the model.

    def test_pieces_of_recomputation(self):
        self.refuse(
            {"recompute.mode": "selective", "recompute.pieces": ["norm", "mlp"]},
            r"recompute\.pieces = \[\"norm\", \"mlp\"\] is not legal: "
            r"expected a list of norm, qkv, attention, swiglu, router, dispatch, combine, ffn",
            ranks=2,
        )

    def test_unit_pattern_without_match(self):
        self.refuse(
            {"sharding.unit": "pattern", "sharding.unit_patterns": ["model.layers.*.mlp", "model.blocks.*"]},
            r"sharding\.unit_patterns: 'model\.blocks\.\*' matches no module of the model",
            ranks=4,
        )

    def test_optimizer_group_without_match(self):
        self.refuse(
            {"optimizer.groups": [{"match": "*.embedding.*", "lr_scale": 0.5}]},
            r"optimizer\.groups: '\*\.embedding\.\*' matches no parameter",
            ranks=2,
        )

    def test_no_decay_without_match(self):
        self.refuse(
            {"optimizer.no_decay": ["*.gamma"]},
            r"optimizer\.no_decay: '\*\.gamma' matches no parameter",
        )

    def test_groups_that_do_not_divide_the_shard_axis(self):
        self.refuse(
            {"sharding.reshard_after_forward": 3},
            r"sharding\.reshard_after_forward \(3\) does not divide mesh\.shard \(4\); nearest legal: 2 or 4",
            ranks=4,
        )

    def test_half_precision_master(self):
        self.refuse(
            {"precision.preset": "deepspeed-fp16", "precision.master": "fp16"},
            r"precision\.master = \"fp16\" does not go with precision\.parameters = \"fp16\": expected fp32",
        )

    def test_stochastic_rounding_beside_a_master(self):
        self.refuse(
            {"precision.preset": "bf16", "precision.rounding": "stochastic"},
            r"precision\.rounding = \"stochastic\" needs precision\.master = \"bf16\", but that is \"fp32\"",
        )

    def test_nesterov_without_momentum(self):
        self.refuse(
            {"optimizer.name": "sgd", "optimizer.momentum": 0, "optimizer.nesterov": True},
            r"optimizer\.nesterov = true needs a momentum, and optimizer\.momentum = 0",
        )

    def test_loss_scaling_without_half_precision(self):
        self.refuse(
            {"loss_scaling.scale": 1024},
            r"loss_scaling\.scale = 1024(\.0)? is for fp16 parameters only, and precision\.parameters",
        )

    # Mesh and batch.

    def test_mesh_that_does_not_match_the_ranks(self):
        self.refuse({"mesh.shard": 3}, r"mesh\.shard \(3\) .*= 3, but the job has 4 ranks: launch 3", ranks=4)

    def test_mesh_that_does_not_divide_the_ranks(self):
        self.refuse(
            {"mesh.replicate": 2},
            r"does not divide the job's 3 ranks; nearest legal numbers of ranks: 2 or 4",
            ranks=3,
        )

    def test_more_stages_than_layers(self):
        self.refuse(
            {"mesh.pipeline": 3},
            r"mesh\.pipeline \(3\) makes 3 stages, and the model has 2 layers \(model\.num_hidden_layers\)",
            ranks=3,
        )

    def test_batch_arithmetic(self):
        self.refuse(
            {"batch.micro": 3},
            r"deck\.toml:\d+: batch\.global \(4\) = batch\.micro \(3\) x data-parallel "
            r"ranks \(2\).*nearest legal: batch\.global = 6, or batch\.micro = 2",
            ranks=2,
        )

    def test_heads(self):
        self.refuse(
            {"model.num_attention_heads": 5, "model.num_key_value_heads": 5},
            r"model\.num_attention_heads \(5\) does not divide model\.hidden_size \(32\)",
        )

    # Data.

    def test_missing_data_file(self):
        self.refuse({"data.train": "none.txt"}, r"data\.train: '\S+/none\.txt' does not exist", ranks=4)

    def test_pattern_without_match(self):
        self.refuse({"data.train": "*.none"}, r"data\.train: '\S+/\*\.none' matches no file", ranks=2)

    def test_missing_validation_file(self):
        self.refuse({"data.validation": "none.txt"}, r"data\.validation: '\S+/none\.txt' does not exist")

    def test_empty_files(self):
        for name in ("empty.txt", "empty.bin"):
            (self.folder / name).write_bytes(b"")
            self.refuse({"data.train": name, "data.format": "auto"}, rf"data\.train: .*{name}", ranks=2)

    def test_data_shorter_than_a_sequence(self):
        (self.folder / "short.txt").write_text("short")
        self.refuse(
            {"data.train": "short.txt"}, r"data\.train has 5 tokens; .*one window of data\.sequence \+ 1 = 33"
        )

    def test_truncated_token_file(self):
        header = struct.pack("<256i", 20240520, 1, 5000, *[0] * 253)
        (self.folder / "truncated.bin").write_bytes(header + struct.pack("<4000H", *[7] * 4000))
        self.refuse(
            {"data.train": "truncated.bin"},
            r"'\S+/truncated\.bin' is truncated: its header promises 5000 tokens "
            r"\(11024 bytes\), but it has 9024 bytes",
            ranks=2,
        )

    def test_truncated_header(self):
        (self.folder / "header.bin").write_bytes(struct.pack("<10i", 20240520, 1, 5000, *[0] * 7))
        self.refuse({"data.train": "header.bin"}, r"'\S+/header\.bin' is truncated")

    def test_odd_number_of_bytes(self):
        (self.folder / "odd.bin").write_bytes(bytes(1001))
        self.refuse({"data.train": "odd.bin"}, r"'\S+/odd\.bin' is truncated: its 1001 bytes")

    def test_text_that_is_said_to_be_hdf5(self):
        self.refuse({"data.format": "hdf5"}, r"'\S+/text\.txt' cannot be opened as an HDF5 file", ranks=2)

    def test_vocabulary_that_the_data_do_not_say(self):
        (self.folder / "raw.bin").write_bytes(struct.pack("<1000H", *range(1000)))
        self.refuse(
            {"data.train": "raw.bin", "model.vocab_size": 0},
            r"model\.vocab_size is 0, and the files .* give it",
        )

    def test_token_ids_beyond_the_vocabulary(self):
        (self.folder / "large.bin").write_bytes(struct.pack("<4000H", *[300 + i % 1000 for i in range(4000)]))
        self.refuse(
            {"data.train": "large.bin"},
            r"token \d+ of '\S+/large\.bin' has id \d+, which is not below model\.vocab_size \(257\)",
            ranks=4,
            times=4,
        )

    def test_one_token_id_beyond_the_vocabulary_is_found_when_it_is_met(self):
        ids = [i % 257 for i in range(3300)]
        ids[1600] = 999
        (self.folder / "one.bin").write_bytes(struct.pack("<3300H", *ids))
        result = zt.run(
            2,
            [
                self.deck,
                *zt.words_of(
                    {"data.train": "one.bin", "data.format": "bin-uint16", "run.epochs": 1, "run.steps": 0}
                ),
            ],
            timeout=20,
        )
        self.assert_refused(
            result, r"token 1600 of '\S+/one\.bin' has id 999, which is not below model\.vocab_size \(257\)"
        )

    def test_records_and_weights_are_no_text(self):
        """Nor is text for a model of other tokens than bytes, or adapters for weights that nobody trained."""
        (self.folder / "chats.jsonl").write_text('{"text": "hello"}\n' * 1000)
        line = r"`tools/prepare_data\.py \S+/chats\.jsonl --tokenizer bytes --output \S+/chats\.h5`"
        self.refuse({"data.train": "chats.jsonl"}, rf"'\S+/chats\.jsonl' holds records \(JSON\).* with {line}", ranks=2)
        self.refuse({"data.train": zt.EXECUTABLE}, r"is no text: it has zero bytes")
        self.refuse({"model.vocab_size": 339}, r"text\.txt' is text, .* the model has a vocabulary of 339 instead of 257")
        of_nothing = r"lora\.rank = 4 trains adapters .*: set model\.from .* lora\.random_base = true"
        self.refuse({"lora.rank": 4}, of_nothing)
        self.assert_refused(zt.run(0, ["check", self.deck, "--without-files", "--lora.rank=4"]), of_nothing)

    def test_what_is_no_file_does_not_hang(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        wanted = "it is a FIFO, and a regular file is needed"
        self.refuse({}, rf"the deck: cannot read '\S+/fifo': {wanted}", deck=fifo, ranks=2)
        self.refuse({"data.train": fifo}, rf"data\.train: cannot read '\S+/fifo': {wanted}")
        for name in (".lock", "deck.resolved.toml", ".ztrain_write_test"):
            output = self.folder / f"out{name}"
            output.mkdir()
            os.mkfifo(output / name)
            self.refuse({"run.output": output}, rf"run\.output: cannot write '\S+{name}': {wanted}")

    def test_files_of_another_user(self):
        """Root reads everything, so here another user reads what is root's."""
        if os.geteuid() != 0:
            self.skipTest("needs root, who alone may become another user")
        closed = self.folder / "closed"
        (closed / "model").mkdir(parents=True)
        (closed / "text.txt").write_text("text")
        self.folder.chmod(0o755)
        closed.chmod(0o700)
        denied = r"Permission denied; it, and the folders above it, must be open to this user"
        other = ["setpriv", "--reuid=65534", "--clear-groups"]
        for words, key in (
            ({"data.train": closed / "text.txt"}, r"data\.train"),
            ({"model.from": closed / "model"}, r"model\.from"),
        ):
            result = zt.run(0, ["check", self.deck, *zt.words_of(words)], timeout=20, wrapper=other)
            self.assert_refused(result, rf"{key}: cannot read '\S+': {denied}")

    def test_stdout_takes_nothing(self):
        """A disk is full, or nobody reads as behind `| head -1`. A command whose text is all that it makes has failed; a run has its checkpoint."""
        for name, reason in ("full", "No space left on device"), ("left", "Broken pipe"):
            output = self.folder / name
            for words, code, begin in (["plan", self.deck, "--ranks", 2], 1, ""), (["check", self.deck], 1, ""), ([self.deck, f"--run.output={output}"], 0, "warning: "):
                reader, writer = os.pipe()
                os.close(reader)
                with open("/dev/full", "w") as full, open(writer, "w") as left:
                    pipes = {"stdout": {"full": full, "left": left}[name], "stderr": subprocess.PIPE}
                    done = subprocess.run(zt.command_line(0, words), text=True, timeout=60, env=zt.environment(), **pipes)
                self.assertEqual(done.returncode, code, words)
                said = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
                self.assertEqual(said, [f"ztrain: {begin}stdout: cannot write all that was to be printed: {reason}"])
            self.assertTrue(zt.saved_steps(output / "checkpoints"))

    # Folders.

    def test_output_below_a_regular_file(self):
        self.refuse(
            {"run.output": self.text / "sub"},
            r"run\.output: cannot create the folder '\S+/text\.txt/sub'",
            ranks=2,
        )

    def test_output_that_is_a_regular_file(self):
        self.refuse({"run.output": self.text}, r"run\.output: .*text\.txt")

    def test_checkpoints_below_a_regular_file(self):
        self.refuse(
            {"checkpoint.folder": self.text / "sub"},
            r"checkpoint\.folder: cannot create the folder '\S+/text\.txt/sub'",
            ranks=4,
        )

    def test_resume_from_nothing(self):
        self.refuse(
            {"checkpoint.resume": self.folder / "none"}, r"checkpoint\.resume: .\S+/none. is no checkpoint of ztrain \(a folder step_N\): there is no such folder", ranks=2
        )

    # The run itself.

    def test_model_larger_than_the_machine(self):
        model = {f"model.{key}": None for key in zt.SMALL_MODEL}
        deck = self.write_deck("large", {**model, "model.preset": "llama3.1-405b", "model.vocab_size": 257})
        self.refuse(
            {}, r"the job does not fit: 2 ranks on a node need [\d.]+ TiB, of which", deck=deck, ranks=2
        )


class RanksThatDiffer(zt.Case):
    """Two ranks started with different words, as nodes that see different files would be."""

    def start(self, *second):
        words = [self.deck, ":", "-np", "1", zt.EXECUTABLE, self.deck, *second]
        return zt.run(1, words, timeout=20)

    def test_data_that_one_rank_lacks(self):
        result = self.start('--data.train=["/nowhere/*.txt"]')
        self.assert_refused(result, r"rank 1: .*data\.train.*matches no file")

    def test_another_deck(self):
        self.assert_refused(self.start("--run.seed=99"), r"rank 1: .* reads another deck or other data than rank 0")


if __name__ == "__main__":
    zt.main()
