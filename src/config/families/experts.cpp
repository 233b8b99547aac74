// How files keep the experts of mixtures of experts.
#include <iterator>

#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr ExpertFiles apart = ExpertFiles::apart, stacked = ExpertFiles::stacked;
constexpr PartOrder interleaved = PartOrder::interleaved;

constexpr std::string_view expert_gate = "model.layers.*.mlp.experts.gate_proj.weight",
                           expert_up = "model.layers.*.mlp.experts.up_proj.weight",
                           expert_down = "model.layers.*.mlp.experts.down_proj.weight",
                           expert_gate_bias = "model.layers.*.mlp.experts.gate_proj.bias",
                           expert_up_bias = "model.layers.*.mlp.experts.up_proj.bias",
                           expert_down_bias = "model.layers.*.mlp.experts.down_proj.bias";

/// Forms that are read besides: that which transformers 5 writes for most architectures, and the feed-forward
/// of a dense model.
constexpr FileTensor others[]{
    {expert_gate, "model.layers.*.mlp.experts.gate_up_proj", false, stacked},
    {expert_up, "model.layers.*.mlp.experts.gate_up_proj", false, stacked},
    {expert_down, "model.layers.*.mlp.experts.down_proj", false, stacked},
    {expert_gate, "model.layers.*.mlp.gate_proj.weight", false, apart},
    {expert_up, "model.layers.*.mlp.up_proj.weight", false, apart},
    {expert_down, "model.layers.*.mlp.down_proj.weight", false, apart},
};

std::vector<FileTensor> with_others(std::vector<FileTensor> rows) {
  rows.insert(rows.end(), std::begin(others), std::end(others));
  return rows;
}

}  // namespace

std::vector<FileTensor> expert_files() {
  return with_others({{expert_gate, "model.layers.*.mlp.experts.*.gate_proj.weight", false, apart},
                      {expert_up, "model.layers.*.mlp.experts.*.up_proj.weight", false, apart},
                      {expert_down, "model.layers.*.mlp.experts.*.down_proj.weight", false, apart}});
}

std::vector<FileTensor> mixtral_expert_files() {
  return with_others({{"model.layers.*.mlp.gate.weight", "model.layers.*.block_sparse_moe.gate.weight"},
                      {expert_gate, "model.layers.*.block_sparse_moe.experts.*.w1.weight", false, apart},
                      {expert_up, "model.layers.*.block_sparse_moe.experts.*.w3.weight", false, apart},
                      {expert_down, "model.layers.*.block_sparse_moe.experts.*.w2.weight", false, apart}});
}

std::vector<FileTensor> gpt_oss_expert_files() {
  constexpr std::string_view both = "model.layers.*.mlp.experts.gate_up_proj",
                             both_bias = "model.layers.*.mlp.experts.gate_up_proj_bias",
                             both_blocks = "model.layers.*.mlp.experts.gate_up_proj_blocks";
  return {
      {expert_gate, both, true, stacked, interleaved},
      {expert_up, both, true, stacked, interleaved},
      {expert_gate_bias, both_bias, false, stacked, interleaved},
      {expert_up_bias, both_bias, false, stacked, interleaved},
      {expert_down, "model.layers.*.mlp.experts.down_proj", true, stacked},
      {expert_down_bias, "model.layers.*.mlp.experts.down_proj_bias", false, stacked},
      // Files in MXFP4 are not transposed.
      {expert_gate, both_blocks, false, stacked, interleaved},
      {expert_up, both_blocks, false, stacked, interleaved},
      {expert_down, "model.layers.*.mlp.experts.down_proj_blocks", false, stacked},
      {expert_gate, "model.layers.*.mlp.experts.*.gate_proj.weight", false, apart},
      {expert_up, "model.layers.*.mlp.experts.*.up_proj.weight", false, apart},
      {expert_down, "model.layers.*.mlp.experts.*.down_proj.weight", false, apart},
      {expert_gate_bias, "model.layers.*.mlp.experts.*.gate_proj.bias", false, apart},
      {expert_up_bias, "model.layers.*.mlp.experts.*.up_proj.bias", false, apart},
      {expert_down_bias, "model.layers.*.mlp.experts.*.down_proj.bias", false, apart},
  };
}

}  // namespace ztrain::config::families
