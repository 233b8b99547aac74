#include "train/run_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/hf/export_folder.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "config/validate/validate.hpp"
#include "data/tokens/token_source.hpp"
#include "files/file.hpp"
#include "telemetry/metrics_file.hpp"
#include "train/output_folder.hpp"

namespace ztrain::train {
namespace {

namespace fs = std::filesystem;

struct Read {
  std::string key;
  fs::path path;
};

/// How much of a path, and of what lies below it, belongs to one key alone.
enum class Owned : std::uint8_t {
  nothing,      ///< a folder in which others may have files
  checkpoints,  ///< a folder that holds names such as step_10
  anew,         ///< a folder that must not exist yet, so nothing that is read is in it
  request,      ///< a file that others make and the run removes
  all           ///< a file
};

struct Written {
  std::string key;
  fs::path path;
  Owned owned;
};

/// Resolves symbolic links of the part of the path that exists.
fs::path resolved(const fs::path& path) {
  std::error_code unknown;
  const fs::path found = fs::weakly_canonical(fs::absolute(path), unknown);
  const fs::path& known = unknown ? path : found;
  return known.has_filename() ? known : known.parent_path();
}

std::vector<Read> read_by(const config::Deck& deck) {
  std::vector<Read> all;
  // A run that starts from its own resolved deck writes the same settings again.
  if (const fs::path own = resolved(deck.path);
      own != resolved(fs::path(deck.run.output) / resolved_deck_name))
    all.push_back({"the deck", own});
  const auto add = [&](const std::string& key, const std::vector<std::string>& patterns) {
    for (const std::string& file : data::expand_patterns(patterns, key)) all.push_back({key, resolved(file)});
  };
  add("data.train", deck.data.train);
  add("data.validation", deck.data.validation);
  if (!deck.model.from.empty()) all.push_back({"model.from", resolved(deck.model.from)});
  if (!deck.model.base.empty()) all.push_back({"model.base", resolved(deck.model.base)});
  if (deck.pipeline.schedule_is_file())
    all.push_back({"pipeline.schedule", resolved(deck.pipeline.schedule)});
  return all;
}

std::vector<Written> written_by(const config::Deck& deck) {
  std::vector<Written> all;
  const auto add = [&](const char* key, const fs::path& path, Owned owned) {
    all.push_back({key, resolved(path), owned});
  };
  const fs::path output = deck.run.output, checkpoints = config::checkpoint_folder(deck);
  add("run.output", output, Owned::nothing);
  for (const char* name : {lock_name, probe_name, resolved_deck_name, telemetry::metrics_name,
                           telemetry::unfinished_metrics_name})
    add("run.output", output / name, Owned::all);
  for (const char* name : {save_name, stop_name}) add("run.output", output / name, Owned::request);
  add("run.output", output / places_name, Owned::nothing);
  if (deck.metrics.timeline_step > 0) add("run.output", output / timeline_name, Owned::all);
  if (!deck.profile.steps.empty()) add("run.output", output / trace_folder_name, Owned::all);
  if (deck.checkpoint.interval >= 0) {
    const char* key = deck.checkpoint.folder.empty() ? "run.output" : "checkpoint.folder";
    add(key, checkpoints, Owned::checkpoints);
    if (resolved(checkpoints) != resolved(output))
      for (const char* name : {lock_name, probe_name}) add(key, checkpoints / name, Owned::all);
    if (deck.checkpoint.memory_copies > 0) {
      add(key, checkpoints / checkpoint::snapshot_token_name, Owned::all);
      add("checkpoint.memory_folder", deck.checkpoint.memory_folder, Owned::nothing);
    }
  }
  if (const std::string& model = deck.checkpoint.export_to; !model.empty())
    for (const fs::path& path : {fs::path(model), checkpoint::ExportFolder::unfinished_path(model)})
      add("checkpoint.export", path, Owned::anew);
  if (!deck.data.stage.empty()) add("data.stage", deck.data.stage, Owned::nothing);
  if (!deck.device.algorithms.empty()) add("device.algorithms", deck.device.algorithms, Owned::all);
  return all;
}

bool is_name_of_checkpoint(const fs::path& name) {
  const fs::path suffix = name.extension();
  return checkpoint::step_of(name.stem()) >= 0 && (suffix.empty() || suffix == ".tmp" || suffix == ".old");
}

bool is_one_file(const fs::path& one, const fs::path& other) {
  std::error_code unknown;
  const auto names = fs::hard_link_count(one, unknown);
  return !unknown && names > 1 && fs::is_regular_file(one, unknown) && fs::equivalent(one, other, unknown);
}

/// Returns whether nobody else may use the path.
bool owns(const Written& w, const fs::path& path) {
  const fs::path inside = path.lexically_relative(w.path);
  const bool below = !inside.empty() && *inside.begin() != "..";
  if (w.owned == Owned::anew) return below;
  if (w.owned == Owned::all || w.owned == Owned::request) return below || is_one_file(path, w.path);
  return w.owned == Owned::checkpoints && below && is_name_of_checkpoint(*inside.begin());
}

void require_not_written(const Read& r, const Written& w) {
  const std::string path = printable(r.path.native());
  if (w.owned == Owned::anew || !owns(w, r.path)) return;
  REQUIRE(w.owned != Owned::checkpoints,
          "{}: '{}' lies in the folder of this run's own checkpoints, which the run moves and removes: give "
          "another {}, or go on with that run (checkpoint.resume)",
          r.key, path, w.key);
  fail("{}: '{}' is where the run writes: give another {}", r.key, path, w.key);
}

void require_not_in_the_way(const Written& w, const Written& other) {
  REQUIRE(w.key == other.key || !owns(w, other.path),
          "{}: '{}' would be in the way of '{}', which the run writes too ({}): give another {}", w.key,
          printable(w.path.native()), printable(other.path.native()), other.key, w.key);
}

/// Returns the path, or its nearest parent that exists.
fs::path nearest_there(fs::path path) {
  std::error_code unknown;
  while (!fs::exists(fs::symlink_status(path, unknown)) && path.has_relative_path())
    path = path.parent_path();
  return path;
}

void require_writable(const Written& w) {
  const fs::path wanted = w.owned == Owned::anew ? w.path.parent_path() : w.path,
                 there = nearest_there(wanted);
  const bool file = w.owned == Owned::all && there == wanted;
  std::error_code unknown;
  std::string why_not;
  if (file && !fs::is_regular_file(there, unknown))
    why_not = "is no file";
  else if (!file && !fs::is_directory(there, unknown))
    why_not = "is no folder";
  else if (::faccessat(AT_FDCWD, there.c_str(), file ? W_OK : W_OK | X_OK, AT_EACCESS) != 0)
    why_not = fmt::format("cannot be written: {}", text_of_errno(errno));
  REQUIRE(why_not.empty(), "{}: the run would write '{}', but '{}' {}; give another {}", w.key,
          printable(w.path.native()), printable(there.native()), why_not, w.key);
}

}  // namespace

void require_writable(const config::Deck& deck) {
  for (const Written& w : written_by(deck))
    if (w.owned != Owned::request) require_writable(w);
}

void require_apart(const config::Deck& deck) {
  const std::vector<Written> written = written_by(deck);
  for (const Read& r : read_by(deck))
    for (const Written& w : written) require_not_written(r, w);
  for (const Written& w : written)
    for (const Written& other : written) require_not_in_the_way(w, other);
}

}  // namespace ztrain::train
