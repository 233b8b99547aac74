#include "config/recompute_pieces.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ztrain::config {

const std::vector<RecomputePiece>& recompute_pieces() {
  static const std::vector<RecomputePiece> table{
      {"norm", {"norm"}, "the normalised inputs of attention and feed-forward."},
      {"qkv", {"qkv"}, "queries, keys and values."},
      {"attention", {"attention"}, "the output of attention."},
      {"swiglu", {"swiglu"}, "the activation of the feed-forward, gated or not."},
      {"router", {"router"}, "the router's scores, and the order of rows that follows from them."},
      {"dispatch", {"dispatch"}, "the inputs of experts, sorted by expert."},
      {"combine", {"combine"}, "the weighted sum of what experts computed."},
      {"ffn", {"gate_up", "swiglu"}, "the feed-forward's gate and up products, and its activation."},
  };
  return table;
}

std::vector<std::string_view> recompute_tags(const std::vector<std::string>& pieces) {
  const auto& table = recompute_pieces();
  for (const auto& name : pieces) {
    REQUIRE(std::any_of(table.begin(), table.end(), [&](const RecomputePiece& p) { return p.name == name; }),
            "'{}' is not a piece of recompute.pieces", name);
  }
  std::vector<std::string_view> tags;
  for (const RecomputePiece& piece : table) {
    if (std::find(pieces.begin(), pieces.end(), piece.name) == pieces.end()) continue;
    for (const auto tag : piece.tags) {
      if (std::find(tags.begin(), tags.end(), tag) == tags.end()) tags.push_back(tag);
    }
  }
  return tags;
}

}  // namespace ztrain::config
