#pragma once
// Steps of many micro-batches: those in the middle are compiled once and issued many times.
//
// A step of n + 4 micro-batches is compiled as five: 0, 1, 2, and the last two. Its list is a Program of its
// own, S, and all passes work on that. Where the ops of micro-batch 2 (the body) and those of the one after
// it in the list (its copy) do the same on the same addresses, after the same ops counted from themselves,
// the body stands for n micro-batches, Repeat::times = n: the step that is run issues what comes before the
// body, the body n times, and what comes after it, the copy first.
//
// Why it is enough to prove S (verify_rank). Take two accesses of the same bytes in the step that is run, p
// before q in the order of issue, one of them a write. Where no time of the body lies between theirs, both
// and all between them stand in S with the same dependencies, and are ordered there: the body and its copy
// are two times in a row. Otherwise some time of the body between them has an op q' that is to q, or to p,
// what one time is to another: on the same stream, with the same bytes read and written.
//   q in the body: if q writes, p is ordered before the q' of the time before, by induction, and q' before q,
//     being two writes of the same bytes. If q only reads, stream order takes q' to q.
//   p in the body, q behind it: likewise with p' of the next time.
//   p before the body, q behind it: each step of the chain of dependencies that orders them in S either
//   passes the
//     body by, or enters and leaves it on streams whose ops of a later time come after those of an earlier
//     one.
// Which write a read sees follows in the same way. Bytes that move on with Tensor::step are those of one time
// alone.

#include <optional>
#include <string>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// The micro-batches to compile of a step of so many: all of a few, else 0, 1, 2 and the last two.
std::vector<int> micros_to_compile(int micro_batches);

/// For a Program of micros_to_compile, before its dependencies are linked. Sets Program::repeat, and the
/// steps of views and attributes; returns by tensor the one that its copy names instead (itself for what both
/// name, no_tensor for what the body does not name). Nothing where the copies differ: the Program, in which
/// actions may be of another micro-batch now, is of no use then.
std::optional<std::vector<TensorId>> find_repeat(Program& program, const std::vector<int>& micros);

/// After plan_memory: the steps of persistent tensors, which have addresses now.
void set_persistent_steps(Program& program, const std::vector<TensorId>& images);

/// The image of each tensor by Program::repeat, as find_repeat returns it.
std::vector<TensorId> images_of(const Program& program);

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
    return micro < 0 ? micro : micro + time(issue);
  }

  /// Calls visit with the issue of each op that this one waits for. The body names ops of its own time, of
  /// the time before as so many ops earlier in the list, and others further back.
  template <class Visit>
  void each_before(OpId issue, Visit visit) const {
    const int t = time(issue);
    const bool behind = issue >= end_of_body() && repeat_.times > 1;
    for (const OpId earlier : op(issue).after) {
      if (behind)
        visit(earlier >= repeat_.begin ? earlier + further() : earlier);
      else
        visit(t > 0 && earlier >= repeat_.begin - repeat_.length() ? earlier + t * repeat_.length()
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

}  // namespace ztrain::program
