#pragma once
// The datasets of a checkpoint's shard files, as planned and as written.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "checkpoint/format/format.hpp"
#include "checkpoint/save_plan.hpp"

namespace ztrain::test {

/// By file and name: dtype and number of items.
using Datasets = std::map<std::pair<std::string, std::string>, std::pair<DType, std::int64_t>>;

inline Datasets datasets_of(const checkpoint::SavePlan& plan) {
  Datasets found;
  for (const auto& file : plan.files)
    for (const auto& dataset : file.datasets)
      found[{file.name, dataset.name}] = {dataset.dtype, dataset.items};
  return found;
}

inline Datasets datasets_in(const std::filesystem::path& folder) {
  const checkpoint::Index index = checkpoint::read_index(folder / checkpoint::index_name);
  Datasets found;
  for (const checkpoint::PieceRow& row : index.pieces) {
    const std::string& state = index.catalog.states[static_cast<std::size_t>(row.state)].name;
    auto& [dtype, items] =
        found[{index.files[static_cast<std::size_t>(row.file)].name, checkpoint::dataset_name(state, row)}];
    dtype = row.type();
    items = std::max(items, row.dataset_begin + row.count);
  }
  return found;
}

/// By file: number of pieces.
using Pieces = std::map<std::string, std::int64_t>;

inline Pieces pieces_of(const checkpoint::SavePlan& plan) {
  Pieces found;
  for (const auto& file : plan.files) found[file.name] = file.pieces;
  return found;
}

inline Pieces pieces_in(const std::filesystem::path& folder) {
  const checkpoint::Index index = checkpoint::read_index(folder / checkpoint::index_name);
  Pieces found;
  for (const checkpoint::PieceRow& row : index.pieces)
    ++found[index.files[static_cast<std::size_t>(row.file)].name];
  return found;
}

}  // namespace ztrain::test
