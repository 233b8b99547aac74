#include "program/ir/attention_op.hpp"

namespace ztrain::program {

bool holds_all(const Attributes& attributes) {
  return attributes.integer("joined", 0) != 0;
}

AttentionShape attention_shape(const Shape& q, const Attributes& attributes) {
  AttentionShape s;
  s.tokens = q.at(0);
  s.heads = attributes.integer("heads");
  s.kv_heads = attributes.integer("kv_heads");
  const bool joined = holds_all(attributes);
  s.head_dim = q.at(1) / (joined ? s.heads + 2 * s.kv_heads : s.heads);
  s.row = joined ? q.at(1) : 0;
  s.window = attributes.integer("window", 0);
  s.sequence = attributes.integer("sequence", 0);
  s.documents = attributes.integer("documents", 0);
  s.keys = attributes.integer("keys", 0);
  s.first_query = attributes.integer("first_query", 0);
  s.deterministic = attributes.integer("deterministic", 1) != 0;
  return s;
}

}  // namespace ztrain::program
