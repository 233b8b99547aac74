#pragma once
// Pieces of a block that selective recomputation can run again before the block's backward. A piece is one
// row of the table in recompute_pieces.cpp. Korthikanti et al., "Reducing activation recomputation in large
// transformer models", 2022.

#include <string>
#include <string_view>
#include <vector>

namespace ztrain::config {

struct RecomputePiece {
  std::string_view name;               ///< name in recompute.pieces
  std::vector<std::string_view> tags;  ///< tags of the graph's nodes whose outputs are not kept
  std::string_view doc;                ///< text on what is run again
};

const std::vector<RecomputePiece>& recompute_pieces();

/// Returns the node tags that the named pieces cover, each once, in table order. Throws Error for an unknown
/// name.
std::vector<std::string_view> recompute_tags(const std::vector<std::string>& pieces);

}  // namespace ztrain::config
