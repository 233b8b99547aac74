#pragma once
// Steps of many micro-batches: those in the middle are compiled once and issued many times.
//
// A step of many micro-batches is compiled as one of a few (schedules/middle.hpp). Turns that repeat in it
// are the body; those of the next time, its copy. Where both do the same on the same addresses, after the
// same ops counted from themselves, the body stands for what is left out (Repeat::times). In a pipeline what
// is kept from a forward to the backward of a later time has places that rotate (Repeat::rotas), and before
// the body so many times are like it (Repeat::alike) that all which is alive in it was made by one of them.
//
// Why a proof of the list (verify_rank) is one of the whole step stands in docs/architecture.md ("What
// repeats is compiled once"): of two accesses that are further apart one has the same op in between, on the
// same stream and bytes. Where all of the body lies between them, each dependency of the chain that orders
// them in the list passes the body by, or enters and leaves it on streams whose ops of a later time come
// after those of an earlier one. With rotas the list is written out for the proof: the body as many times as
// the longest rota, and two more.

#include <optional>
#include <string>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// Where the body begins, in a Program whose ops behind its first time have the micro-batches of the whole
/// step: with the first op of the forward of a micro-batch through some blocks.
struct BodyPlace {
  int micro = 0;
  std::pair<int, int> blocks;            ///< [first, second)
  int times = 1, stride = 1, alike = 0;  ///< Repeat's
};

/// Before dependencies are linked. Sets Program::repeat, and the steps of views and attributes; returns by
/// tensor the one that its copy names instead (itself for what both name, no_tensor for what neither the body
/// nor what is like it names). Nothing where the copies differ: the Program, in which actions may be of
/// another micro-batch now, is of no use then.
std::optional<std::vector<TensorId>> find_repeat(Program& program, const BodyPlace& place);

/// After plan_lifetimes: lets what is alive for longer than until the next time makes another one rotate.
/// Returns by tensor the one that must have the same address, of the others: its image. Nothing where some
/// are alive for longer than there are times to see it.
std::optional<std::vector<TensorId>> set_rotas(Program& program, const std::vector<TensorId>& images);

/// After plan_memory: the steps of persistent tensors, which have addresses now.
void set_steps(Program& program, const std::vector<TensorId>& images);

/// The image of each tensor by Program::repeat, as find_repeat returns it.
std::vector<TensorId> images_of(const Program& program);

/// Tensors that stand for each other from time to time: from each to its image, as far as that goes. Of what
/// is made anew at each time, without views.
std::vector<std::vector<TensorId>> chains_of(const Program& program, const std::vector<TensorId>& images);

/// Why the body does not stand for all its times: "" where it does. Trusts nothing that the above left but
/// Program::repeat and Tensor::step, and recomputes what they must be. verify_rank asks it.
std::string repeat_fault(const Program& program);

/// The ops of a Program as they are issued: number, op and time.
class Issues {
 public:
  explicit Issues(const Program& program) : Issues(program, program.repeat.times) {}
  /// As if what is repeated were issued `times` times.
  Issues(const Program& program, int times) : program_(&program), repeat_(program.repeat) {
    repeat_.times = times;
  }

  OpId size() const { return static_cast<OpId>(program_->ops.size()) + further(); }
  /// The op that is issued there, as an index into Program::ops.
  OpId id(OpId issue) const {
    if (issue < repeat_.end) return issue;
    return issue < end_of_body() ? repeat_.begin + (issue - repeat_.begin) % repeat_.length()
                                 : issue - further();
  }
  const Op& op(OpId issue) const { return program_->op(id(issue)); }
  /// How often the op was issued before.
  int time(OpId issue) const {
    return issue < repeat_.end || issue >= end_of_body() ? 0 : (issue - repeat_.begin) / repeat_.length();
  }
  int micro(OpId issue) const {
    const int micro = op(issue).action.micro;
    return micro < 0 ? micro : micro + time(issue) * repeat_.stride;
  }
  Action action(OpId issue) const {
    Action action = op(issue).action;
    action.micro = micro(issue);
    return action;
  }

  /// Calls visit with the issue of each op that this one waits for. The body names ops of its own time, of
  /// the time before, and of as many further ones as are like it before it, as so many ops earlier in the
  /// list, and others further back.
  template <class Visit>
  void each_before(OpId issue, Visit visit) const {
    const int t = time(issue);
    const bool behind = issue >= end_of_body() && repeat_.times > 1;
    for (const OpId earlier : op(issue).after) {
      if (behind)
        visit(earlier >= repeat_.alike_from() ? earlier + further() : earlier);
      else
        visit(t > 0 && earlier >= repeat_.alike_from() - repeat_.length() ? earlier + t * repeat_.length()
                                                                          : earlier);
    }
  }

 private:
  OpId further() const { return (repeat_.times - 1) * repeat_.length(); }
  OpId end_of_body() const { return repeat_.end + further(); }

  const Program* program_;
  Repeat repeat_;
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

/// How many times of the body show all that any two accesses of the same bytes can be to each other: more
/// than any rota has slots, and so many that behind them everybody has the slot of the whole step.
int times_to_prove(const Program& program);

}  // namespace ztrain::program
