#pragma once
// Internal to checkpoint. Gives the embedding and the head of a model's folder rows that the folder lacks,
// for tokens that a run adds to the vocabulary.

#include <map>
#include <memory>
#include <string>

#include "checkpoint/hf/import.hpp"
#include "checkpoint/hf/weight_source.hpp"

namespace ztrain::checkpoint {

/// Returns the source with rows.count further rows in embedding and head. A new row is a function of the
/// folder, of the parameter's name and of the element alone, so all meshes have the same bits. The mean of
/// the old rows is summed in fp64 in the order of rows; the first read of a new row reads the whole tensor.
/// parameters: by name in the folder, those that get rows; a tied head has the embedding's name.
std::unique_ptr<WeightSource> with_added_rows(std::unique_ptr<WeightSource> source, const AddedRows& rows,
                                              std::map<std::string, std::string> parameters);

}  // namespace ztrain::checkpoint
