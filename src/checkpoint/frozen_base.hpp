#pragma once
// Weights that a run does not train and that its checkpoints therefore do not hold: where they were read
// from, how, and the hashes of their values. A run that goes on, an export and generation read them again
// from there, and compare the hashes.

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/dtype.hpp"
#include "base/weight_form.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/value_hashes.hpp"

namespace ztrain::checkpoint {

/// Rows that embedding and head get behind those of the folder.
struct AddedRows {
  std::int64_t count = 0;
  bool drawn =
      false;  ///< drawn with standard deviation `std` from `seed`; else the mean of the folder's rows
  double std = 0;
  std::uint64_t seed = 0;
};

/// Parameters that are kept in 4 or 8 bits.
struct QuantizedNames {
  WeightForm form{};
  std::set<std::string> names{};
};

struct FrozenValues {
  DType dtype = DType::f32;  ///< dtype to which the run has rounded them
  std::uint64_t hash = 0;    ///< hash of ValueHashes
  bool operator==(const FrozenValues&) const = default;
};

struct FrozenBase {
  std::string from;       ///< folder that they were read from; "": they were drawn from `seed`
  std::int64_t seed = 0;  ///< run.seed
  std::map<std::string, FrozenValues> parameters = {};
  /// Facts of the deck with which the folder is read: model.family, and members of ImportOptions
  /// (hf/import.hpp).
  std::string family = {};
  bool leaves_head = false;
  AddedRows added = {};
  std::string base = {};
  /// Parameters of which the run kept codes; their values are what these say.
  QuantizedNames quantized = {};
};

/// Returns the member "frozen" of a checkpoint's metadata, and the reverse. Nothing if a checkpoint holds all
/// of its weights. Throws Error naming the checkpoint for a damaged one.
nlohmann::json to_json(const FrozenBase& base);
std::optional<FrozenBase> frozen_base_of(const nlohmann::json& metadata, const std::string& checkpoint);

/// Returns one hash of all values, those of the parameters in the order of their names.
std::uint64_t hash_of(const FrozenBase& base);

/// Collective over the group. Sets FrozenBase::parameters to what all ranks have added up of those that
/// `wanted` says, on every rank.
void set_hashes(FrozenBase& base, const Group& world, std::span<const ParameterShape> parameters,
                const ValueHashes& hashes, const std::function<bool(const ParameterShape&)>& wanted);

/// Throws Error that names both folders unless `now` has the values that the checkpoint was trained beside.
/// instead: what to do, which begins with a verb.
void require_same_base(const std::string& checkpoint, const FrozenBase& saved, const FrozenBase& now,
                       const std::string& instead);
}  // namespace ztrain::checkpoint
