#pragma once
// Internal to checkpoint. Gives the embedding and the head of a model's folder rows that the folder lacks,
// for tokens that a run adds to the vocabulary.

#include <memory>

#include "checkpoint/hf/import.hpp"
#include "checkpoint/hf/weight_source.hpp"

namespace ztrain::checkpoint {

/// Returns the source with rows.count further rows in embedding and head. A new row is a function of the
/// folder, of the tensor's name and of the element alone, so all meshes have the same bits. The mean of the
/// old rows is summed in fp64 in the order of rows; the first read of a new row reads the whole tensor.
/// tied: the head has the rows of the embedding.
std::unique_ptr<WeightSource> with_added_rows(std::unique_ptr<WeightSource> source, const AddedRows& rows,
                                              bool tied);

}  // namespace ztrain::checkpoint
