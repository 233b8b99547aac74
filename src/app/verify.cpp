#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
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

/// What all ranks have found, on rank 0.
checkpoint::Verified gather(checkpoint::Verified own) {
  const auto world = checkpoint::Group::world();
  const auto bytes = world.all_gather(own.bytes);
  const auto texts = world.gather_text(json_text(json(own.faults)));
  own.bytes = 0;
  for (const std::int64_t of_rank : bytes) own.bytes += of_rank;
  if (world.rank() != 0) return own;
  own.faults.clear();
  for (const std::string& text : texts)
    for (const auto& fault : parse_json(text)) own.faults.push_back(fault.get<std::string>());
  std::ranges::sort(own.faults);  // what each rank has found that could not open a file is told once
  own.faults.erase(std::ranges::unique(own.faults).begin(), own.faults.end());
  return own;
}

std::string text_of(const checkpoint::Verified& v, const std::string& folder) {
  std::string text;
  for (const std::string& fault : v.faults) text += fault + "\n";
  for (const std::string& name : v.others)
    text += fmt::format("{}/{}: is no file of the checkpoint\n", folder, name);
  if (!v.faults.empty()) return text + fmt::format("{}: damaged\n", folder);
  return text +
         fmt::format(
             "{}: sound: {} tensors, {}, in {} files{}\n", folder, v.tensors, format_bytes(v.bytes), v.files,
             v.covers_all ? ""
                          : "; of an older version, which has no checksums of what lies around the tensors");
}

json json_of(const checkpoint::Verified& v, const std::string& folder) {
  return {{"checkpoint", folder}, {"sound", v.faults.empty()}, {"faults", v.faults},
          {"others", v.others},   {"files", v.files},          {"tensors", v.tensors},
          {"bytes", v.bytes},     {"covers_all", v.covers_all}};
}

}  // namespace

int verify(const Invocation& call) {
  Parser parser(
      "Whether the bytes of a checkpoint are those that were written: each of each file has a checksum. The "
      "exit status is 1 where they are not. Under MPI the ranks share the work",
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
  return call.session.from_rank_0(all.faults.empty() ? "" : "damaged").empty() ? 0 : 1;
}

}  // namespace ztrain::app
