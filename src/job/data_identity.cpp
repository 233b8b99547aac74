#include "job/data_identity.hpp"
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace ztrain::job {
namespace {

constexpr const char* way_out = "or another run.output, or start anew with checkpoint.resume = \"none\"";

void require_same_data(const std::string& saved, const std::string& now, const std::string& checkpoint) {
  REQUIRE(saved == now,
          "data.train is not what {} was trained on (identity {} then, {} now: files, masks, documents, how "
          "they are packed, or what is held out for validation differ); give the same files, {}",
          checkpoint, saved, now, way_out);
}

/// Hashes that either side does not know are not compared: files without them count for nothing.
void require_same_hash(const char* what, const std::string& saved, const std::string& now,
                       const std::string& checkpoint) {
  REQUIRE(saved.empty() || now.empty() || saved == now,
          "data.train was prepared with another {} than what {} was trained on ({} then, {} now); prepare it "
          "with the same, {}",
          what, checkpoint, saved, now, way_out);
}

std::string changed_sets(const nlohmann::json& saved, const nlohmann::json& now) {
  std::string names;
  const auto add = [&](const std::string& name, const char* how) {
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", name, how);
  };
  for (const auto& [name, value] : now.items()) {
    if (!saved.contains(name))
      add(name, "is new");
    else if (saved.at(name) != value)
      add(name, "has changed");
  }
  for (const auto& [name, value] : saved.items())
    if (!now.contains(name)) add(name, "is gone");
  return names;
}

}  // namespace

nlohmann::json to_json(const data::Identity& identity) {
  nlohmann::json sets = nlohmann::json::object();
  for (const auto& [name, value] : identity.validation) sets[name] = hex(value);
  return {{"train", hex(identity.train)},
          {"ends", hex(identity.ends)},
          {"validation", sets},
          {"tokenizer", identity.tokenizer},
          {"chat_template", identity.chat_template}};
}

std::string compare_data(const nlohmann::json& metadata, const data::Identity& now,
                         const std::string& checkpoint) {
  const nlohmann::json &saved = metadata.at("data"), current = to_json(now);
  require_same_hash("tokenizer", saved.at("tokenizer").get<std::string>(), now.tokenizer, checkpoint);
  require_same_hash("chat template", saved.at("chat_template").get<std::string>(), now.chat_template,
                    checkpoint);
  require_same_data(saved.at("train").get<std::string>(), hex(now.train), checkpoint);
  const std::string now_ends = hex(now.ends);
  require_same_data(saved.value("ends", now_ends), now_ends, checkpoint);  // older versions wrote none
  const std::string changed = changed_sets(saved.at("validation"), current.at("validation"));
  if (changed.empty()) return "";
  return fmt::format(
      "note: the validation data differ from those of {} ({}): the best loss so far starts anew\n",
      checkpoint, changed);
}

}  // namespace ztrain::job
