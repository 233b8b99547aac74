#include "engine/op_hashes.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "base/shape.hpp"
#include "engine/kernel_table.hpp"

namespace ztrain::engine {

OpHashes::OpHashes(const program::Program& program, const JobMemory& memory)
    : program_(program),
      issues_(program),
      memory_(memory),
      given_(at(issues_.size())),
      made_(at(issues_.size())) {}

void OpHashes::look_before(program::OpId issue) {
  const program::Op& op = issues_.op(issue);
  if (found_ || is_under_way(op)) return;
  const std::uint64_t given = hash_of(op.outputs, issue, hash_of(op.inputs, issue, 0));
  if (!second_) given_[at(issue)] = given;
  given_alike_ = given == given_[at(issue)];
}

void OpHashes::look_after(program::OpId issue) {
  const program::Op& op = issues_.op(issue);
  if (found_ || is_under_way(op)) return;
  const std::uint64_t made = hash_of(op.outputs, issue, 0);
  if (!second_)
    made_[at(issue)] = made;
  else if (given_alike_ && made != made_[at(issue)])
    found_ = {issue, describe_issue(program_, issue)};
}

/// When it was issued: what it brings is looked at before the first op that uses it.
bool OpHashes::is_under_way(const program::Op& op) const {
  const auto on_nvme = [&](program::TensorId id) {
    return program_.tensor(program_.storage(id)).tier == program::Tier::nvme;
  };
  return op.communicates() || std::ranges::any_of(op.inputs, on_nvme) ||
         std::ranges::any_of(op.outputs, on_nvme);
}

std::uint64_t OpHashes::hash_of(const std::vector<program::TensorId>& tensors, program::OpId issue,
                                std::uint64_t hash) const {
  for (const program::TensorId id : tensors) {
    const program::Tensor& tensor = program_.tensor(id);
    const program::Tensor& storage = program_.tensor(program_.storage(id));
    if (storage.category != program::Category::workspace)
      hash = hash_bytes(
          memory_.address(program_, id) + program_.moved_by(id, issues_.id(issue), issues_.time(issue)),
          at(tensor.bytes()), hash);
  }
  return hash;
}

}  // namespace ztrain::engine
