// Files that fuse, transpose and rename parameters, read by ranks with slices and written back bit for bit.

#include "tests/support/tensor_folders.hpp"

namespace ztrain::tensor_parts_test {
namespace {

using namespace test;

/// Queries have more elements than an import or an export takes in one block.
constexpr std::int64_t hidden = 1100, heads = 1008;

enum : int { embedding, q, k, v, q_bias, k_bias, v_bias, o, norm };

std::vector<ParameterShape> parameters(int tensor) {
  const std::string a = "model.layers.10.self_attn.";
  return {{"model.embed_tokens.weight", {17, hidden}, {}, 0},
          {a + "q_proj.weight", {heads, hidden}, {0, tensor}, 1},
          {a + "k_proj.weight", {12, hidden}, {0, tensor}, 1},
          {a + "v_proj.weight", {12, hidden}, {0, tensor}, 1},
          {a + "q_proj.bias", {heads}, {0, tensor}, 1},
          {a + "k_proj.bias", {12}, {0, tensor}, 1},
          {a + "v_proj.bias", {12}, {0, tensor}, 1},
          {a + "o_proj.weight", {hidden, heads}, {1, tensor}, 1},
          {"model.norm.weight", {hidden}, {}, 2}};
}

/// Keeps queries, keys and values in one tensor.
config::Architecture fused() {
  config::Architecture a;
  a.hf_class = "FusedForCausalLM";
  constexpr const char *weight = "model.layers.*.self_attn.qkv_proj.weight",
                       *bias = "model.layers.*.self_attn.qkv_proj.bias";
  a.files = {
      {"model.layers.*.self_attn.q_proj.weight", weight}, {"model.layers.*.self_attn.q_proj.bias", bias},
      {"model.layers.*.self_attn.k_proj.weight", weight}, {"model.layers.*.self_attn.k_proj.bias", bias},
      {"model.layers.*.self_attn.v_proj.weight", weight}, {"model.layers.*.self_attn.v_proj.bias", bias}};
  return a;
}

/// Has the same tensors transposed under other names, and two buffers, of which one is a constant.
config::Architecture transposed() {
  config::Architecture a = fused();
  a.hf_class = "TransposedForCausalLM";
  for (config::FileTensor& row : a.files) {
    row.transposed = true;
    row.tensor = row.parameter.ends_with("bias") ? "transformer.h.*.attn.c_attn.bias"
                                                 : "transformer.h.*.attn.c_attn.weight";
  }
  a.files.push_back({"model.layers.*.self_attn.o_proj.weight", "transformer.h.*.attn.c_proj.weight", true});
  a.files.push_back({"model.embed_tokens.weight", "transformer.wte.weight"});
  a.files.push_back({"model.norm.weight", "transformer.ln_f.weight"});
  a.buffers = {{"transformer.h.*.attn.bias"}, {"transformer.h.*.act.beta", 0.5}};
  return a;
}

/// Parameters with their values, one after the other along the outputs.
Tensor stack(std::initializer_list<int> parts) {
  Tensor all;
  for (const int p : parts) {
    const Shape shape = parameters(1)[static_cast<std::size_t>(p)].shape;
    if (all.shape.empty())
      all.shape = shape;
    else
      all.shape[0] += shape[0];
    for (std::int64_t i = 0; i < elements(shape); ++i) all.values.push_back(value_of(0, p, i));
  }
  return all;
}

Tensor turned(const Tensor& t) {
  Tensor result{{t.shape[1], t.shape[0]}, {}};
  for (std::int64_t j = 0; j < t.shape[1]; ++j)
    for (std::int64_t i = 0; i < t.shape[0]; ++i)
      result.values.push_back(t.values[static_cast<std::size_t>(i * t.shape[1] + j)]);
  return result;
}

Tensors apart_tensors() {
  Tensors tensors;
  const auto all = parameters(1);
  for (int p = 0; p < static_cast<int>(all.size()); ++p)
    tensors[all[static_cast<std::size_t>(p)].name] = stack({p});
  return tensors;
}

Tensors fused_tensors() {
  Tensors tensors = apart_tensors();
  std::erase_if(tensors, [](const auto& t) {
    return contains(t.first, "q_proj") || contains(t.first, "k_proj") || contains(t.first, "v_proj");
  });
  tensors["model.layers.10.self_attn.qkv_proj.weight"] = stack({q, k, v});
  tensors["model.layers.10.self_attn.qkv_proj.bias"] = stack({q_bias, k_bias, v_bias});
  return tensors;
}

Tensors transposed_tensors() {
  return {{"transformer.h.10.attn.c_attn.weight", turned(stack({q, k, v}))},
          {"transformer.h.10.attn.c_attn.bias", stack({q_bias, k_bias, v_bias})},
          {"transformer.h.10.attn.c_proj.weight", turned(stack({o}))},
          {"transformer.wte.weight", stack({embedding})},
          {"transformer.ln_f.weight", stack({norm})},
          {"transformer.h.10.act.beta", {{}, {0.5F}}}};
}

class TensorParts : public TensorFolders {
 protected:
  TensorParts() : TensorFolders(parameters) {}
};

TEST_F(TensorParts, FusedTensorsOrTheirPartsAreRead) {
  expect_import(write("fused", on_rank_0(fused_tensors)), fused());
  expect_import(write("apart", on_rank_0(apart_tensors)), fused());
  expect_import(write("bare", without_base(on_rank_0(fused_tensors))), fused());
}

TEST_F(TensorParts, TransposedTensorsAreReadWithoutBuffers) {
  Tensors tensors = transposed_tensors();
  tensors["transformer.h.10.attn.bias"] = {{2, 2}, {1, 0, 1, 1}};
  expect_import(write("transposed", tensors), transposed());
  expect_import(write("bare", without_base(tensors)), transposed());
}

TEST_F(TensorParts, ExportsHaveTheFormOfTheArchitecture) {
  expect_export("fused", fused(), on_rank_0(fused_tensors));
  expect_export("transposed", transposed(), on_rank_0(transposed_tensors));
}

TEST_F(TensorParts, MessagesNameTensorsOfTheFile) {
  Tensors tensors = fused_tensors();
  tensors.erase("model.layers.10.self_attn.qkv_proj.weight");
  tensors["model.layers.10.self_attn.qkv_proj.bias"] = stack({q_bias, k_bias});
  tensors["model.layers.10.self_attn.other"] = stack({norm});
  const std::string text = import_error(write("wrong", tensors), fused());
  EXPECT_TRUE(contains(text, "1 tensor is missing:\n    model.layers.10.self_attn.qkv_proj.weight\n"))
      << text;
  EXPECT_TRUE(contains(text, "1 tensor is unexpected:\n    model.layers.10.self_attn.other\n")) << text;
  EXPECT_TRUE(contains(text,
                       "1 tensor is of another shape:\n    model.layers.10.self_attn.qkv_proj.bias [1020] "
                       "(the model's is [1032])"))
      << text;
  tensors = transposed_tensors();
  tensors["transformer.h.10.act.beta"].values = {0.25F};
  const std::string constant = import_error(write("constant", tensors), transposed());
  EXPECT_TRUE(contains(constant, "tensor transformer.h.10.act.beta is 0.25, and ztrain computes"))
      << constant;
}

}  // namespace
}  // namespace ztrain::tensor_parts_test
