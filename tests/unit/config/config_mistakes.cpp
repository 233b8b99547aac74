// What users of DeepSpeed, Accelerate, TrainingArguments, TRL, torchtitan, Megatron-LM and FSDP write, and
// what they are told.
#include <gtest/gtest.h>

#include <set>

#include "base/text.hpp"
#include "config/fields/fields.hpp"
#include "config/text/suggest.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::config::config_mistakes_test {
namespace {

using Words = std::vector<std::string>;

/// Lines below `base`, whose last is line 6, or words of the command line; and the whole message.
struct Mistake {
  const char* lines;
  Words words;
  const char* told;
};

const std::string accumulation =
    "The micro-batches of a step follow: batch.global / (batch.micro x data-parallel ranks).";

const Mistake mistakes[] = {
    // TrainingArguments.
    {"[optimizer]\nlearning_rate = 2e-5\n",
     {},
     "input.toml:8: unknown key 'optimizer.learning_rate'; did you mean 'optimizer.lr'?"},
    {"[optimizer]\nlearnig_rate = 2e-5\n",
     {},
     "input.toml:8: unknown key 'optimizer.learnig_rate'; did you mean 'optimizer.lr'?"},
    {"", {"--learning_rate=2e-5"}, "command line: unknown key 'learning_rate'; did you mean 'optimizer.lr'?"},
    {"",
     {"--learning_rate", "2e-5"},
     "command line: unknown key 'learning_rate'; did you mean 'optimizer.lr'?"},
    {"",
     {"--optimizer.lr", "2e-5"},
     "command line: '--optimizer.lr' has no value: write --optimizer.lr=VALUE"},
    {"[optimizer]\nlr = \"2e-5\"\n",
     {},
     "input.toml:8: optimizer.lr = \"2e-5\" is not legal: expected a number above 0; nearest legal: 2e-5"},
    {"[optimizer]\nadam_beta2 = 0.98\n",
     {},
     "input.toml:8: unknown key 'optimizer.adam_beta2'; did you mean 'optimizer.betas'? It holds both: "
     "[beta1, beta2]."},
    {"[checkpoint]\nsave_steps = 500\n",
     {},
     "input.toml:8: unknown key 'checkpoint.save_steps'; did you mean 'checkpoint.interval'?"},
    {"[checkpoint]\nsave_total_limit = 3\n",
     {},
     "input.toml:8: unknown key 'checkpoint.save_total_limit'; did you mean 'checkpoint.keep'?"},
    {"",
     {"--batch.per_device_train_batch_size=4"},
     "command line: unknown key 'batch.per_device_train_batch_size'; did you mean 'batch.micro'?"},
    {"",
     {"--num_train_epochs=3"},
     "command line: unknown key 'num_train_epochs'; did you mean 'run.epochs'?"},
    {"[schedule]\nwarmup_ratio = 0.03\n",
     {},
     "input.toml:8: unknown key 'schedule.warmup_ratio'; did you mean 'schedule.warmup'? Below 1 it "
     "is a share of the run's steps."},
    {"[schedule]\nwarmup = 2.5\n",
     {},
     "input.toml:8: schedule.warmup = 2.5 is not legal: expected an integer, 0 or more, or a share below 1; "
     "nearest legal: 2"},
    {"[recompute]\ngradient_checkpointing = true\n",
     {},
     "input.toml:8: unknown key 'recompute.gradient_checkpointing'; did you mean 'recompute.mode'? What is "
     "switched on there is \"full\" here."},
    {"[precision]\nbf16 = true\n",
     {},
     "input.toml:8: unknown key 'precision.bf16'; did you mean 'precision.preset'? Write \"bf16\"."},
    {"[metrics]\nreport_to = \"wandb\"\n",
     {},
     "input.toml:8: unknown key 'metrics.report_to'; metrics.jsonl in run.output holds every step, and "
     "tools/track_run.py hands it to trackers: leave it out"},
    {"[model]\nmodel_name_or_path = \"meta-llama/Llama-3.1-8B\"\n",
     {},
     "input.toml:8: unknown key 'model.model_name_or_path'; did you mean 'model.from'? It is a folder."},
    {"[model]\nname_or_path = \"meta-llama/Llama-3.1-8B\"\n",
     {},
     "input.toml:8: unknown key 'model.name_or_path'; did you mean 'model.from'? It is a folder."},
    {"",
     {"--batch.size=8"},
     "command line: unknown key 'batch.size'; did you mean 'batch.global'? batch.micro is what a rank takes "
     "at "
     "once."},
    {"",
     {"--ranks", "8"},
     "command line: unknown key 'ranks'; mpirun -np N, or srun, says how many ranks there are: leave it out"},
    {"",
     {"-n", "8"},
     "command line: unknown key 'n'; mpirun -np N, or srun, says how many ranks there are: leave it out"},
    {"", {"-h"}, "command line: unknown key 'h'; `ztrain --help` lists the commands, `ztrain deck` the keys"},
    {"", {"-run.steps=7"}, "command line: '-run.steps=7' is not an override; write --run.steps=7"},
    {"", {"--=3"}, "command line: '--=3' names no key: write --section.key=value"},
    {"",
     {"--ranks=8"},
     "command line: unknown key 'ranks'; mpirun -np N, or srun, says how many ranks there are: leave it out"},
    {"[optimizer]\nbetas = \"0.9,0.95\"\n",
     {},
     "input.toml:8: optimizer.betas = \"0.9,0.95\" is not legal: expected two numbers from 0 to below 1; "
     "nearest "
     "legal: [0.9, 0.95]"},
    {"[optimizer]\nbetas = [0.9]\n",
     {},
     "input.toml:8: optimizer.betas = [0.9] is not legal: expected two numbers from 0 to below 1; nearest "
     "legal: [0.9, 0.95]"},
    // Addresses instead of files.
    {"[checkpoint]\nfolder = \"s3://bucket/run\"\n",
     {},
     "input.toml:8: checkpoint.folder: 's3://bucket/run' is an address, and ztrain reads and writes files "
     "alone: "
     "copy it to a folder here, or mount it as one, and give that path"},
    {"",
     {"--model.from=hf://meta-llama/Llama-3.1-8B"},
     "command line: model.from: 'hf://meta-llama/Llama-3.1-8B' is an address, and ztrain reads and writes "
     "files "
     "alone: copy it to a folder here, or mount it as one, and give that path"},
    // TRL and PEFT.
    {"",
     {"--data.max_seq_length=4096"},
     "command line: unknown key 'data.max_seq_length'; did you mean 'data.sequence'?"},
    {"[lora]\nr = 16\n", {}, "input.toml:8: unknown key 'lora.r'; did you mean 'lora.rank'?"},
    {"[lora]\ntarget_modules = [\"q_proj\"]\n",
     {},
     "input.toml:8: unknown key 'lora.target_modules'; did you mean 'lora.targets'?"},
    // DeepSpeed.
    {"[zero_optimization]\nstage = 3\n",
     {},
     "input.toml:8: unknown key 'zero_optimization.stage'; did you mean 'sharding.strategy'? Stage 3 is "
     "\"zero3\", 2 \"zero2\", 1 \"zero1\"."},
    {"",
     {"--zero_optimization.offload_param.device=cpu"},
     "command line: unknown key 'zero_optimization.offload_param.device'; did you mean "
     "'offload.parameters'?"},
    {"[sharding.offload_optimizer]\ndevice = \"cpu\"\n",
     {},
     "input.toml:7: unknown key 'sharding.offload_optimizer'; did you mean 'offload.optimizer'? \"cpu\" or "
     "\"nvme\"; master weights have offload.master."},
    {"[sharding]\noverlap_comm = true\n",
     {},
     "input.toml:8: unknown key 'sharding.overlap_comm'; did you mean 'sharding.overlap_reduce'?"},
    {"[fp16]\nenabled = true\n",
     {},
     "input.toml:8: unknown key 'fp16.enabled'; did you mean 'precision.preset'? Write \"deepspeed-fp16\"."},
    {"[optimizer.params]\nlr = 1e-4\n",
     {},
     "input.toml:8: unknown key 'optimizer.params.lr'; did you mean 'optimizer.lr'?"},
    {"[schedule]\nname = \"WarmupLR\"\n",
     {},
     "input.toml:8: schedule.name = \"WarmupLR\" is not legal: expected one of constant, linear, cosine, "
     "wsd; "
     "nearest legal: constant"},
    {"",
     {"--train_micro_batch_size_per_gpu=2"},
     "command line: unknown key 'train_micro_batch_size_per_gpu'; did you mean 'batch.micro'?"},
    // Names of other programs that are near to several others.
    {"", {"--mp_size=2"}, "command line: unknown key 'mp_size'; did you mean 'mesh.tensor'?"},
    // Accelerate and FSDP.
    {"[sharding]\ncpu_offload = true\n",
     {},
     "input.toml:8: unknown key 'sharding.cpu_offload'; did you mean 'offload.parameters'? FSDP's CPUOffload "
     "is offload.parameters, offload.gradients and offload.optimizer = \"cpu\" (and master)."},
    {"[sharding]\nfsdp_auto_wrap_policy = \"TRANSFORMER_BASED_WRAP\"\n",
     {},
     "input.toml:8: unknown key 'sharding.fsdp_auto_wrap_policy'; did you mean 'sharding.unit'?"},
    {"[sharding]\nlimit_all_gathers = true\n",
     {},
     "input.toml:8: unknown key 'sharding.limit_all_gathers'; did you mean 'sharding.max_gathered_units'? It "
     "is a number of units: 2 there."},
    {"[sharding]\nunit = \"LlamaDecoderLayer\"\n",
     {},
     "input.toml:8: sharding.unit = \"LlamaDecoderLayer\" is not legal: expected one of block, size, model, "
     "pattern; nearest legal: block"},
    {"[precision]\npreset = \"fp16\"\n",
     {},
     "input.toml:8: precision.preset = \"fp16\" is not legal: expected one of fp32, bf16, bf16-pure, "
     "fsdp-mixed, fsdp-bf16, deepspeed-bf16, deepspeed-fp16, fp64; "
     "nearest legal: deepspeed-fp16"},
    {"",
     {"--num_processes=8"},
     "command line: unknown key 'num_processes'; mpirun -np N, or srun, says how many ranks there are: leave "
     "it out"},
    // Names of axes that many programs share.
    {"[mesh]\ntp = 4\n", {}, "input.toml:8: unknown key 'mesh.tp'; did you mean 'mesh.tensor'?"},
    {"", {"--tensor.parallel=2"}, "command line: unknown key 'tensor.parallel'; did you mean 'mesh.tensor'?"},
    {"",
     {"--ulysses_degree=2"},
     "command line: unknown key 'ulysses_degree'; did you mean 'mesh.context'? With context.method = "
     "\"ulysses\"."},
    {"[optimizer]\noffload = \"cpu\"\n",
     {},
     "input.toml:8: unknown key 'optimizer.offload'; did you mean 'offload.parameters'? FSDP's CPUOffload is "
     "offload.parameters, offload.gradients and offload.optimizer = \"cpu\" (and master)."},
    // torchtitan.
    {"[parallelism]\ntensor_parallel_degree = 2\n",
     {},
     "input.toml:8: unknown key 'parallelism.tensor_parallel_degree'; did you mean 'mesh.tensor'?"},
    {"[activation_checkpoint]\nmode = \"selective\"\n",
     {},
     "input.toml:8: unknown key 'activation_checkpoint.mode'; did you mean 'recompute.mode'?"},
    {"[lr_scheduler]\nwarmup_steps = 200\n",
     {},
     "input.toml:8: unknown key 'lr_scheduler.warmup_steps'; did you mean 'schedule.warmup'?"},
    {"[checkpoint]\nenable = true\n",
     {},
     "input.toml:8: unknown key 'checkpoint.enable'; did you mean 'checkpoint.interval'? It counts steps."},
    {"[validation]\nfreq = 100\n",
     {},
     "input.toml:8: unknown key 'validation.freq'; did you mean 'evaluation.interval'?"},
    // Megatron-LM.
    {"", {"--train-iters", "1000"}, "command line: unknown key 'train-iters'; did you mean 'run.steps'?"},
    {"", {"--lr", "1e-4"}, "command line: unknown key 'lr'; did you mean 'optimizer.lr'?"},
    {"[model]\nnum_layers = 32\n",
     {},
     "input.toml:8: unknown key 'model.num_layers'; did you mean 'model.num_hidden_layers'?"},
    {"[sharding]\nuse_distributed_optimizer = true\n",
     {},
     "input.toml:8: unknown key 'sharding.use_distributed_optimizer'; did you mean 'sharding.strategy'? That "
     "is \"zero1\"."},
    {"[optimizer]\nclip_grad = 1.0\n",
     {},
     "input.toml:8: unknown key 'optimizer.clip_grad'; did you mean 'optimizer.max_norm'?"},
    {"[sharding]\noverlap_reduce = \"yes\"\n",
     {},
     "input.toml:8: sharding.overlap_reduce = \"yes\" is not legal: expected true or false; nearest legal: "
     "true"},
    // Nothing that anybody knows.
    {"[optimizer]\nfrobnicate = 1\n",
     {},
     "input.toml:8: unknown key 'optimizer.frobnicate'; `ztrain deck` lists all keys, and "
     "docs/coming-from.md those of other programs"},
    {"[watchdog]\naudit_interval = 10\n",
     {"--device.deterministic=false"},
     "input.toml:8: watchdog.audit_interval = 10 needs device.deterministic = true: steps are computed "
     "twice, and are to have the same bits"},
    {"[frobnication]\nlevel = 1\n",
     {},
     "input.toml:7: unknown section 'frobnication'; `ztrain deck` lists all sections"},
};

TEST(Mistakes, AreAnsweredWithTheKey) {
  EXPECT_GE(std::size(mistakes), 40u);
  for (const Mistake& m : mistakes) EXPECT_EQ(deck_error(m.lines, m.words), m.told);
  EXPECT_EQ(deck_error("", {"--gradient_accumulation_steps=8"}),
            "command line: unknown key 'gradient_accumulation_steps'; did you mean 'batch.global'? " +
                accumulation);
}

TEST(Mistakes, NumbersOfStrategiesMeanTwoThings) {
  const auto ends = [](const std::string& value, const std::string& end) {
    const std::string told = deck_error("[sharding]\nstrategy = " + value + "\n");
    EXPECT_TRUE(told.ends_with("nearest legal: " + end)) << told;
  };
  ends("3", "zero3 (DeepSpeed's stage 3) or NO_SHARD (3 of Accelerate)");
  ends("\"_HYBRID_SHARD_ZERO2\"", "HYBRID_SHARD (with sharding.reshard_after_forward = false)");
}

TEST(Mistakes, FilesOfOtherProgramsAreNamedAsSuch) {
  const std::string advice =
      ", and a deck is TOML: `ztrain deck` prints one, and docs/coming-from.md tells the keys for the "
      "settings of other "
      "programs";
  EXPECT_EQ(error_of([] { parse_deck("\n{\"train_batch_size\": 8}", "ds_config.json"); }),
            "ds_config.json: this is JSON" + advice);
  EXPECT_EQ(error_of([] { parse_deck("distributed_type: FSDP\n", "fsdp.yaml"); }),
            "fsdp.yaml: its name ends as YAML's do" + advice);
}

TEST(Mistakes, OfOneDeckAreToldAtOnce) {
  EXPECT_EQ(deck_error("[training]\nseq_len = 8192\nlocal_batch_size = 1\n[optimizer]\nlr = -1\n",
                       {"--run.stpes=3"}),
            "the deck has 4 errors:\n"
            "  input.toml:8: unknown key 'training.seq_len'; did you mean 'data.sequence'?\n"
            "  input.toml:9: unknown key 'training.local_batch_size'; did you mean 'batch.micro'?\n"
            "  input.toml:11: optimizer.lr = -1 is not legal: expected a number above 0\n"
            "  command line: unknown key 'run.stpes'; did you mean 'run.steps'?");
  // Contradictions between keys are told beside them, unless they may follow from what was told.
  EXPECT_EQ(
      deck_error(
          "[optimizer]\nlr = -1\nnesterov = true\nmomentum = 0\n[recompute]\nevery = 2\nmode = \"ful\"\n"),
      "the deck has 3 errors:\n"
      "  input.toml:8: optimizer.lr = -1 is not legal: expected a number above 0\n"
      "  input.toml:13: recompute.mode = \"ful\" is not legal: expected one of none, full, selective; "
      "nearest legal: full\n"
      "  input.toml:9: optimizer.nesterov = true needs a momentum, and optimizer.momentum = 0; nearest "
      "legal: false");
  EXPECT_EQ(deck_error("[model]\npreset = \"llama9\"\nnum_attention_heads = 48\n").find("errors"),
            std::string::npos);
  EXPECT_EQ(error_of([] {
              parse_deck("[data]\ntrain = \"a\"\n[batch]\nglobl = 8\n[run]\ntokens = 5\n", "input.toml");
            }),
            "input.toml:4: unknown key 'batch.globl'; did you mean 'batch.global'?");
}

TEST(Mistakes, AreNotToldWithoutEnd) {
  std::string lines = "[optimizer]\n";
  for (int i = 0; i < 1000; ++i) lines += "frob" + std::to_string(i) + " = 1\n";
  const std::string all = deck_error(lines), told = with_short_lists(all);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 1000) << all;
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 12) << told;
  EXPECT_TRUE(told.starts_with("the deck has 1000 errors:\n  input.toml:8: ")) << told;
  EXPECT_TRUE(told.ends_with("\n  and 989 more, which the same command with --all names")) << told;
  EXPECT_LT(deck_error("[optimizer]\nname = \"" + std::string(100000, 'x') + "\"\n").size(), 1000u);
  EXPECT_LT(deck_error("[optimizer]\n" + std::string(100000, 'x') + " = 1\n").size(), 1000u);
}

TEST(OtherNames, LeadToKeysThatExist) {
  std::set<std::string> seen;
  for (const std::string& name : other_names()) {
    const OtherName* other = find_other_name(name);
    ASSERT_NE(other, nullptr) << name << " is not in lower case";
    EXPECT_TRUE(seen.insert(name).second) << "two rows for " << name;
    EXPECT_TRUE(other->key.empty() ? !other->note.empty() : find_field(other->key) != nullptr) << name;
    const std::string told = deck_error("[optimizer]\n" + name + " = 1\n");
    EXPECT_NE(told.find(other->key.empty() ? "; " + std::string(other->note)
                                           : "'" + std::string(other->key) + "'?"),
              std::string::npos)
        << told;
  }
  EXPECT_EQ(find_other_name("LEARNING-RATE"), find_other_name("learning_rate"));
}

/// A value that other programs write, and the deck's own.
struct Value {
  const char *theirs, *ours;
};
const Value values[] = {
    {"optimizer.name=AdamW", "optimizer.name=adamw"},
    {"optimizer.name=adamw_torch_fused", "optimizer.name=adamw"},
    {"optimizer.max_norm=false", "optimizer.max_norm=0"},
    {"schedule.name=Cosine", "schedule.name=cosine"},
    {"schedule.name=constant_with_warmup", "schedule.name=constant"},
    {"sharding.unit=TRANSFORMER_BASED_WRAP", "sharding.unit=block"},
    {"sharding.unit=no_wrap", "sharding.unit=model"},
    {"sharding.forward_prefetch=false", "sharding.forward_prefetch=0"},
    {"sharding.forward_prefetch=True", "sharding.forward_prefetch=1"},
    {"sharding.backward_prefetch=NO_PREFETCH", "sharding.backward_prefetch=none"},
    {"sharding.reshard_after_forward=never", "sharding.reshard_after_forward=false"},
    {"sharding.reshard_after_forward=True", "sharding.reshard_after_forward=true"},
    {"sharding.overlap_reduce=False", "sharding.overlap_reduce=false"},
    {"recompute.mode=true", "recompute.mode=full"},
    {"recompute.mode=False", "recompute.mode=none"},
    {"precision.preset=no", "precision.preset=fp32"},
    {"precision.preset=BF16", "precision.preset=bf16"},
    {"precision.reduce=bfloat16", "precision.reduce=bf16"},
    {"precision.fp8=rowwise_with_gw_hp", "precision.fp8=rowwise"},
    {"loss_scaling.scale=dynamic", "loss_scaling.scale=0"},
    {"mesh.shard=auto", "mesh.shard=-1"},
    {"data.packing=true", "data.packing=documents"},
};

TEST(OtherNames, OfValuesAreUnderstood) {
  for (const Value& v : values) {
    const std::string key = std::string(v.ours).substr(0, std::string(v.ours).find('='));
    const auto value = [&](const char* word) {
      for (const Origin& origin : deck_of("", {word}).origins)
        if (origin.key == key) return origin.value;
      return std::string("no such key");
    };
    EXPECT_EQ(deck_error("", {v.theirs}), "no error") << v.theirs;
    EXPECT_EQ(value(v.theirs), value(v.ours)) << v.theirs;
  }
}

}  // namespace
}  // namespace ztrain::config::config_mistakes_test
