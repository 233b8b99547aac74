#pragma once
// Folders of safetensors files that ranks on several meshes read and write, for tests of the forms in which
// files keep parameters.

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "checkpoint/hf/export.hpp"
#include "checkpoint/hf/import.hpp"
#include "files/safetensors.hpp"
#include "tests/support/checkpoint_ranks.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::test {

/// Shape and values of a tensor of a file.
struct Tensor {
  Shape shape{};
  std::vector<float> values{};
  DType type = DType::f32;  ///< fp32 or uint8
  bool operator==(const Tensor&) const = default;
};
using Tensors = std::map<std::string, Tensor>;

/// Returns the tensors without the first part of their names.
inline Tensors without_base(const Tensors& tensors) {
  Tensors result;
  for (const auto& [name, t] : tensors) result[name.substr(name.find('.') + 1)] = t;
  return result;
}

/// Returns the bytes of a tensor in a file.
inline std::string bytes_of(const Tensor& t) {
  if (t.type == DType::u8) return {t.values.begin(), t.values.end()};
  return {reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float)};
}

/// Parameters of a model, cut into this many parts for the `tensor` axis.
using ParametersOf = std::vector<ParameterShape> (*)(int tensor);

class TensorFolders : public CheckpointOfRanks {
 protected:
  explicit TensorFolders(ParametersOf parameters) : parameters_(parameters) {}

  /// Returns what the function makes on rank 0, and nothing on ranks that neither write nor compare tensors.
  static Tensors on_rank_0(Tensors (*make)()) { return session().rank() == 0 ? make() : Tensors(); }

  /// Rank 0 writes a folder. Collective.
  fs::path write(const std::string& name, const Tensors& tensors) const {
    const fs::path folder = folder_ / name;
    if (session().rank() == 0) {
      fs::create_directories(folder);
      std::ofstream(folder / "config.json") << "{}";
      std::vector<SafeTensor> rows;
      std::string data;
      for (const auto& [tensor, t] : tensors) {
        const std::string bytes = bytes_of(t);
        rows.push_back({tensor, safetensors_dtype(t.type), t.type, t.shape, 0, std::ssize(bytes)});
        data += bytes;
      }
      std::ofstream(folder / single_safetensors, std::ios::binary) << safetensors_header(rows) << data;
    }
    session().barrier();
    return folder;
  }

  /// Returns the fp32 tensors of all files of a folder.
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
  void on_each_mesh(const Function& function) const {
    for (int tensor = 1; tensor <= ranks(); ++tensor) {
      if (ranks() % tensor != 0) continue;
      const MeshShape mesh = mesh_of(1, ranks() / tensor, tensor);
      const Coordinate at(mesh, session().rank());
      const Layout layout(parameters_(tensor), {3, {mesh[Axis::shard]}}, at);
      function(Place{&layout, at}, mesh);
    }
  }

  static Shards imported(const fs::path& folder, const Place& place, DType type,
                         const config::Architecture& architecture) {
    Shards found(place, {{"model", type}});
    found.clear(std::byte{0xee});
    checkpoint::import_weights(folder, place, found.states(), {.architecture = &architecture});
    return found;
  }

  void expect_import(const fs::path& folder, const config::Architecture& architecture) const {
    on_each_mesh([&](const Place& place, const MeshShape& mesh) {
      for (const DType type : {DType::f32, DType::bf16})
        EXPECT_TRUE(filled(place, StateKinds{{"model", type}}) == imported(folder, place, type, architecture))
            << folder << mesh.describe();
    });
  }

  /// The tensors are those of rank 0, which compares the files.
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
        EXPECT_TRUE(session().rank() != 0 || read(to) == tensors) << to << mesh.describe();
        if (number == 1) expect_import(to, architecture);
      }
      session().barrier();
      if (session().rank() == 0) fs::remove_all(folder_ / fmt::format("step_{}", number));
      session().barrier();
    });
  }

  std::string import_error(const fs::path& folder, const config::Architecture& architecture) const {
    return error_of(
        [&] { checkpoint::require_weights(folder, parameters_(1), {.architecture = &architecture}); });
  }

 private:
  ParametersOf parameters_;
};

}  // namespace ztrain::test
