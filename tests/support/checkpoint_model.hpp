#pragma once
// A small model with awkward sizes whose every element has a value that follows from its meaning, for
// checkpoint tests. tests/support/read_checkpoint.py knows the same values.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::test {

using checkpoint::Place;
using checkpoint::StateShard;

struct StateKind {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t granule = 1;
  bool of_each_copy = false;
};
using StateKinds = std::vector<StateKind>;

/// AdamW with moments in fp32.
inline StateKinds plain_states(DType model_dtype) {
  return {{"model", model_dtype}, {"optimizer/exp_avg"}, {"optimizer/exp_avg_sq"}};
}

/// Moments of one code per element, and one scale per block of 256.
inline StateKinds quantised_states(DType model_dtype, std::int64_t block = 256) {
  return {{"model", model_dtype},
          {"optimizer/exp_avg", DType::u8},
          {"optimizer/exp_avg.absmax", DType::f32, block},
          {"optimizer/exp_avg_sq", DType::u8},
          {"optimizer/exp_avg_sq.absmax", DType::f32, block}};
}

/// Of an item. 1 to 250: exact in bf16, fp16 and uint8, and never the zero of a hole.
inline float value_of(std::int64_t state, std::int64_t parameter, std::int64_t index, std::int64_t salt = 0) {
  return static_cast<float>((state * 89 + parameter * 31 + index * 7 + salt) % 250 + 1);
}

/// Parts that differ in size where they are several.
inline TensorSlice uneven(int dim, std::int64_t size, int parts) {
  TensorSlice slice{dim, parts};
  for (std::int64_t i = 0; i <= parts && parts > 1; ++i) slice.begins.push_back(ceil_div(i * size, parts));
  return slice;
}

/// Slices divide by 1, 2, 3 and 4, but for those of the feed-forward. `head` is the number of rows of the
/// largest parameter.
inline std::vector<ParameterShape> awkward_parameters(int tensor, std::int64_t head = 1001) {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", {97, 13}, {}, 0, true},
          {layer + "self_attn.q_proj.weight", {24, 35}, {0, tensor}, 1, true},
          {layer + "self_attn.o_proj.weight", {35, 24}, {1, tensor}, 1, true},
          {layer + "input_layernorm.weight", {35}, {}, 1, false},
          {layer + "conv.weight", {5, 12, 7}, {1, tensor}, 1, true},
          {layer + "mlp.up_proj.weight", {23, 97}, uneven(0, 23, tensor), 1, true},
          {layer + "mlp.down_proj.weight", {97, 23}, uneven(1, 23, tensor), 1, true},
          {"model.norm.weight", {13}, {}, 2, false},
          {"lm_head.weight", {head, 13}, {}, 2, true}};
}

inline MeshShape mesh_of(int replicate, int shard, int tensor) {
  MeshShape mesh;
  mesh[Axis::replicate] = replicate;
  mesh[Axis::shard] = shard;
  mesh[Axis::tensor] = tensor;
  return mesh;
}

/// As if its index.h5 had been saved with what a test has put there.
inline void reseal(const std::filesystem::path& checkpoint) {
  checkpoint::write_metadata_file(checkpoint,
                                  nlohmann::json::parse(std::ifstream(checkpoint / "metadata.json")));
}

/// One rank's shards of all states and the memory behind them.
class Shards {
 public:
  Shards(const Place& place, const StateKinds& kinds) : place_(place) {
    for (const StateKind& kind : kinds)
      for (const FlatUnit& unit : place.layout->units()) {
        const std::int64_t items = unit.shard_elements / kind.granule;
        memory_.emplace_back(static_cast<std::size_t>(items * size_of(kind.dtype)));
        states_.push_back({kind.name, unit.unit, kind.dtype, memory_.back().data(), kind.granule, nullptr,
                           kind.of_each_copy});
      }
  }
  Shards(const Place& place, DType model_dtype) : Shards(place, plain_states(model_dtype)) {}

  /// Every item its value, of each copy another where the state is such; padding zero.
  void fill(std::int64_t salt = 0) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const StateShard& s = states_[i];
      clear(i, std::byte{0});
      const FlatUnit& unit = place_.layout->unit(s.unit);
      const std::int64_t begin = unit.shard_begin(place_.at);
      const std::int64_t state = static_cast<std::int64_t>(i) / std::ssize(place_.layout->units());
      for (const Piece& piece : place_.layout->pieces(s.unit, place_.at)) {
        const TensorSlice& slice = place_.layout->parameters()[at(piece.parameter)].slice;
        const int copy = s.of_each_copy ? place_.at.index_in(values_over(unit.shard_axes, slice)) : 0;
        s.granule == 1 ? fill_elements(s, state, piece, begin, salt + 13 * copy)
                       : fill_blocks(s, state, piece, begin, salt + 13 * copy);
      }
    }
  }

  void clear(std::byte with) {
    for (std::size_t i = 0; i < states_.size(); ++i) clear(i, with);
  }

  /// Sets the shards of one state, or of all that are not of each copy.
  void clear(std::byte with, const std::string& state) {
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (state.empty() ? !states_[i].of_each_copy : states_[i].state == state) clear(i, with);
  }

  std::vector<StateShard>& states() { return states_; }
  bool operator==(const Shards& other) const { return memory_ == other.memory_; }

 private:
  void clear(std::size_t i, std::byte with) { std::fill(memory_[i].begin(), memory_[i].end(), with); }

  void fill_elements(const StateShard& s, std::int64_t state, const Piece& piece, std::int64_t begin,
                     std::int64_t salt) const {
    const TensorSlice& slice = place_.layout->parameters()[at(piece.parameter)].slice;
    for (const LogicalRun& run : place_.layout->logical_runs(piece.parameter, part_of(slice, place_.at),
                                                             piece.slice_begin, piece.count))
      for (std::int64_t k = 0; k < run.count; ++k)
        put(s, piece.flat_begin - begin + run.slice_begin - piece.slice_begin + k,
            value_of(state, piece.parameter, run.logical_begin + k, salt));
  }

  /// Blocks are numbered through all slices of their parameter.
  void fill_blocks(const StateShard& s, std::int64_t state, const Piece& piece, std::int64_t begin,
                   std::int64_t salt) const {
    const ParameterShape& parameter = place_.layout->parameters()[static_cast<std::size_t>(piece.parameter)];
    std::int64_t before = 0;
    for (int slice = 0; slice < part_of(parameter.slice, place_.at); ++slice)
      before += ceil_div(elements(parameter.slice.part_of(parameter.shape, slice)), s.granule);
    for (std::int64_t k = 0; k * s.granule < piece.count; ++k)
      put(s, (piece.flat_begin - begin) / s.granule + k,
          value_of(state, piece.parameter, before + piece.slice_begin / s.granule + k, salt));
  }

  static void put(const StateShard& s, std::int64_t at, float value) {
    const std::uint16_t half = s.dtype == DType::f16 ? f16(value).bits : bf16(value).bits;
    if (s.dtype == DType::f32) {
      std::memcpy(s.data + at * 4, &value, 4);
    } else if (s.dtype == DType::u8) {
      s.data[at] = static_cast<std::byte>(value);
    } else {
      std::memcpy(s.data + at * 2, &half, 2);
    }
  }

  Place place_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<StateShard> states_;
};

/// Shards of one place, filled.
inline Shards filled(const Place& place, const StateKinds& kinds, std::int64_t salt = 0) {
  Shards shards(place, kinds);
  shards.fill(salt);
  return shards;
}
inline Shards filled(const Place& place, DType model_dtype, std::int64_t salt = 0) {
  return filled(place, plain_states(model_dtype), salt);
}

/// The same shards as they come out of a checkpoint.
inline Shards loaded(const std::filesystem::path& path, const Place& place, const StateKinds& kinds,
                     const checkpoint::LoadOptions& options = {}) {
  Shards shards(place, kinds);
  shards.clear(std::byte{0xee});
  checkpoint::load(path, place, shards.states(), options);
  return shards;
}
inline Shards loaded(const std::filesystem::path& path, const Place& place, DType model_dtype,
                     bool verify = true) {
  return loaded(path, place, plain_states(model_dtype), {.verify = verify});
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Exit status of a shell command.
inline int run(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// An interpreter that has h5py, or "".
inline std::string python_with_h5py() {
  for (const char* python : {"/usr/bin/python3", "python3"})
    if (run(std::string(python) + " -c 'import h5py' 2>/dev/null") == 0) return python;
  return "";
}

/// A new empty folder under the system's temporary one, removed with its content.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ztrain-checkpoint-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr, "cannot make {}", name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ztrain::test
