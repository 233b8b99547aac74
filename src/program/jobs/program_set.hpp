#pragma once
// The Programs of a job. They share one persistent region, at the same addresses, and one transient region as
// large as the largest needs.

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

// Names of the Programs that there are.
inline constexpr std::string_view load_name = "load", train_name = "train step",
                                  warm_up_name = "train step, warm-up",
                                  all_rows_name = "train step, all rows", evaluation_name = "evaluation",
                                  prefill_name = "prefill", decode_name = "decode";

/// What Programs may have run last when one starts. "": none, what is given is there and nothing else.
using Successions = std::vector<std::string_view>;

class ProgramSet {
 public:
  /// The first one added derives copies from what is given; it may run at any time.
  void add(Program program, Successions after);

  const Program& at(std::string_view name) const;
  /// Null where there is none.
  const Program* find(std::string_view name) const;
  Program& at(std::string_view name);
  std::size_t index_of(std::string_view name) const;
  const Successions& after(std::size_t i) const { return after_[i]; }

  /// In the order in which they were added. They live until the next one is added.
  std::vector<const Program*> all() const;
  /// The Programs themselves, of a set that is of no use any more.
  std::vector<Program> take() { return std::move(programs_); }

 private:
  std::vector<Program> programs_;
  std::vector<Successions> after_;
};

/// Watches over what runs one after another: what the set does not allow was not proven.
class Succession {
 public:
  /// programs outlives it.
  explicit Succession(const ProgramSet& programs) : programs_(&programs) {}
  /// This Program comes next. Throws Error where it may not.
  void start(std::string_view name);
  /// The state was drawn or read: what was derived from it before is out of date.
  void restart() { last_ = ""; }

 private:
  const ProgramSet* programs_;
  std::string_view last_ = "";
};

/// Proves the joint graph of every Program (verify_no_deadlock): programs[i] are those of the ranks in
/// classes[i], in one order.
void verify_together(const std::vector<std::vector<const Program*>>& programs,
                     const std::vector<std::vector<int>>& classes);

/// Proves that whatever Programs run one after another, as the set allows, no one reads what is not there: of
/// the persistent tensors those that are given (by whoever initialises, reads checkpoints and feeds inputs),
/// and those that Programs before it wrote; and that a copy is not used when what the first Program derives
/// it from has changed since. Throws Error naming the Programs and the tensor.
void verify_successions(const ProgramSet& programs, const std::vector<TensorId>& given);

}  // namespace ztrain::program
