"""What transformers and PEFT make of tiny models of a dozen further families, and of scaled rotary embeddings, held
against ztrain on each axis of the mesh. Each model has a run of its own on each axis."""

import typing

import golden
import ztrain_run as zt


class Runs(typing.NamedTuple):
    """The run of a model on one rank, and those on two: with parameters over them, with heads and words, with tokens by
    a method, with blocks. Runs but "windows", "balanced", "short" and "moved" have packed documents; in "moved" experts
    have a loss of each sequence, and biases that follow the load."""

    one: str
    shard: str
    tensor: str
    context: str
    method: str
    pipeline: str


MODELS = {
    "qwen2_dynamic": Runs("short", "windows", "windows", "windows", "ulysses", "short"),
    "qwen3_yarn": Runs("windows", "lora", "documents", "windows", "gather", "documents"),
    "gemma2": Runs("lora", "documents", "windows", "documents", "ring", "frozen"),
    "gemma3": Runs("frozen", "lora", "documents", "documents", "ulysses", "windows"),
    "phi3": Runs("documents", "frozen", "lora", "documents", "gather", "windows"),
    "phi3_long": Runs("short", "windows", "windows", "windows", "ulysses", "short"),
    "olmo2": Runs("windows", "lora", "documents", "windows", "ring", "documents"),
    "olmo3": Runs("documents", "windows", "lora", "frozen", "ulysses", "documents"),
    "smollm3": Runs("lora", "documents", "windows", "documents", "gather", "frozen"),
    "glm": Runs("frozen", "lora", "documents", "documents", "ring", "windows"),
    "glm4": Runs("windows", "frozen", "documents", "lora", "ulysses", "documents"),
    "granite": Runs("documents", "windows", "lora", "documents", "gather", "frozen"),
    "ministral": Runs("lora", "documents", "frozen", "documents", "ring", "windows"),
    "apertus": Runs("windows", "lora", "documents", "documents", "ulysses", "frozen"),
    "starcoder2": Runs("frozen", "documents", "lora", "windows", "gather", "documents"),
    "mixtral": Runs("balanced", "lora", "documents", "balanced", "gather", "frozen"),
    "qwen2_moe": Runs("frozen", "documents", "lora", "documents", "ring", "windows"),
    "qwen3_moe": Runs("windows", "documents", "documents", "documents", "ulysses", "lora"),
    "olmoe": Runs("lora", "frozen", "documents", "documents", "gather", "documents"),
    "gpt_oss": Runs("documents", "windows", "lora", "documents", "ring", "frozen"),
    "deepseek_v2": Runs("documents", "lora", "documents", "windows", "ring", "frozen"),
    "deepseek_v3": Runs("moved", "documents", "lora", "moved", "ulysses", "frozen"),
    "gpt2": Runs("documents", "frozen", "windows", "documents", "ring", "documents"),
}


class Families(golden.Numbers):
    def test_on_one_rank(self):
        for model, runs in MODELS.items():
            with self.subTest(model=model):
                self.agree(model, runs.one, 1)

    def test_parameters_over_ranks(self):
        for model, runs in MODELS.items():
            with self.subTest(model=model):
                self.agree(model, runs.shard, 2)

    def test_heads_and_words_over_ranks(self):
        for model, runs in MODELS.items():
            with self.subTest(model=model):
                self.agree(model, runs.tensor, 2, {"tensor": 2})

    def test_tokens_over_ranks(self):
        for model, runs in MODELS.items():
            with self.subTest(model=model):
                self.agree(model, runs.context, 2, {"context": 2}, {"context.method": runs.method})

    def test_blocks_over_ranks(self):
        for model, runs in MODELS.items():
            with self.subTest(model=model):
                self.agree(model, runs.pipeline, 2, {"pipeline": 2}, {"batch.micro": 2})

    def test_keys_that_ranks_share_are_normalised_once(self):
        """OLMo normalises all heads together, and here four ranks have the keys of two heads."""
        self.agree("olmo2", "documents", 4, {"tensor": 4})

    def test_adapters_start_as_those_that_peft_trained(self):
        for model in MODELS:
            if "lora" in golden.golden(model)["runs"]:
                with self.subTest(model=model):
                    self.adapters_start_alike(model)

    def test_evaluations(self):
        for model, ranks, words in (("mixtral", 0, []), ("gpt2", 0, []), ("deepseek_v3", 2, ["--mesh.expert=2"])):
            with self.subTest(model=model):
                self.evaluations_agree(model, ranks, *words)

    def test_logits_of_a_prompt_at_once(self):
        for model in MODELS:
            with self.subTest(model=model):
                self.logits_agree(model)

    def test_logits_of_a_prompt_in_chunks_and_the_likeliest_tokens(self):
        """Ranks have parts of the parameters, or of the heads and words."""
        by_heads = ("gemma2", "olmo2", "glm4", "apertus", "qwen2_moe", "gpt_oss", "gpt2")
        for model in MODELS:
            # transformers turns later tokens of a dynamic scaling by other tables than the cached ones before them.
            if model != "qwen2_dynamic":
                with self.subTest(model=model):
                    self.texts_agree(model, 2, "--chunk", "16", *(("--tensor", 2) if model in by_heads else ()))


if __name__ == "__main__":
    zt.main()
