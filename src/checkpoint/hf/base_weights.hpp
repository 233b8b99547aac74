#pragma once
// Internal to checkpoint, but for the comparison. Reads the frozen weights that a checkpoint does not hold
// (FrozenBase) from where they are.

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/format/format.hpp"
#include "checkpoint/frozen_base.hpp"
#include "checkpoint/hf/import.hpp"
#include "checkpoint/hf/weight_source.hpp"
#include "checkpoint/rank_group.hpp"

namespace ztrain::checkpoint {

/// Collective over the group. Throws Error that names both folders unless what an import has read of
/// a checkpoint's base is what it was trained beside.
void require_same_base(const Group& world, const std::string& checkpoint,
                       std::span<const ParameterShape> parameters, const BaseRead& read);
/// Collective over the group. Reads the base of a checkpoint, shared among the ranks, and does the same.
/// given: as for open_base.
void require_same_base(const Group& world, const std::string& checkpoint, const std::string& given);

/// Returns hashes that start from nothing, for an import from a checkpoint that lacks its base; nothing for
/// other checkpoints. given: as for open_base.
std::optional<BaseRead> base_to_read(const std::filesystem::path& checkpoint,
                                     std::span<const ParameterShape> parameters, const std::string& given);

/// Opens the weights that a checkpoint does not hold, by the names of the parameters. Reading rounds them as
/// the run did. given: another folder of the same weights; "": that which the run read. Returns null if the
/// checkpoint holds all. Throws Error that names the folder if it is not there.
std::unique_ptr<WeightSource> open_base(const std::filesystem::path& checkpoint, const Catalog& catalog,
                                        const std::string& given);

}  // namespace ztrain::checkpoint
