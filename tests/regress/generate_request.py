"""What generation is asked for: rank 0 reads and decides for all; where the end of a text and of the context come from."""

import json
import shutil

import hf_model as hf
import ztrain_run as zt

PROMPT = [5, 101, 33, 250, 9, 77, 180, 64, 2]
CONFIG = {**hf.CONFIG, "eos_token_id": None}


class Requests(hf.Models):
    def write_folder(self, name, **files):
        """A model; generation_config="..." writes the file of that name."""
        folder = self.write_model(name, self.tensors, config=CONFIG)
        for stem, text in files.items():
            (folder / f"{stem}.json").write_text(text)
        return folder

    def run_it(self, model, *words, ranks=0, prompt=PROMPT, **how):
        ids = ["--prompt-ids", ",".join(str(t) for t in prompt)] if prompt else []
        words = ["generate", model, "--dtype", "fp32", "--temperature", 0, *ids, *words]
        return zt.run(ranks, words, timeout=40, **how)

    def generate(self, model, *words, **how):
        self.last = self.run_it(model, *words, **how)
        self.assertEqual(self.last.code, 0, str(self.last))
        return [[int(t) for t in line.split()] for line in self.last.out.splitlines()]

    def refused(self, model, *words, message, **how):
        self.assert_refused(self.run_it(model, *words, **how), message)


class RankZeroDecides(Requests):
    """Each rank has a disk of its own; all of them have the weights."""

    def nodes(self, name, others):
        """Folders node0 with everything and node1 with the weights and `others`: {file: text}."""
        whole = self.generate(self.folder / "model", "--eos", -1, "--tokens", 30)[0]
        self.last_token = whole[12]
        top = self.folder / name
        for node in (0, 1):
            (top / f"node{node}" / "model").mkdir(parents=True)
            hf.write_file(top / f"node{node}" / "model" / "model.safetensors", self.tensors)
        files = {
            "model/config.json": json.dumps(CONFIG),
            "model/generation_config.json": json.dumps({"eos_token_id": self.last_token}),
            "prompts.txt": " ".join(map(str, PROMPT)) + "\n",
        }
        for node, texts in ((0, files), (1, others)):
            for file, text in texts.items():
                (top / f"node{node}" / file).write_text(text)
        return top, whole[: whole.index(self.last_token) + 1]

    def on_nodes(self, top, *words):
        how = {"ranks": 2, "prompt": None, "cwd": top, "wrapper": zt.OWN_FOLDERS}
        return self.generate("model", "--prompt-file", "prompts.txt", "--tokens", 30, *words, **how)

    def test_where_the_others_see_nothing_but_weights(self):
        top, expected = self.nodes("bare", {})
        self.assertEqual(self.on_nodes(top), [expected])

    def test_where_the_others_lack_only_the_token_that_ends_a_text(self):
        same = {"model/config.json": json.dumps(CONFIG), "prompts.txt": " ".join(map(str, PROMPT)) + "\n"}
        top, expected = self.nodes("endless", same)
        self.assertEqual(self.on_nodes(top), [expected])

    def test_where_the_others_see_something_else(self):
        others = {
            "model/config.json": json.dumps({**CONFIG, "max_position_embeddings": 11, "num_hidden_layers": 1}),
            "model/generation_config.json": json.dumps({"eos_token_id": [1, 2, 3]}),
            "prompts.txt": "1 2 3 4\n5 6\n",
        }
        top, expected = self.nodes("other", others)
        self.assertEqual(self.on_nodes(top), [expected])
        self.assertEqual(self.on_nodes(top, "--max-length", 12), [expected[:3]])

    def test_what_rank_0_cannot_read_ends_all(self):
        how = {"ranks": 2, "prompt": None, "cwd": self.nodes("broken", {"prompts.txt": "1 2\n"})[0]}
        how["wrapper"] = zt.OWN_FOLDERS
        (how["cwd"] / "node0" / "prompts.txt").unlink()
        self.refused("model", "--prompt-file", "prompts.txt", message="cannot read 'prompts.txt'", **how)
        (how["cwd"] / "node0" / "model" / "config.json").write_text("{")
        self.refused("model", "--prompt-file", "prompts.txt", message=r"config\.json: is not valid JSON", **how)


class Ends(Requests):
    def test_a_broken_generation_config_matters_only_without_eos(self):
        expected = self.generate(self.folder / "model", "--eos", 256, "--tokens", 4)
        for number, (text, message) in enumerate(
            (
                ("{", r"generation_config\.json: is not valid JSON"),
                ('{"eos_token_id": 4294967308}', r"generation_config\.json: eos_token_id = 4294967308: .* above 2147483647"),
            )
        ):
            folder = self.write_folder(f"broken_{number}", generation_config=text)
            self.assertEqual(self.generate(folder, "--eos", 256, "--tokens", 4), expected)
            self.refused(folder, "--tokens", 4, message=message, ranks=2)

    def test_a_token_of_a_file_is_refused_by_its_line(self):
        path = self.folder / "beyond.txt"
        path.write_text("1 2\n3 257 4\n")
        message = r"beyond\.txt:2: token 257 of the prompt is outside the model's vocabulary of 257"
        self.refused(self.folder / "model", "--prompt-file", path, prompt=None, message=message, ranks=2)


class Contexts(Requests):
    LONG = [t % 257 for t in range(700)]

    def too_long(self, model, limit, source):
        message = rf"a prompt has 800 tokens, more than the {limit} of the model's context \({source}\)"
        self.refused(model, message=message, prompt=[1] * 800)

    def test_a_checkpoint_has_that_of_the_model_it_started_from(self):
        model = self.write_folder("longer")
        expected = self.generate(model, "--eos", -1, "--tokens", 5, prompt=self.LONG)
        first = self.still("first", model)  # of sequences of 32 tokens
        second = self.still("second", first)
        self.assertEqual(self.generate(first, "--eos", -1, "--tokens", 5, prompt=self.LONG), expected)
        self.too_long(model, 777, r"max_position_embeddings of .*longer/config\.json")
        shutil.rmtree(model)
        said = "max_position_embeddings of the model that the run started from"
        for checkpoint in (first, second):
            self.assertEqual(self.generate(checkpoint, "--tokens", 5, prompt=self.LONG), expected)
            self.too_long(checkpoint, 777, said)
        self.generate(first, "--tokens", 5, "--max-length", 702, prompt=self.LONG)
        self.assertRegex(self.last.err, r"the context of 702 tokens is full \(--max-length\)")
        message = r"a prompt has 9 tokens, more than the 8 of the model's context \(--max-length\)"
        self.refused(first, "--max-length", 8, message=message)

    def test_a_run_from_scratch_has_its_sequences(self):
        keys = {f"model.{k}": v for k, v in zt.SMALL_MODEL.items()}
        output = self.train(1, "scratch", {**keys, "model.from": "", "run.steps": 1})
        self.too_long(output / "checkpoints" / "step_1", 32, r"data\.sequence of the run")


if __name__ == "__main__":
    zt.main()
