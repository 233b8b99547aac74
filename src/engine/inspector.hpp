#pragma once
// Looks at what each op of a step has computed, for the first that is not finite.

#include <optional>

#include "engine/job_memory.hpp"
#include "engine/op_observer.hpp"

namespace ztrain::engine {

class Inspector : public OpObserver {
 public:
  Inspector(const program::Program& program, const JobMemory& memory);

  // Nothing once something was found.
  void look_before(program::OpId issue) override;
  void look_after(program::OpId issue) override;
  const std::optional<FoundOp>& found() const { return found_; }

 private:
  void look(program::OpId issue, const std::vector<program::TensorId>& tensors, const char* what);

  program::Program step_;  ///< with each of its ops as often as it is issued
  const JobMemory& memory_;
  std::optional<FoundOp> found_;
};

}  // namespace ztrain::engine
