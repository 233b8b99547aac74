#pragma once
// Looks at what each op of a step has computed, for the first that is not finite.

#include <optional>
#include <string>

#include "engine/job_memory.hpp"
#include "engine/op_observer.hpp"

namespace ztrain::engine {

struct NotFinite {
  program::OpId issue = -1;
  std::string
      text;  ///< "forward model.layers.1 micro 0: linear model.layers.1.mlp.up_proj (op 37): its result ..."
};

class Inspector : public OpObserver {
 public:
  Inspector(const program::Program& program, const JobMemory& memory);

  // Nothing once something was found.
  void look_before(program::OpId issue) override;
  void look_after(program::OpId issue) override;
  const std::optional<NotFinite>& found() const { return found_; }

 private:
  bool look(program::OpId issue, program::TensorId tensor, const char* what);

  program::Program step_;  ///< with each of its ops as often as it is issued
  const JobMemory& memory_;
  std::optional<NotFinite> found_;
};

}  // namespace ztrain::engine
