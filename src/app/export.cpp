#include "app/parse.hpp"
#include "base/error.hpp"
#include "train/export_model.hpp"

namespace ztrain::app {

int export_model(const Invocation& call) {
  Parser parser(
      "Writes a checkpoint's weights as a Hugging Face model: safetensors files and config.json. Adapters "
      "are merged into the weights, or written alone. Under MPI the ranks share the work",
      "ztrain export");
  train::ExportRequest request;
  double max_shard = static_cast<double>(request.max_shard_bytes) * 1e-9;
  bool adapters = false, merged = false, averages = false;
  parser.option("checkpoint", request.checkpoint, "a folder step_N, or PEFT's with adapters")
      .required()
      .local_path();
  parser.option("--to", request.to, "the folder to make").required().local_path();
  parser
      .option("--base", request.base,
              "folder of the weights beside which the checkpoint was trained, if moved")
      .local_path();
  parser.option("--dtype", request.dtype, "of the weights; auto: what the model was trained to compute in")
      .one_of({"auto", "bf16", "fp16", "fp32"})
      .shows_default();
  parser.option("--max-shard-size", max_shard, "GB of weights in one file").positive().shows_default();
  parser.flag("--adapter", adapters, "the adapters alone, as a PEFT folder");
  parser.flag("--merge", merged, "the model with the adapters merged, as without --adapter");
  parser.flag("--ema", averages,
              "the moving averages of trained weights in place of the weights (optimizer.ema_decay)");
  if (const auto code = parser.parse(call)) return *code;
  REQUIRE(!adapters || !merged, "--adapter writes the adapters alone, and --merge merges them: give one");
  request.max_shard_bytes = static_cast<std::int64_t>(max_shard * 1e9);
  if (adapters) request.content = checkpoint::ExportContent::adapters;
  if (averages) request.values = checkpoint::WeightValues::averaged;
  train::export_model(call.session, call.console, request);
  return 0;
}

}  // namespace ztrain::app
