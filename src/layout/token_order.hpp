#pragma once
// Which tokens of a micro-batch each rank of mesh.context has: asked by whoever hands tokens out, by ops that
// depend on the place of a token, and by the proof.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain {

/// Tokens [token, token + count) of a micro-batch.
struct TokenRun {
  std::int64_t token = 0, count = 0;
  bool operator==(const TokenRun&) const = default;
};
/// "0 to 7 and 24 to 31"
std::string to_string(const std::vector<TokenRun>& runs);

/// The order in which ranks have the tokens of a micro-batch: those of rank 0 first, then those of rank 1 and
/// so on, equally many each. Neighbours form groups. One group: the tokens as they are. Several: the tokens
/// are cut into two chunks for each group, of which group g of G has chunk g and then chunk 2G - 1 - g
/// (zig-zag). What early tokens have too few keys to attend to, the late ones make up for: of sequences that
/// are cut, or dealt, in any way, all groups have equally many pairs of a query and a key. A document or a
/// window makes that as uneven as it is within a chunk.
class TokenOrder {
 public:
  TokenOrder() = default;
  /// The ranks of the axis, the groups among which keys go round, which divide them, and what the tokens of a
  /// rank are a multiple of.
  TokenOrder(int ranks, int groups, int multiple = 1);

  int ranks() const { return ranks_; }
  int groups() const { return groups_; }

  /// The tokens with so much padding behind them that all parts are equal.
  std::int64_t padded(std::int64_t tokens) const;

  /// Returns the tokens at places [begin, end) of the order; never empty. tokens: of the micro-batch, padded.
  std::vector<TokenRun> runs(std::int64_t tokens, std::int64_t begin, std::int64_t end) const;
  /// Of part `index` of so many equal ones.
  std::vector<TokenRun> part(std::int64_t tokens, int parts, int index) const;

  bool operator==(const TokenOrder&) const = default;

 private:
  int ranks_ = 1, groups_ = 1, multiple_ = 1;
};

}  // namespace ztrain
