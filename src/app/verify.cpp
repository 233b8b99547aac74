#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "app/parse.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/verify.hpp"
#include "job/require_checkpoint.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::app {
namespace {

using nlohmann::json;

/// Gathers all ranks' texts at rank 0, each once: several ranks may have failed to open the same file.
void gather(std::vector<std::string>& texts) {
  const auto world = checkpoint::Group::world();
  const auto all = world.gather_text(json_text(json(texts)));
  if (world.rank() != 0) return;
  texts.clear();
  for (const std::string& of_rank : all)
    for (const auto& text : parse_json(of_rank)) texts.push_back(text.get<std::string>());
  checkpoint::tell_once(texts);
}

/// Returns at rank 0 what all ranks have found.
checkpoint::Verified gather(checkpoint::Verified own) {
  const auto bytes = checkpoint::Group::world().all_gather(own.bytes);
  own.bytes = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  gather(own.faults);
  gather(own.unread);
  return own;
}

bool is_sound(const checkpoint::Verified& v) {
  return v.faults.empty() && v.unread.empty();
}

std::string text_of(const checkpoint::Verified& v, const std::string& folder) {
  std::string text;
  for (const auto* texts : {&v.faults, &v.unread})
    for (const std::string& fault : *texts) text += fault + "\n";
  for (const std::string& name : v.others)
    text += fmt::format("{}/{}: is no file of the checkpoint\n", folder, name);
  if (!v.faults.empty()) return text + fmt::format("{}: damaged\n", folder);
  if (!v.unread.empty())
    return text + fmt::format("{}: not verified: what could not be read may be whole\n", folder);
  return text +
         fmt::format(
             "{}: sound: {} tensors, {}, in {} files{}\n", folder, v.tensors, format_bytes(v.bytes), v.files,
             v.covers_all ? ""
                          : "; of an older version, which has no checksums of what lies around the tensors");
}

json json_of(const checkpoint::Verified& v, const std::string& folder) {
  const bool unknown = v.faults.empty() && !v.unread.empty();
  return {{"checkpoint", folder},      {"sound", unknown ? json() : json(is_sound(v))},
          {"faults", v.faults},        {"unread", v.unread},
          {"others", v.others},        {"files", v.files},
          {"tensors", v.tensors},      {"bytes", v.bytes},
          {"covers_all", v.covers_all}};
}

}  // namespace

int verify(const Invocation& call) {
  Parser parser(
      "Whether the bytes of a checkpoint are those that were written: each of each file has a checksum. The "
      "exit status is 1 where they are not, or cannot be read. Under MPI the ranks share the work",
      "ztrain verify");
  std::string folder;
  bool as_json = false;
  parser.option("checkpoint", folder, "a folder step_N").required().local_path();
  parser.flag("--json", as_json, "print the same as JSON");
  if (const auto code = parser.parse(call)) return *code;
  telemetry::Phase phase(call.console, "verifying the checkpoint");
  const auto verified = call.session.agree("verifying the checkpoint", [&] {
    job::require_checkpoint(folder);
    const auto at = [&](std::int64_t done, std::int64_t total) {
      phase.at(fmt::format("{} of {}", format_bytes(done), format_bytes(total)));
    };
    return checkpoint::verify(
        folder, {.only = {}, .part = call.session.rank(), .parts = call.session.size(), .progress = at});
  });
  const checkpoint::Verified all = gather(verified);
  call.console.print(as_json ? json_text(json_of(all, folder), 2) + "\n" : text_of(all, folder));
  return call.session.from_rank_0(is_sound(all) ? "" : "not sound").empty() ? 0 : 1;
}

}  // namespace ztrain::app
