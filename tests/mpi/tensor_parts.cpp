// Files that fuse, transpose and rename parameters, read by ranks with slices and written back bit for bit.

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "checkpoint/hf/export.hpp"
#include "checkpoint/hf/import.hpp"
#include "files/safetensors.hpp"
#include "tests/support/checkpoint_ranks.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::tensor_parts_test {
namespace {

using namespace test;

/// Tensors of a file: shapes and values by name.
struct Tensor {
  Shape shape;
  std::vector<float> values;
  bool operator==(const Tensor&) const = default;
};
using Tensors = std::map<std::string, Tensor>;

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

/// Returns the tensors without the first part of their names.
Tensors without_base(const Tensors& tensors) {
  Tensors result;
  for (const auto& [name, t] : tensors) result[name.substr(name.find('.') + 1)] = t;
  return result;
}

class TensorParts : public CheckpointOfRanks {
 protected:
  /// Rank 0 writes a folder. Collective.
  fs::path write(const std::string& name, const Tensors& tensors) const {
    const fs::path folder = folder_ / name;
    if (session().rank() == 0) {
      fs::create_directories(folder);
      std::ofstream(folder / "config.json") << "{}";
      std::vector<SafeTensor> rows;
      std::string data;
      for (const auto& [tensor, t] : tensors) {
        const auto bytes = static_cast<std::int64_t>(t.values.size() * sizeof(float));
        rows.push_back({tensor, "F32", DType::f32, t.shape, 0, bytes});
        data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float));
      }
      std::ofstream(folder / single_safetensors, std::ios::binary) << safetensors_header(rows) << data;
    }
    session().barrier();
    return folder;
  }

  static Tensors read(const fs::path& folder) {
    Tensors tensors;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto file = PosixFile::open_to_read(entry.path());
      for (const SafeTensor& t : read_safetensors(file)) {
        Tensor& tensor = tensors[t.name];
        tensor.shape = t.shape;
        tensor.values.resize(static_cast<std::size_t>(t.bytes) / sizeof(float));
        file.read_at(tensor.values.data(), t.bytes, t.begin);
      }
    }
    return tensors;
  }

  /// Calls the function with this rank's place on each mesh of tensor and shard ranks.
  template <class Function>
  static void on_each_mesh(const Function& function) {
    for (int tensor = 1; tensor <= ranks(); ++tensor) {
      if (ranks() % tensor != 0) continue;
      const MeshShape mesh = mesh_of(1, ranks() / tensor, tensor);
      const Coordinate at(mesh, session().rank());
      const Layout layout(parameters(tensor), {3, {mesh[Axis::shard]}}, at[Axis::tensor]);
      function(Place{&layout, at}, mesh);
    }
  }

  static void expect_import(const fs::path& folder, const config::Architecture& architecture) {
    on_each_mesh([&](const Place& place, const MeshShape& mesh) {
      for (const DType type : {DType::f32, DType::bf16}) {
        Shards found(place, {{"model", type}});
        found.clear(std::byte{0xee});
        checkpoint::import_weights(folder, place, found.states(), {.architecture = &architecture});
        EXPECT_TRUE(filled(place, StateKinds{{"model", type}}) == found) << folder << mesh.describe();
      }
    });
  }

  void expect_export(const std::string& name, const config::Architecture& architecture,
                     const Tensors& tensors) {
    int number = 0;
    on_each_mesh([&](const Place& place, const MeshShape& mesh) {
      Shards shards = filled(place, StateKinds{{"model", DType::f32}});
      checkpoint::save(folder_, ++number, place, shards.states(), {{"step", number}}, {});
      for (const std::int64_t most : {std::int64_t{1} << 40, std::int64_t{3000}}) {
        const fs::path to = folder_ / fmt::format("{}_{}_{}", name, number, most);
        checkpoint::export_weights(
            folder_ / fmt::format("step_{}", number), to, {{{"config.json", "{}"}}},
            {.dtype = DType::f32, .max_shard_bytes = most, .architecture = &architecture});
        EXPECT_TRUE(read(to) == tensors) << to << mesh.describe();
        if (number == 1) expect_import(to, architecture);
      }
      session().barrier();
      if (session().rank() == 0) fs::remove_all(folder_ / fmt::format("step_{}", number));
      session().barrier();
    });
  }

  static std::string import_error(const fs::path& folder, const config::Architecture& architecture) {
    return error_of(
        [&] { checkpoint::require_weights(folder, parameters(1), {.architecture = &architecture}); });
  }
};

TEST_F(TensorParts, FusedTensorsOrTheirPartsAreRead) {
  expect_import(write("fused", fused_tensors()), fused());
  expect_import(write("apart", apart_tensors()), fused());
  expect_import(write("bare", without_base(fused_tensors())), fused());
}

TEST_F(TensorParts, TransposedTensorsAreReadWithoutBuffers) {
  Tensors tensors = transposed_tensors();
  tensors["transformer.h.10.attn.bias"] = {{2, 2}, {1, 0, 1, 1}};
  expect_import(write("transposed", tensors), transposed());
  expect_import(write("bare", without_base(tensors)), transposed());
}

TEST_F(TensorParts, ExportsHaveTheFormOfTheArchitecture) {
  expect_export("fused", fused(), fused_tensors());
  expect_export("transposed", transposed(), transposed_tensors());
}

TEST_F(TensorParts, MessagesNameTensorsOfTheFile) {
  Tensors tensors = fused_tensors();
  tensors.erase("model.layers.10.self_attn.qkv_proj.weight");
  tensors["model.layers.10.self_attn.qkv_proj.bias"] = stack({q_bias, k_bias});
  tensors["model.layers.10.self_attn.other"] = stack({norm});
  const std::string text = import_error(write("wrong", tensors), fused());
  EXPECT_TRUE(contains(text, "1 missing: model.layers.10.self_attn.qkv_proj.weight\n")) << text;
  EXPECT_TRUE(contains(text, "1 unexpected: model.layers.10.self_attn.other\n")) << text;
  EXPECT_TRUE(contains(
      text, "1 of another shape: model.layers.10.self_attn.qkv_proj.bias [1020] (the model's is [1032])"))
      << text;
  tensors = transposed_tensors();
  tensors["transformer.h.10.act.beta"].values = {0.25F};
  const std::string constant = import_error(write("constant", tensors), transposed());
  EXPECT_TRUE(contains(constant, "tensor transformer.h.10.act.beta is 0.25, and ztrain computes"))
      << constant;
}

}  // namespace
}  // namespace ztrain::tensor_parts_test
