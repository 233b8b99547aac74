#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "app/parse.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/export.hpp"
#include "config/hf_config.hpp"
#include "runtime/session.hpp"
#include "train/progress.hpp"

namespace ztrain::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds between_lines{5};

struct Arguments {
  std::string checkpoint, to, dtype;
  double max_shard = 5;  ///< GB
};

/// What stands beside the weights of a model and is no affair of training.
constexpr const char* companions[] = {"generation_config.json", "tokenizer.json",
                                      "tokenizer_config.json",  "tokenizer.model",
                                      "chat_template.jinja",    "special_tokens_map.json"};

/// The dtype the model computes in, where --dtype does not say another.
DType dtype_of(const config::Deck& deck, const std::string& given) {
  if (!given.empty()) return dtype_from(given);
  return deck.precision.parameters == DType::f64 ? DType::f32 : deck.precision.parameters;
}

std::vector<checkpoint::SideFile> side_files(const config::Deck& deck, DType dtype) {
  const config::Model& m = deck.model;
  // A stretched embedding is meant for the stretched length.
  const double stretched =
      m.rope_scaling == "llama3" ? m.rope_factor * static_cast<double>(m.rope_original_max_position) : 0;
  const auto positions = std::max(deck.data.sequence, static_cast<std::int64_t>(stretched));
  std::vector<checkpoint::SideFile> files{{"config.json", config::hf_config(m, dtype, positions)}};
  if (m.from.empty()) return files;
  for (const char* name : companions) {
    std::ifstream file(fs::path(m.from) / name, std::ios::binary);
    if (file.good()) files.push_back({name, {std::istreambuf_iterator<char>(file), {}}});
  }
  return files;
}

void run(const Arguments& a) {
  const auto metadata = checkpoint::read_metadata(a.checkpoint);
  config::Deck deck = train::deck_of(metadata, a.checkpoint);
  deck.model.from = metadata.value("model_from", "");
  const DType dtype = dtype_of(deck, a.dtype);
  const auto files = side_files(deck, dtype);
  const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  const auto start = Clock::now();
  auto next_line = start + between_lines;
  const auto done = checkpoint::export_weights(a.checkpoint, a.to, files,
                                               {dtype, static_cast<std::int64_t>(a.max_shard * 1e9)},
                                               [&](std::int64_t written, std::int64_t total) {
                                                 if (Clock::now() < next_line) return;
                                                 next_line = Clock::now() + between_lines;
                                                 fmt::print("{} of {} written\n", text(written), text(total));
                                                 std::fflush(stdout);
                                               });
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.name);
  fmt::print("{}: {} tensors, {} of {} in {} file{}, and {}; {:.1f} s\n", a.to, done.tensors,
             text(done.bytes), name_of(dtype), done.files, done.files == 1 ? "" : "s", fmt::join(names, ", "),
             std::chrono::duration<double>(Clock::now() - start).count());
}

}  // namespace

int export_model(const Invocation& call) {
  CLI::App app("Writes a checkpoint's weights as a Hugging Face model: safetensors files and config.json",
               "ztrain export");
  Arguments a;
  app.add_option("checkpoint", a.checkpoint, "a folder step_N")->required();
  app.add_option("--to", a.to, "the folder to make")->required();
  app.add_option("--dtype", a.dtype, "of the weights; else what the model was trained to compute in")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32"}));
  app.add_option("--max-shard-size", a.max_shard, "GB of weights in one file")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  if (const auto code = parse(app, call)) return *code;
  call.session.agree("exporting", [&] {
    if (call.session.rank() == 0) run(a);
  });
  return 0;
}

}  // namespace ztrain::app
