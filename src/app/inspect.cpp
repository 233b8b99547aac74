#include <fmt/format.h>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/parse.hpp"
#include "base/dtype.hpp"
#include "base/json.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "config/hf/starting_point.hpp"
#include "files/posix_file.hpp"
#include "job/require_checkpoint.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::app {
namespace {

using nlohmann::json;

struct InspectOptions {
  std::string folder;
  bool tensors = false, deck = false, json = false;
};

struct TensorInfo {
  std::string state, name;
  DType dtype = DType::f32;
  Shape shape;               ///< shape of the parameter
  std::int64_t granule = 1;  ///< elements per item
  std::int64_t bytes = 0, pieces = 0;
  bool frozen = false;
};

struct FileInfo {
  std::string name;
  std::int64_t bytes = 0;
};

struct Inspected {
  nlohmann::json metadata;          ///< metadata as the saver gave it
  std::vector<TensorInfo> tensors;  ///< tensors of all states, state by state
  std::vector<FileInfo> files;
};

/// Returns what a checkpoint says of itself, without its tensors. Throws Error if the folder is not a
/// checkpoint, or if its index is damaged.
Inspected contents_of(const std::filesystem::path& folder) {
  Inspected found{.metadata = checkpoint::read_metadata(folder), .tensors = {}, .files = {}};
  const checkpoint::Index index =
      checkpoint::read_index(folder / checkpoint::index_name);  // checkpoint::read_metadata has checked it
  for (const checkpoint::PieceRow& row : index.pieces) {
    const checkpoint::StateEntry& state = index.catalog.states[static_cast<std::size_t>(row.state)];
    const checkpoint::ParameterEntry& parameter =
        index.catalog.parameters[static_cast<std::size_t>(row.parameter)];
    const bool same = !found.tensors.empty() && found.tensors.back().state == state.name &&
                      found.tensors.back().name == parameter.name;
    if (!same)
      found.tensors.push_back({.state = state.name,
                               .name = parameter.name,
                               .dtype = row.type(),
                               .shape = parameter.shape,
                               .granule = state.granule,
                               .frozen = parameter.frozen});
    found.tensors.back().bytes += row.bytes();
    ++found.tensors.back().pieces;
  }
  for (const checkpoint::FileEntry& file : index.files) found.files.push_back({file.name, file.bytes});
  for (const char* name : {checkpoint::index_name, config::checkpoint_metadata_file})
    found.files.push_back({name, PosixFile::open_to_read(folder / name).size()});
  return found;
}

/// Returns a text of the metadata, which any program may have written; says so if the text is missing.
std::string said(const json& metadata, const char* key, const char* otherwise = "?") {
  if (!metadata.contains(key) || metadata.at(key).is_null()) return otherwise;
  const json& value = metadata.at(key);
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

/// Returns a line on the weights that the checkpoint does not hold, or "".
std::string frozen_text(const json& metadata) {
  if (!metadata.contains(checkpoint::frozen_key)) return "";
  const json& frozen = metadata.at(checkpoint::frozen_key);
  const std::string from = said(frozen, "from");
  return fmt::format("frozen     hash {}, of {}: {} that are not in the checkpoint\n", said(frozen, "hash"),
                     from.empty() ? "weights drawn from seed " + said(frozen, "seed") : from,
                     count_text(std::ssize(frozen.value("parameters", json::object())), "tensor"));
}

std::string proven_text(const json& metadata) {
  const std::string step = said(metadata, "proven_step", "-1");
  return step == "-1" ? "no step" : "step " + step;
}

std::string mesh_of(const json& metadata) {
  const json mesh = metadata.value("mesh", json::object());
  std::string text;
  for (const char* axis : {"pipeline", "replicate", "shard", "context", "tensor"})
    text += (text.empty() ? "" : " x ") + said(mesh, axis);
  text += " (pipeline x replicate x shard x context x tensor)";
  return mesh.contains("expert") ? text + fmt::format(", experts over {}", said(mesh, "expert")) : text;
}

/// Describes the states in the order in which the checkpoint has them.
std::string states_text(const Inspected& found) {
  std::vector<std::string> order;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> sums;  // number of tensors; bytes
  std::map<std::string, std::string> dtypes;
  for (const TensorInfo& t : found.tensors) {
    if (!sums.contains(t.state)) order.push_back(t.state);
    auto& [tensors, bytes] = sums[t.state];
    ++tensors;
    bytes += t.bytes;
    std::string& dtype = dtypes[t.state];
    const std::string name(name_of(t.dtype));
    dtype = dtype.empty() || dtype == name ? name : "several";
  }
  std::string text = fmt::format("{:<32} {:>8} {:>8} {:>12}\n", "state", "dtype", "tensors", "bytes");
  for (const std::string& state : order)
    text += fmt::format("{:<32} {:>8} {:>8} {:>12}\n", state, dtypes[state], sums[state].first,
                        format_bytes(sums[state].second));
  return text;
}

std::string text_of(const Inspected& found, const InspectOptions& options) {
  const json& m = found.metadata;
  std::string text = fmt::format(
      "{}\nstep       {} of {}, {} of them changed the weights; {} sequences, {} tokens\n"
      "proven     {} (of the checkpoints before it, the newest whose weights gave finite gradients); best "
      "validation "
      "loss {}\n"
      "written by ztrain {}, mesh {}, strategy {}\ndeck       hash {}; --deck prints it\n{}{}",
      options.folder, said(m, "step"), said(m, "run_steps"), said(m, "optimizer_steps"), said(m, "samples"),
      said(m, "tokens"), proven_text(m), said(m, "best_validation_loss", "none"), said(m, "version"),
      mesh_of(m), said(m, "strategy"), said(m, "deck_hash"), frozen_text(m), states_text(found));
  for (const FileInfo& file : found.files)
    text += fmt::format("{:<50} {:>12}\n", file.name, format_bytes(file.bytes));
  if (options.tensors)
    for (const TensorInfo& t : found.tensors)
      text +=
          fmt::format("{} {} {} {}{}, {} in {}{}\n", t.state, t.name, name_of(t.dtype), to_string(t.shape),
                      t.granule == 1 ? "" : fmt::format(", an item for {} elements", t.granule),
                      format_bytes(t.bytes), count_text(t.pieces, "piece"), t.frozen ? ", frozen" : "");
  return text;
}

json json_of(const Inspected& found, const InspectOptions& options) {
  json tensors = json::array(), files = json::array();
  for (const TensorInfo& t : found.tensors)
    tensors.push_back({{"state", t.state},
                       {"name", t.name},
                       {"dtype", name_of(t.dtype)},
                       {"shape", t.shape},
                       {"granule", t.granule},
                       {"bytes", t.bytes},
                       {"pieces", t.pieces},
                       {"frozen", t.frozen}});
  for (const FileInfo& file : found.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  return {{"checkpoint", options.folder},
          {"metadata", found.metadata},
          {"tensors", std::move(tensors)},
          {"files", std::move(files)}};
}

}  // namespace

int inspect(const Invocation& call) {
  Parser parser("What a checkpoint holds: step, mesh, sizes, tensors, deck. Reads its index alone",
                "ztrain inspect");
  InspectOptions options;
  parser.option("checkpoint", options.folder, "a folder step_N").required().local_path();
  parser.flag("--tensors", options.tensors, "list each tensor");
  parser.flag("--deck", options.deck, "print the deck of the run that wrote it, and nothing else");
  parser.flag("--json", options.json, "print all of it as JSON");
  if (const auto code = parser.parse(call)) return *code;
  call.session.agree("reading the checkpoint", [&] {
    if (call.session.rank() != 0) return;
    job::require_checkpoint(options.folder);
    const Inspected found = contents_of(options.folder);
    if (options.json) return call.console.print(json_text(json_of(found, options), 2) + "\n");
    call.console.print(options.deck ? said(found.metadata, "deck") : text_of(found, options));
  });
  return 0;
}

}  // namespace ztrain::app
