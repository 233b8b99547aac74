#pragma once
// Steps of many micro-batches: those in the middle are compiled once and issued many times.
//
// A step of many micro-batches is compiled as one of a few. The schedule states which turns of it are the
// body (schedules/middle.hpp); those of the iteration behind it are its copy. Where both do the same on the
// same addresses, after the same ops counted from themselves, the body stands for what is left out
// (Repeat::times). In a pipeline, what is kept from a forward to the backward of a later iteration has a ring
// of addresses (Repeat::rings), and before the body so many iterations are identical to it (Repeat::warm_up)
// that all which is alive in it was made by one of them.
//
// Why a proof of the list (verify_rank) is one of the whole step stands in docs/architecture.md ("What
// repeats is compiled once"): of two accesses that are further apart one has the same op in between, on the
// same stream and bytes. Where all of the body lies between them, each dependency of the chain that orders
// them in the list passes the body by, or enters and leaves it on streams whose ops of a later iteration come
// after those of an earlier one. With rings that rotate the list is written out for the proof: the body at
// least as many times as the longest ring has slots, and two more (times_to_prove).

#include <string>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// The first op of the body: that of the forward of a micro-batch through some blocks.
struct BodyBegin {
  int micro = 0;
  std::pair<int, int> blocks;  ///< [first, second)
};

/// Appends a ring to Program::repeat, and notes it with its tensors.
void add_ring(Program& program, Ring ring);

/// Before dependencies are linked. Completes Program::repeat, in which the schedule's numbers and the rings
/// of inputs stand: the body's ops, the steps of views and attributes, and the rings of what each iteration
/// makes anew, for which op by op the body stands beside its copy. False where the copies differ: the
/// Program, in which actions may be of another micro-batch now, is of no use then.
bool set_body(Program& program, const BodyBegin& first);

/// After plan_lifetimes: gives each ring as many slots as are alive at once. Returns false if a tensor
/// lives longer than the compiled iterations can show.
bool set_slots(Program& program);

/// Returns why the body does not stand for all its iterations, or "" if it does. Trusts nothing that the
/// above set, and recomputes what it must be. verify_rank asks it.
std::string repeat_fault(const Program& program);

/// The ops of a Program as they are issued: number, op and time.
class Issues {
 public:
  explicit Issues(const Program& program) : Issues(program, program.repeat.times) {}
  /// As if the body were issued `times` times.
  Issues(const Program& program, int times) : program_(&program), repeat_(&program.repeat), times_(times) {}

  OpId size() const { return static_cast<OpId>(program_->ops.size()) + further(); }
  /// The op that is issued there, as an index into Program::ops.
  OpId id(OpId issue) const {
    if (issue < repeat_->end) return issue;
    return issue < end_of_body() ? repeat_->begin + (issue - repeat_->begin) % repeat_->length()
                                 : issue - further();
  }
  const Op& op(OpId issue) const { return program_->op(id(issue)); }
  /// How often the op was issued before.
  int time(OpId issue) const {
    return issue < repeat_->end || issue >= end_of_body() ? 0 : (issue - repeat_->begin) / repeat_->length();
  }
  int micro(OpId issue) const {
    const int micro = op(issue).action.micro;
    return micro < 0 ? micro : micro + time(issue) * repeat_->stride;
  }
  Action action(OpId issue) const {
    Action action = op(issue).action;
    action.micro = micro(issue);
    return action;
  }

  /// Calls visit with the issue of each op that this one waits for. The body names ops of its own iteration,
  /// of the one before, and of as many further ones as the warm-up has, as so many ops earlier in the list,
  /// and others further back.
  template <class Visit>
  void each_before(OpId issue, Visit visit) const {
    const int t = time(issue);
    const bool behind = issue >= end_of_body() && times_ > 1;
    for (const OpId earlier : op(issue).after) {
      if (behind)
        visit(earlier >= repeat_->warm_up_begin() ? earlier + further() : earlier);
      else
        visit(t > 0 && earlier >= repeat_->warm_up_begin() - repeat_->length()
                  ? earlier + t * repeat_->length()
                  : earlier);
    }
  }

 private:
  OpId further() const { return (times_ - 1) * repeat_->length(); }
  OpId end_of_body() const { return repeat_->end + further(); }

  const Program* program_;
  const Repeat* repeat_;
  int times_;
};

/// "forward model.layers.3 micro 17: linear model.layers.3.mlp.up_proj (op 4131)", of an issue.
std::string describe_issue(const Program& program, OpId issue);

/// "forward model.layers.3 micro 17"
std::string place_of_issue(const Program& program, OpId issue);

/// The op at one time of the body: its micro-batch, and attributes, are those of that time.
Op op_at(const Program& program, OpId op, int time);

/// The same step written out: every issue is an op of its own, with tensors of its own at the same addresses.
Program unrolled(const Program& program);
/// Or one of fewer times. What moves on with Tensor::step then comes, at the last of them, to all places of
/// the times that are left out.
Program unrolled(const Program& program, int times);

/// Returns how many iterations of the body show all that any two accesses of the same bytes can be to each
/// other: more than any ring has slots, and so many that behind them everybody has the slot of the whole
/// step.
int times_to_prove(const Program& program);

}  // namespace ztrain::program
