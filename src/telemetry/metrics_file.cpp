#include "telemetry/metrics_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "files/file.hpp"

namespace ztrain::telemetry {
namespace {

constexpr const char* key = "run.output";

[[noreturn]] void cannot_write(const std::string& path) {
  fail("run.output: cannot write {}: {}", path,
       text_of_failed_write(errno, 0, "set run.output to a folder that can be written"));
}

/// Opens the file for reading too, in case its name is lost. Refuses a symbolic link, which would have
/// another file written.
int open_lines(const std::string& path) {
  return open_file(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, key);
}

void write_lines(int file, std::string_view text, const std::string& path) {
  if (!write_all(file, text)) cannot_write(path);
}

nlohmann::ordered_json to_json(const PhaseSeconds& s) {
  nlohmann::ordered_json seconds = {{"data", s.data}};
  const auto add = [&](const char* phase, const std::optional<double>& value) {
    if (value) seconds[phase] = *value;
  };
  add("forward", s.forward);
  add("backward", s.backward);
  add("optimizer", s.optimizer);
  add("gather", s.gather);
  add("reduce", s.reduce);
  add("exposed_communication", s.exposed_communication);
  add("fetch", s.fetch);
  add("evict", s.evict);
  add("exposed_drives", s.exposed_drives);
  add("exposed_messages", s.exposed_messages);
  seconds["save"] = s.save;
  add("save_wait", s.save_wait);
  seconds["total"] = s.total;
  return seconds;
}

void add_pairs(nlohmann::ordered_json& line, const std::optional<PairsRecord>& pairs) {
  if (!pairs) return;
  if (pairs->pairs) line["pairs"] = *pairs->pairs;
  line["rewards_chosen"] = pairs->chosen_reward;
  line["rewards_rejected"] = pairs->rejected_reward;
  line["rewards_margins"] = pairs->margin;
  line["rewards_accuracies"] = pairs->accuracy;
  if (pairs->chosen_logp) line["logps_chosen"] = *pairs->chosen_logp;
  if (pairs->rejected_logp) line["logps_rejected"] = *pairs->rejected_logp;
  if (pairs->kl) line["kl"] = *pairs->kl;
}

/// Returns the step of a line, or nothing if it is not a complete record of ours.
std::optional<std::int64_t> step_of(const std::string& line) {
  try {
    const nlohmann::json record = parse_json(line, "a line");
    if (!record.is_object()) return std::nullopt;
    const auto step = record.find("step");
    if (step == record.end() || !step->is_number_integer()) return std::nullopt;
    return step->get<std::int64_t>();
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

MetricsFile::MetricsFile(const std::string& output, std::optional<std::int64_t> resumed_at,
                         std::function<void()> hold)
    : path_((std::filesystem::path(output) / metrics_name).string()), hold_(std::move(hold)) {
  if (resumed_at)
    keep_until(*resumed_at);
  else if (file_exists(path_, key))
    set_aside(output);
  file_ = open_lines(path_);
}

MetricsFile::~MetricsFile() {
  if (file_ >= 0) close(file_);
}

void MetricsFile::set_aside(const std::string& output) {
  previous_ = unused_name((std::filesystem::path(output) / "metrics.previous").string(), ".jsonl");
  if (std::rename(path_.c_str(), previous_.c_str()) != 0) cannot_write(path_);
}

void MetricsFile::keep_until(std::int64_t step) {
  if (!file_exists(path_, key)) return;
  require_readable(path_, key);
  std::ifstream old(path_);
  std::string kept;
  for (std::string line; std::getline(old, line);) {
    const bool finished = !old.eof();  // a line without its newline was cut off
    const auto at = step_of(line);
    if (finished && at && *at <= step) kept += line + '\n';
  }
  const std::string temporary =
      (std::filesystem::path(path_).parent_path() / unfinished_metrics_name).string();
  const int file = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, key);
  try {
    write_lines(file, kept, temporary);
  } catch (...) {
    close(file);
    throw;
  }
  const bool synced = fsync(file) == 0;
  if (close(file) != 0 || !synced || std::rename(temporary.c_str(), path_.c_str()) != 0) cannot_write(path_);
}

/// Adds the time of day.
std::string MetricsFile::append(nlohmann::ordered_json line) {
  constexpr double milliseconds = 1000;
  line["time"] = std::round(wall_clock() * milliseconds) / milliseconds;
  struct stat named {
  }, own{};
  const bool there = stat(path_.c_str(), &named) == 0;
  const bool removed = !there && (errno == ENOENT || errno == ENOTDIR);
  const bool other = there && fstat(file_, &own) == 0 && named.st_ino != own.st_ino;
  if (removed || other) make_again(removed);
  write_lines(file_, json_text(line) + '\n', path_);
  if (removed) return fmt::format("{} was removed; it is written again with all its lines", path_);
  return other ? fmt::format("{} is another file than before; the lines go on there", path_) : "";
}

void MetricsFile::make_again(bool removed) {
  hold_();
  const int before = file_;
  file_ = in_folder(std::filesystem::path(path_).parent_path(), [this] { return open_lines(path_); });
  std::string lines(1 << 16, '\0');
  try {
    off_t done = 0;
    for (ssize_t n = 1; removed && n > 0; done += n) {
      n = pread(before, lines.data(), lines.size(), done);
      if (n > 0) write_lines(file_, std::string_view(lines).substr(0, static_cast<std::size_t>(n)), path_);
    }
  } catch (...) {
    close(before);
    throw;
  }
  close(before);
}

std::string MetricsFile::write(const StepRecord& r) {
  nlohmann::ordered_json bytes = nlohmann::ordered_json::object();
  for (const auto& [axes, sent] : r.bytes_sent) bytes[axes] = sent;
  nlohmann::ordered_json line = {{"step", r.step},
                                 {"loss", r.loss},
                                 {"grad_norm", r.grad_norm},
                                 {"lr", r.lr},
                                 {"epoch", r.epoch},
                                 {"tokens", r.tokens},
                                 {"tokens_per_s", r.tokens_per_s},
                                 {"mfu", r.mfu},
                                 {"seconds", to_json(r.seconds)},
                                 {"bytes_sent", bytes},
                                 {"peak_bytes", r.peak_bytes}};
  if (r.experts) {
    line["balance_loss"] = r.experts->balance_loss;
    line["z_loss"] = r.experts->z_loss;
    line["expert_load_max"] = r.experts->load_max;
    line["experts_idle"] = r.experts->idle;
    if (r.experts->rerun) line["rerun"] = *r.experts->rerun;
  }
  if (r.units_rolled_back) line["units_rolled_back"] = *r.units_rolled_back;
  add_pairs(line, r.pairs);
  if (r.distillation) {
    line["ce_loss"] = r.distillation->entropy;
    line["distillation_loss"] = r.distillation->divergence;
  }
  return append(std::move(line));
}

std::string MetricsFile::write(const EvaluationRecord& r) {
  nlohmann::ordered_json line = {{"step", r.step}, {"validation_loss", r.validation_loss}};
  if (!r.pairs) line["perplexity"] = std::exp(r.validation_loss);
  line["epoch"] = r.epoch;
  line["tokens"] = r.tokens;
  if (r.sets.size() > 1)
    for (const auto& [name, loss] : r.sets) line["validation_losses"][name] = loss;
  if (r.balance_loss) line["balance_loss"] = *r.balance_loss;
  if (r.z_loss) line["z_loss"] = *r.z_loss;
  add_pairs(line, r.pairs);
  if (r.without_improvement) line["evaluations_without_improvement"] = *r.without_improvement;
  if (r.ends_run) line["early_stop"] = true;
  return append(std::move(line));
}

std::string MetricsFile::write(const CorruptionRecord& r) {
  keep_until(r.step);
  close(std::exchange(file_, -1));
  file_ = open_lines(path_);
  nlohmann::ordered_json line = {{"step", r.step}, {"went_back_from", r.from}, {"corruption", r.found}};
  return append(std::move(line));
}

}  // namespace ztrain::telemetry
