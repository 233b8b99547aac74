#include "engine/op_hashes.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "base/index.hpp"
#include "program/ir/repeat.hpp"

namespace ztrain::engine {

OpHashes::OpHashes(const program::Program& program, const JobMemory& memory)
    : step_(unrolled(program)), memory_(memory), given_(step_.ops.size()), made_(step_.ops.size()) {}

void OpHashes::look_before(program::OpId issue) {
  const program::Op& op = step_.op(issue);
  if (found_ || is_under_way(op)) return;
  const std::uint64_t given = hash_of(op.outputs, hash_of(op.inputs, 0));
  if (!second_) given_[at(issue)] = given;
  given_alike_ = given == given_[at(issue)];
}

void OpHashes::look_after(program::OpId issue) {
  const program::Op& op = step_.op(issue);
  if (found_ || is_under_way(op)) return;
  const std::uint64_t made = hash_of(op.outputs, 0);
  if (!second_)
    made_[at(issue)] = made;
  else if (given_alike_ && made != made_[at(issue)])
    found_ = {issue, describe(step_, issue)};
}

/// When it was issued: what it brings is looked at before the first op that uses it.
bool OpHashes::is_under_way(const program::Op& op) const {
  const auto on_nvme = [&](program::TensorId id) {
    return step_.tensor(step_.storage(id)).tier == program::Tier::nvme;
  };
  return op.communicates() || std::ranges::any_of(op.inputs, on_nvme) ||
         std::ranges::any_of(op.outputs, on_nvme);
}

std::uint64_t OpHashes::hash_of(const std::vector<program::TensorId>& tensors, std::uint64_t hash) const {
  for (const program::TensorId id : tensors) {
    const program::Tensor& tensor = step_.tensor(id);
    const program::Tensor& storage = step_.tensor(step_.storage(id));
    if (storage.category != program::Category::workspace)
      hash = hash_bytes(memory_.address(step_, id), at(tensor.bytes()), hash);
  }
  return hash;
}

}  // namespace ztrain::engine
