// Files of experts: a tensor for each expert, all in one, transposed and interleaved, and in MXFP4. Ranks
// with slices read them, and write them back bit for bit.

#include <algorithm>
#include <cmath>

#include "config/families/families.hpp"
#include "tests/support/tensor_folders.hpp"

namespace ztrain::expert_files_test {
namespace {

using namespace test;

/// A layer's weights have more elements than an import or an export takes in one block, and blocks end within
/// experts. Widths are multiples of the blocks of MXFP4.
constexpr std::int64_t experts = 3, inner = 352, hidden = 1120;

enum : int { embedding, router, gate, gate_bias, up, up_bias, down, down_bias, norm };

std::vector<ParameterShape> parameters(int tensor) {
  const std::string m = "model.layers.10.mlp.", e = m + "experts.";
  return {{"model.embed_tokens.weight", {17, hidden}, {}, 0},
          {m + "gate.weight", {experts, hidden}, {}, 1},
          {e + "gate_proj.weight", {experts, inner, hidden}, uneven(1, inner, tensor), 1},
          {e + "gate_proj.bias", {experts, inner}, uneven(1, inner, tensor), 1},
          {e + "up_proj.weight", {experts, inner, hidden}, uneven(1, inner, tensor), 1},
          {e + "up_proj.bias", {experts, inner}, uneven(1, inner, tensor), 1},
          {e + "down_proj.weight", {experts, hidden, inner}, uneven(2, inner, tensor), 1},
          {e + "down_proj.bias", {experts, hidden}, uneven(0, experts, tensor), 1},
          {"model.norm.weight", {hidden}, {}, 2}};
}

config::Architecture architecture(std::vector<config::FileTensor> files) {
  config::Architecture a;
  a.files = std::move(files);
  return a;
}

/// Returns a tensor of this shape, whose elements are at(expert, row, column) of its last three dims.
template <class Function>
Tensor tensor(const Shape& shape, const Function& at) {
  Tensor t{shape};
  const std::int64_t count = elements(shape), columns = shape.back(),
                     rows = shape.size() > 1 ? shape[shape.size() - 2] : 1;
  t.values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    t.values.push_back(at(i / columns / rows, i / columns % rows, i % columns));
  return t;
}

/// Returns the value of an element of a parameter of experts. A bias has one column.
float value(int parameter, std::int64_t expert, std::int64_t row, std::int64_t column) {
  const std::int64_t rows = parameter < down ? inner : hidden, columns = parameter == down    ? inner
                                                                         : parameter % 2 == 0 ? hidden
                                                                                              : 1;
  return value_of(0, parameter, (expert * rows + row) * columns + column);
}

Tensors apart_tensors() {
  Tensors tensors;
  const auto all = parameters(1);
  for (int p = 0; p < static_cast<int>(all.size()); ++p) {
    const auto& parameter = all[static_cast<std::size_t>(p)];
    Tensor& t = tensors[parameter.name] = {parameter.shape};
    for (std::int64_t i = 0, end = elements(t.shape); i < end; ++i) t.values.push_back(value_of(0, p, i));
  }
  return tensors;
}

/// Returns the tensors without those of experts, whose weights alone or biases too.
Tensors dense_tensors(bool with_biases) {
  Tensors tensors = apart_tensors();
  std::erase_if(tensors, [&](const auto& t) {
    return contains(t.first, ".experts.") && (!with_biases || !t.first.ends_with(".bias"));
  });
  return tensors;
}

/// Returns the files of Qwen, or of Mixtral with its names.
Tensors tensors_of_experts(const std::string& block, const std::string& of_gate, const std::string& of_up,
                           const std::string& of_down) {
  Tensors tensors = dense_tensors(true);
  auto moved = tensors.extract("model.layers.10.mlp.gate.weight");
  moved.key() = "model.layers.10." + block + ".gate.weight";
  tensors.insert(std::move(moved));
  for (std::int64_t e = 0; e < experts; ++e)
    for (const auto& [name, parameter, shape] :
         {std::tuple(of_gate, +gate, Shape{inner, hidden}), std::tuple(of_up, +up, Shape{inner, hidden}),
          std::tuple(of_down, +down, Shape{hidden, inner})})
      tensors[fmt::format("model.layers.10.{}.experts.{}.{}.weight", block, e, name)] = tensor(
          shape, [&](std::int64_t, std::int64_t r, std::int64_t c) { return value(parameter, e, r, c); });
  return tensors;
}

Tensors qwen_tensors() {
  return tensors_of_experts("mlp", "gate_proj", "up_proj", "down_proj");
}
Tensors mixtral_tensors() {
  return tensors_of_experts("block_sparse_moe", "w1", "w3", "w2");
}

const std::string at_experts = "model.layers.10.mlp.experts.";

/// Returns the files that transformers 5 writes.
Tensors fused_tensors() {
  Tensors tensors = dense_tensors(true);
  tensors[at_experts + "gate_up_proj"] =
      tensor({experts, 2 * inner, hidden}, [](std::int64_t e, std::int64_t r, std::int64_t c) {
        return r < inner ? value(gate, e, r, c) : value(up, e, r - inner, c);
      });
  tensors[at_experts + "down_proj"] =
      tensor({experts, hidden, inner},
             [](std::int64_t e, std::int64_t r, std::int64_t c) { return value(down, e, r, c); });
  return tensors;
}

/// Returns an element of gate and up that take turns.
float gate_or_up(int of_gate, int of_up, std::int64_t expert, std::int64_t row, std::int64_t column) {
  return value(row % 2 == 0 ? of_gate : of_up, expert, row / 2, column);
}

Tensors gpt_oss_tensors() {
  Tensors tensors = dense_tensors(false);
  tensors[at_experts + "gate_up_proj"] =
      tensor({experts, hidden, 2 * inner},
             [](std::int64_t e, std::int64_t r, std::int64_t c) { return gate_or_up(gate, up, e, c, r); });
  tensors[at_experts + "gate_up_proj_bias"] = tensor(
      {experts, 2 * inner},
      [](std::int64_t, std::int64_t e, std::int64_t c) { return gate_or_up(gate_bias, up_bias, e, c, 0); });
  tensors[at_experts + "down_proj"] =
      tensor({experts, inner, hidden},
             [](std::int64_t e, std::int64_t r, std::int64_t c) { return value(down, e, c, r); });
  tensors[at_experts + "down_proj_bias"] =
      tensor({experts, hidden},
             [](std::int64_t, std::int64_t e, std::int64_t c) { return value(down_bias, e, c, 0); });
  return tensors;
}

class ExpertFiles : public TensorFolders {
 protected:
  ExpertFiles() : TensorFolders(parameters) {}
  config::Architecture qwen_ = architecture(config::families::expert_files()),
                       mixtral_ = architecture(config::families::mixtral_expert_files()),
                       gpt_oss_ = architecture(config::families::gpt_oss_expert_files());
};

TEST_F(ExpertFiles, ATensorForEachExpertIsReadAndWritten) {
  expect_export("qwen", qwen_, on_rank_0(qwen_tensors));
  expect_export("mixtral", mixtral_, on_rank_0(mixtral_tensors));
  expect_import(write("bare", without_base(on_rank_0(qwen_tensors))), qwen_);
}

TEST_F(ExpertFiles, FusedExpertsOrWholeParametersAreReadByAllFamilies) {
  const fs::path fused = write("fused", on_rank_0(fused_tensors)),
                 apart = write("apart", on_rank_0(apart_tensors));
  for (const config::Architecture* a : {&qwen_, &mixtral_}) {
    expect_import(fused, *a);
    expect_import(apart, *a);
  }
  expect_import(apart, gpt_oss_);
  expect_import(write("qwen", on_rank_0(qwen_tensors)), gpt_oss_);
}

TEST_F(ExpertFiles, TransposedAndInterleavedExpertsAreReadAndWritten) {
  expect_export("gpt_oss", gpt_oss_, on_rank_0(gpt_oss_tensors));
}

/// Codes and scales of MXFP4, and the values for which they stand.
struct Mxfp4 {
  Tensor blocks, scales, decoded;
};

/// `experts` matrices of rows of 32 * blocks elements. Codes and scales follow from the salt.
Mxfp4 mxfp4(std::int64_t rows, std::int64_t blocks, std::int64_t salt) {
  Mxfp4 made{{{experts, rows, blocks, 16}, {}, DType::u8}, {{experts, rows, blocks}, {}, DType::u8}, {}};
  made.decoded.shape = {experts, rows, 32 * blocks};
  for (std::int64_t block = 0; block < experts * rows * blocks; ++block) {
    const auto scale = static_cast<int>(120 + (block * 5 + salt) % 9);
    made.scales.values.push_back(static_cast<float>(scale));
    for (std::int64_t byte = 0; byte < 16; ++byte) {
      const auto both = static_cast<int>((block * 37 + byte * 11 + salt) % 256);
      made.blocks.values.push_back(static_cast<float>(both));
      for (const int code : {both % 16, both / 16}) {
        const int exponent = code % 8 / 2;
        const double magnitude =
            exponent == 0 ? code % 2 * 0.5 : std::ldexp(1 + code % 2 * 0.5, exponent - 1);
        made.decoded.values.push_back(
            static_cast<float>(std::ldexp(code < 8 ? magnitude : -magnitude, scale - 127)));
      }
    }
  }
  return made;
}

/// Returns every second row of each matrix, from the first or the second on.
Tensor half_of(const Tensor& t, std::int64_t first) {
  return tensor(
      {t.shape[0], t.shape[1] / 2, t.shape[2]}, [&](std::int64_t e, std::int64_t r, std::int64_t c) {
        return t.values[static_cast<std::size_t>((e * t.shape[1] + 2 * r + first) * t.shape[2] + c)];
      });
}

class Mxfp4Files : public ExpertFiles {
 protected:
  Mxfp4Files() {
    tensors_.erase(at_experts + "gate_up_proj");
    tensors_.erase(at_experts + "down_proj");
    for (const auto& [name, made] : {std::pair("gate_up_proj", &both_), std::pair("down_proj", &down_)}) {
      tensors_[at_experts + name + "_blocks"] = made->blocks;
      tensors_[at_experts + name + "_scales"] = made->scales;
    }
  }

  Mxfp4 both_ = mxfp4(2 * inner, hidden / 32, 3), down_ = mxfp4(hidden, inner / 32, 8);
  Tensors tensors_ = gpt_oss_tensors();
};

TEST_F(Mxfp4Files, TheyAreReadAsTheirValues) {
  Tensors plain = apart_tensors();
  plain[at_experts + "gate_proj.weight"] = half_of(both_.decoded, 0);
  plain[at_experts + "up_proj.weight"] = half_of(both_.decoded, 1);
  plain[at_experts + "down_proj.weight"] = down_.decoded;
  const fs::path folder = write("mxfp4", tensors_), values = write("values", plain);
  on_each_mesh([&](const Place& place, const MeshShape& mesh) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16})
      EXPECT_TRUE(imported(values, place, type, gpt_oss_) == imported(folder, place, type, gpt_oss_))
          << mesh.describe() << name_of(type);
  });
}

TEST_F(Mxfp4Files, WhatIsWrongWithThemIsNamed) {
  const auto error = [&](const std::string& name) {
    const fs::path folder = write(name, tensors_);
    std::string text;
    on_each_mesh([&](const Place& place, const MeshShape& mesh) {
      if (mesh[Axis::shard] == 1) text = error_of([&] { imported(folder, place, DType::f32, gpt_oss_); });
    });
    return text;
  };
  const auto expect = [&](const std::string& name, const std::string& expected) {
    const std::string text = error(name);
    EXPECT_TRUE(contains(text, expected)) << text;
  };
  Tensor& scales = tensors_.at(at_experts + "down_proj_scales");
  // Every rank of the mesh without shards has blocks of this scale, which stands for NaN.
  std::ranges::fill(scales.values, 255.0F);
  expect("nan", "tensor " + at_experts + "down_proj_blocks holds NaN or infinity");
  scales.values.resize(scales.values.size() / 11 * 10);
  scales.shape.back() = 10;
  expect("short", "down_proj_scales [3, 1120, 10] are not MXFP4");
  tensors_.erase(at_experts + "down_proj_scales");
  expect("none",
         "tensor " + at_experts + "down_proj_blocks has no " + at_experts + "down_proj_scales beside");
}

TEST_F(ExpertFiles, ExpertsThatAreMissingOrTooManyAreNamed) {
  Tensors tensors = qwen_tensors();
  tensors.erase(at_experts + "1.up_proj.weight");
  tensors[at_experts + "3.down_proj.weight"] = tensors.at(at_experts + "2.down_proj.weight");
  std::swap(tensors.at(at_experts + "0.gate_proj.weight").shape[0],
            tensors.at(at_experts + "0.gate_proj.weight").shape[1]);
  const std::string text = import_error(write("wrong", tensors), qwen_);
  for (const std::string& expected : {"1 tensor is missing:\n    " + at_experts + "1.up_proj.weight\n",
                                      "1 tensor is unexpected:\n    " + at_experts + "3.down_proj.weight\n",
                                      "1 tensor is of another shape:\n    " + at_experts +
                                          "0.gate_proj.weight [1120, 352] (the model's is [352, 1120])"})
    EXPECT_TRUE(contains(text, expected)) << text;

  tensors = fused_tensors();
  Tensor& down_proj = tensors.at(at_experts + "down_proj");
  down_proj.shape[0] = 2;
  down_proj.values.resize(static_cast<std::size_t>(elements(down_proj.shape)));
  const std::string fused = import_error(write("fewer", tensors), mixtral_);
  EXPECT_TRUE(contains(fused, "1 tensor is of another shape:\n    " + at_experts +
                                  "down_proj [2, 1120, 352] (the model's is [3, 1120, 352])"))
      << fused;
}

TEST_F(ExpertFiles, FilesThatAreMissingOrTruncatedAreNamed) {
  const fs::path folder = write("truncated", on_rank_0(qwen_tensors));
  if (session().rank() == 0) fs::resize_file(folder / single_safetensors, 1'000'000);
  session().barrier();
  const std::string truncated = import_error(folder, qwen_);
  EXPECT_TRUE(contains(truncated, (folder / single_safetensors).string())) << truncated;

  const fs::path indexed = write("indexed", on_rank_0(qwen_tensors));
  if (session().rank() == 0) {
    std::map<std::string, std::string> files;
    for (const auto& [name, t] : qwen_tensors())
      files[name] = contains(name, ".experts.2.") ? "model-00002-of-00002.safetensors" : "here.safetensors";
    fs::rename(indexed / single_safetensors, indexed / "here.safetensors");
    std::ofstream(indexed / safetensors_index_name) << safetensors_index(files, 0);
  }
  session().barrier();
  const std::string missing = import_error(indexed, qwen_);
  EXPECT_TRUE(contains(missing, "weights are in is not there:\n  model-00002-of-00002.safetensors"))
      << missing;
}

}  // namespace
}  // namespace ztrain::expert_files_test
