#include "checkpoint/retention.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/verify.hpp"
#include "config/hf/starting_point.hpp"
#include "files/file.hpp"
#include "files/lustre.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string name_of_step(std::int64_t step, std::string_view suffix = "") {
  return fmt::format("step_{}{}", step, suffix);
}

/// Returns the step of a name that is exactly step_<number><suffix>, or -1.
std::int64_t step_of(const std::string& name, std::string_view suffix) {
  constexpr std::string_view prefix = "step_";
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size())
    return -1;
  std::int64_t step = -1;
  const auto parsed =
      std::from_chars(name.data() + prefix.size(), name.data() + name.size() - suffix.size(), step);
  return parsed.ec == std::errc() && name == name_of_step(step, suffix) ? step : -1;
}

/// Checkpoints by step, the newest first.
using Found = std::map<std::int64_t, fs::path, std::greater<>>;

/// Returns the folders named step_<number><suffix>.
Found with_suffix(const fs::path& folder, std::string_view suffix) {
  Found found;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) return found;
  REQUIRE(!error, "{}: cannot look for checkpoints: {}", folder.string(), error.message());
  for (const auto& entry : entries) {
    const std::int64_t step = step_of(entry.path().filename().string(), suffix);
    if (std::error_code unknown; step >= 0 && entry.is_directory(unknown)) found[step] = entry.path();
  }
  return found;
}

/// Renames a checkpoint before it removes it: under its own name it would look complete while half removed.
void discard(const fs::path& checkpoint, std::int64_t step) {
  const fs::path doomed = unfinished_path(checkpoint.parent_path(), step);
  fs::remove_all(doomed);
  fs::rename(checkpoint, doomed);
  sync_folder(checkpoint.parent_path());
  fs::remove_all(doomed);
}

/// Runs work, which removes path. If that fails, adds the reason to failures.
template <class Work>
void attempt(const fs::path& path, std::vector<std::string>& failures, Work work) {
  try {
    work();
  } catch (const fs::filesystem_error& e) {
    failures.push_back(fmt::format("{}: cannot be removed: {}", path.string(), e.code().message()));
  } catch (const std::exception& e) {
    failures.push_back(fmt::format("{}: cannot be removed: {}", path.string(), e.what()));
  }
}

void sweep(const fs::path& folder, std::vector<std::string>& failures) {
  for (const auto& [number, old] : with_suffix(folder, ".old"))
    if (fs::exists(folder / name_of_step(number)))
      attempt(old, failures, [&, n = number, &path = old] { discard(path, n); });
  for (const auto& [number, path] : with_suffix(folder, ".tmp"))
    attempt(path, failures, [&remains = path] { fs::remove_all(remains); });
}

/// Returns the validation loss of a checkpoint's weights, or nothing if they have none, if it is that of
/// other data, or if it cannot be read.
std::optional<double> validation_loss_of(const fs::path& checkpoint, const std::string& data) {
  try {
    const auto metadata = parse_json(
        read_file((checkpoint / config::checkpoint_metadata_file).string(), config::largest_metadata),
        checkpoint.string(), {.bytes = config::largest_metadata});
    if (!data.empty() && metadata.value(validation_of_key, data) != data) return std::nullopt;
    return metadata.at(validation_loss_key).get<double>();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Returns the steps of the `most` checkpoints with the lowest validation losses; of equal ones the newest.
std::set<std::int64_t> best_of(const Found& checkpoints, int most, const std::string& data) {
  std::vector<std::pair<double, std::int64_t>> losses;
  if (most <= 0) return {};
  for (const auto& [number, path] : checkpoints)
    if (const auto loss = validation_loss_of(path, data)) losses.emplace_back(*loss, -number);
  std::ranges::sort(losses);
  std::set<std::int64_t> best;
  for (std::size_t i = 0; i < losses.size() && i < static_cast<std::size_t>(most); ++i)
    best.insert(-losses[i].second);
  return best;
}

/// Complete checkpoints that stay, and those that go.
struct Sorted {
  Found stay, go;
};

/// Sorts the checkpoints of a folder. The one of step `written` stays; -1: none is new.
Sorted sort_out(const fs::path& folder, std::int64_t written, const SaveOptions& options) {
  Sorted sorted;
  int kept = written < 0 ? 0 : 1;
  Found sound = with_suffix(folder, "");
  std::erase_if(sound, [&](const auto& checkpoint) {
    return options.damaged.contains(checkpoint.first) && checkpoint.first != written;
  });
  std::set<std::int64_t> best = best_of(sound, options.keep_best, options.validation_of);
  // After a change of the validation data the best of before stays until a checkpoint has a loss over these.
  if (best.empty()) best = best_of(sound, options.keep_best, "");
  for (const auto& [number, path] : sound) {
    const bool new_enough = options.keep <= 0 || number == written || ++kept <= options.keep;
    const bool every = options.keep_every > 0 && number % options.keep_every == 0;
    const bool singled_out = number == options.proven_step || best.contains(number);
    (new_enough || every || singled_out ? sorted.stay : sorted.go)[number] = path;
  }
  return sorted;
}

void remove_all(const Found& checkpoints, std::vector<std::string>& failures) {
  for (const auto& [number, path] : checkpoints)
    attempt(path, failures, [&, n = number, &checkpoint = path] { discard(checkpoint, n); });
}

bool is_sound(const fs::path& checkpoint) {
  try {
    require_sound(checkpoint);
    return true;
  } catch (const Error&) {
    return false;
  }
}

Found complete(const fs::path& folder) {
  auto found = with_suffix(folder, "");
  found.merge(with_suffix(folder, ".old"));  // merge keeps what is there already
  return found;
}

}  // namespace

std::vector<fs::path> list(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& [step, path] : complete(folder)) paths.push_back(path);
  return paths;
}

std::int64_t step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  return std::max(step_of(name, ""), step_of(name, ".old"));
}

std::optional<fs::path> newest(const fs::path& folder) {
  const auto found = complete(folder);
  return found.empty() ? std::nullopt : std::optional(found.begin()->second);
}

std::optional<fs::path> best(const fs::path& folder, const SaveOptions& options) {
  Found found = complete(folder);
  std::erase_if(found, [&](const auto& checkpoint) { return options.damaged.contains(checkpoint.first); });
  const std::set<std::int64_t> steps = best_of(found, 1, options.validation_of);
  return steps.empty() ? std::nullopt : std::optional(found.at(*steps.begin()));
}

fs::path unfinished_path(const fs::path& folder, std::int64_t step) {
  return folder / name_of_step(step, ".tmp");
}

void prepare_folder(const fs::path& folder, std::int64_t step, const SaveOptions& options) {
  if (!fs::exists(folder)) {
    fs::create_directories(folder);
    sync_folder(fs::absolute(folder).lexically_normal().parent_path());
  }
  for (const auto& [number, old] : with_suffix(folder, ".old")) {
    const fs::path current = folder / name_of_step(number);
    if (!fs::exists(current)) fs::rename(old, current);
  }
  // retain() tries again once the new checkpoint is safe, and reports this
  std::vector<std::string> in_retain;
  sweep(folder, in_retain);
  // Removes checkpoints early only if one of those that stay is sound; otherwise one that goes might be the
  // last sound one.
  const Sorted sorted = sort_out(folder, -1, options);
  const auto sound = [](const auto& checkpoint) { return is_sound(checkpoint.second); };
  if (!sorted.go.empty() && std::ranges::any_of(sorted.stay, sound)) remove_all(sorted.go, in_retain);
  fs::remove_all(unfinished_path(folder, step));
  REQUIRE(fs::create_directory(unfinished_path(folder, step)), "{}: another job is saving there",
          unfinished_path(folder, step).string());
}

void begin_snapshot(const fs::path& folder, std::int64_t step) {
  const auto newest_one = newest(folder);
  std::vector<fs::path> rest;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && (!newest_one || entry.path() != *newest_one)) rest.push_back(entry.path());
  for (const fs::path& path : rest) fs::remove_all(path);
  REQUIRE(fs::create_directory(unfinished_path(folder, step)), "{}: another process writes there",
          unfinished_path(folder, step).string());
}

bool remove_unfinished(const fs::path& folder, std::int64_t step) {
  std::error_code error;
  const bool was_there = fs::exists(unfinished_path(folder, step), error) || error;
  fs::remove_all(unfinished_path(folder, step), error);
  return was_there;
}

void require_room(const fs::path& unfinished, std::int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(unfinished, error);
  const bool unknown = error || space.capacity == 0;  // some file systems do not tell their space
  REQUIRE(unknown || static_cast<std::uintmax_t>(bytes) <= space.available,
          "{}: No space left on device: a checkpoint takes {} and there is room for {}: make room, or set "
          "checkpoint.folder to another file system",
          unfinished.string(), format_bytes(static_cast<double>(bytes)),
          format_bytes(static_cast<double>(space.available)));
  require_quota(unfinished, bytes, quota_left(unfinished, is_lustre(unfinished)), "a checkpoint",
                "set checkpoint.folder to another file system");
}

std::string publish(const fs::path& folder, std::int64_t step) {
  const fs::path unfinished = unfinished_path(folder, step), final = folder / name_of_step(step);
  sync_folder(unfinished);
  if (fs::exists(final)) fs::rename(final, folder / name_of_step(step, ".old"));
  fs::rename(unfinished, final);
  const std::string failure = failure_of([&] { sync_folder(folder); });
  if (failure.empty()) return "";
  return fmt::format(
      "{}: this checkpoint is written, but after a loss of power it may not be found: no older one is "
      "removed",
      failure);
}

std::vector<std::string> remove_remains(const fs::path& folder) {
  std::vector<std::string> failures;
  attempt(folder, failures, [&] { sweep(folder, failures); });
  return failures;
}

std::vector<std::string> retain(const fs::path& folder, std::int64_t step, const SaveOptions& options) {
  std::vector<std::string> failures;
  attempt(folder, failures, [&] {
    sweep(folder, failures);
    remove_all(sort_out(folder, step, options).go, failures);
  });
  return failures;
}

}  // namespace ztrain::checkpoint
