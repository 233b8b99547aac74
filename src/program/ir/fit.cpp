#include "program/ir/fit.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "program/ir/op_types.hpp"

namespace ztrain::program {

void fit_attention(model::Node& node, const PartOfNode& part) {
  for (const auto& [key, i] : {std::pair{"heads", 0U}, std::pair{"kv_heads", 1U}}) {
    const PartOfNode::Operand& operand = part.inputs[i];
    const std::int64_t heads = node.attributes.integer(key) * operand.shape[1];
    REQUIRE(heads % operand.whole[1] == 0, "{}: {} {} do not divide into whole ones over {}", node.name,
            node.attributes.integer(key), key, to_string(part.axes));
    node.attributes.set(key, heads / operand.whole[1]);
  }
  if (part.is_split(0, 0))
    node.attributes.set("first_query", part.own(0).begin).set("keys", part.inputs[1].whole[0]);
}

void fit_embedding(model::Node& node, const PartOfNode& part) {
  if (part.is_split(1, 0))
    node.attributes.set("first_row", part.own(1).begin).set("rows", part.inputs[1].whole[0]);
}

void fit_head_loss(model::Node& node, const PartOfNode& part) {
  if (!part.is_split(1, 0)) return;
  node.op = "head_loss_split";
  std::int64_t most = 0;
  for (const model::Rows& words : part.inputs[1].parts) most = std::max(most, words.end - words.begin);
  node.attributes.set("first_word", part.own(1).begin)
      .set("axes", std::int64_t{part.axes.bits()})
      .set("most_words", most);
}

void fit_linear(model::Node& node, const PartOfNode& part) {
  if (part.output == partial && node.inputs.size() > 2)
    node.attributes.set("adds_bias", std::int64_t{part.index == 0});
}

void fit_dropout(model::Node& node, const PartOfNode& part) {
  if (!part.is_split(0, 0)) return;
  // What these axes cut may be a part by others.
  const std::int64_t before = node.attributes.integer("part_begin", 0);
  node.attributes.set("part_of", node.attributes.integer("part_of", part.inputs[0].whole[0]))
      .set("part_begin", before + part.own(0).begin);
}

}  // namespace ztrain::program
