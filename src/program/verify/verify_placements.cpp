// The check of placements: walks the finished Program and works out, from where parameters and inputs lie,
// how every value is spread over the ranks of each axis. What reaches the optimizer must be whole sums.

#include <fmt/format.h>

#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/dispatch/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/load/record.hpp"
#include "kernels/optimizer/record.hpp"
#include "kernels/preference/record.hpp"
#include "kernels/step/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/final_passes.hpp"
#include "program/verify/codes_check.hpp"
#include "program/verify/last_parameter.hpp"
#include "program/verify/matrices_check.hpp"
#include "program/verify/ring_check.hpp"
#include "program/verify/rows_check.hpp"
#include "program/verify/stages_check.hpp"
#include "program/verify/unit_parameters.hpp"

namespace ztrain::program {
namespace {

class Checker {
 public:
  explicit Checker(const Program& program)
      : program_(program), plain_(program.tensors.size(), filled(Spread::unknown)) {
    for (int a = 0; a < axis_count; ++a)
      if (const auto axis = static_cast<Axis>(a); axis != Axis::pipeline && program.mesh[axis] > 1)
        axes_.push_back(axis);
    for (std::size_t t = 0; t < program.tensors.size(); ++t) {
      const Tensor& tensor = program.tensors[t];
      if (tensor.base != no_tensor) continue;
      if (tensor.persistent) plain_[t] = initial_spreads(program, tensor);
      if (tensor.unit >= 0) flat_[static_cast<TensorId>(t)] = units_.initial(tensor, tensor.persistent);
    }
    for (const auto& [t, flat] : flat_)
      if (const Tensor& of = program.tensor(t); of.persistent && of.category == Category::parameter)
        first_.emplace(t, flat);
  }

  void run() {
    if (axes_.empty() && program_.mesh[Axis::pipeline] == 1) return;
    for (OpId id = 0; id < static_cast<OpId>(program_.ops.size()); ++id) {
      id_ = id;
      visit(program_.op(id));
    }
    check_end();
  }

 private:
  using Flat = UnitParameters::Flat;

  const ParameterPlace& place(std::size_t p) const { return program_.parameters[p]; }

  [[noreturn]] void refuse(Axis axis, const std::string& what) const {
    fail("{}: {} over {}", describe(program_, id_), what, name_of(axis));
  }

  bool is_flat(TensorId t) const { return program_.tensor(program_.storage(t)).unit >= 0; }

  /// Of an operand of an op that computes.
  Spreads read(TensorId t) const {
    if (!is_flat(t)) return plain_[at(program_.storage(t))];
    const std::size_t p = units_.parameter_of(t);
    Spreads spreads = flat_.at(program_.storage(t))[p - units_.first(p)];
    if (place(p).takes_rows) spreads[at(Axis::tensor)] = Spread::rows;
    return spreads;
  }

  void write(TensorId t, Axis axis, Spread spread, bool adds) {
    Spread* to = nullptr;
    if (is_flat(t)) {
      const std::size_t p = units_.parameter_of(t);
      to = &flat_.at(program_.storage(t))[p - units_.first(p)][at(axis)];
      // Of its other rows the gradient is zero here: the whole is a sum.
      if (place(p).takes_rows && axis == Axis::tensor) spread = spread == Spread::rows ? Spread::sum : spread;
    } else {
      require_alike_parts(t, axis, spread);
      to = &plain_[at(program_.storage(t))][at(axis)];
    }
    if (adds && *to != spread)
      refuse(axis, fmt::format("{} is {}, and what is added to it is {}", called(t), words_for(*to),
                               words_for(spread)));
    *to = spread == Spread::around ? ring_.spread_of(t, axis) : spread;
  }

  void visit(const Op& op) {
    if (op.type == Release::op || (op.type == ZeroGaps::op && is_flat(op.outputs[0]))) return;
    if (op.type == ZeroGaps::op) return set(op.outputs[0], spread_of_stepped(program_, op));
    if (const std::string fault = stages_.follow(op); !fault.empty()) refuse(Axis::pipeline, fault);
    if (op.type == Add::op && is_flat(op.outputs[0])) return;  // the two stages' sums are spread alike
    if (op.communicates() || sums_codes(op)) return communicate(op);
    if ((op.type == OptimizerStep::op && !keeps_flat(op)) || op.type == SumSquares::op) return consume(op);
    if (op.type == StepPartials::op || op.type == ExpertsPartials::op) return count_losses(op, Spread::rows);
    if (op.type == PreferenceReport::op) return count_losses(op, Spread::sum);
    if (op.type == Orthogonalise::op) return set(op.outputs[0], follow(op, orthogonalised));
    if (op.type == CountOverflows::op) return set_all(op.outputs, filled(Spread::sum));
    if (op.type == OwnRows::op || op.type == SumOfRanks::op) return join_rows(op);
    if (op.type == FinishStep::op) return finish(op);
    if (op.type == Fp8Largest::op) return note_largest(read_flat(op.inputs[0]), plain_of(op.outputs[0]));
    if (op.type == Fp8Scales::op) return make_scales(op);
    if (units_.carries_gradients(op)) return units_.carry_gradients(op, flat_);
    if (is_flat(op.inputs[0]) && is_flat(op.outputs[0]) && keeps_flat(op))
      return write_flat(op.outputs[0], read_flat(op.inputs[0], op.outputs[0]));
    compute(op);
  }

  /// Every rank needs what all of them found.
  void finish(const Op& op) {
    if (!stages_.told(op.inputs[0]))
      refuse(Axis::pipeline, "losses and norms of the stages were not gathered");
    for (const TensorId t : op.inputs)
      for (const Axis axis : axes_)
        if (const Spread spread = read(t)[at(axis)]; spread != Spread::equal)
          refuse(axis, fmt::format("losses and norms of the ranks were not gathered: '{}' is {}",
                                   program_.tensor(t).name, words_for(spread)));
    set_all(op.outputs, filled(Spread::equal));
  }

  Spreads& plain_of(TensorId t) { return plain_[at(program_.storage(t))]; }
  void make_scales(const Op& op) {
    for (const Axis axis : axes_) {
      const Spread found = read(op.inputs[Fp8Scales::slots])[at(axis)];
      if (const std::string fault = scales_fault(program_, op, axis, found); !fault.empty())
        refuse(axis, fault);
      for (std::size_t i = 0; i < op.outputs.size(); ++i)
        plain_of(op.outputs[i])[at(axis)] = spread_of_scales(program_, op, i, axis, found);
    }
  }

  void set(TensorId t, const Spreads& spreads) {
    for (const Axis axis : axes_) require_alike_parts(t, axis, spreads[at(axis)]);
    plain_[at(program_.storage(t))] = spreads;
  }
  /// Where t is a part of the rows of something.
  void require_alike_parts(TensorId t, Axis axis, Spread spread) const {
    const Spread there = plain_[at(program_.storage(t))][at(axis)];
    if (program_.storage(t) != t && there != Spread::unknown && there != spread)
      refuse(axis, fmt::format("{} is {}, and other parts of the same are {}", called(t), words_for(spread),
                               words_for(there)));
  }
  void set_all(const std::vector<TensorId>& tensors, const Spreads& spreads) {
    for (const TensorId t : tensors) set(t, spreads);
  }
  /// All of a flat range, or the shard that a view is. Between tiers pieces are of all, or of a shard.
  Flat read_flat(TensorId t, TensorId to = no_tensor) const {
    Flat flat = flat_.at(program_.storage(t));
    Tensor part = program_.tensor(program_.storage(t));
    const bool carried = to != no_tensor && program_.tensor(to).tier != part.tier;
    const Shape whole = std::exchange(part.shape, program_.tensor(carried ? program_.storage(to) : t).shape);
    for (Spreads& spreads : flat)
      if (elements(part.shape) < elements(whole)) mark_shards(program_, part, spreads);
    return flat;
  }
  void write_flat(TensorId t, const Flat& flat) {
    ASSERT(is_flat(t), "'{}' is written from a flat range and is none", program_.tensor(t).name);
    flat_[program_.storage(t)] = flat;
  }

  void compute(const Op& op) {
    const std::string misfit = rows_.misfit(op);
    REQUIRE(misfit.empty(), "{}: {}", describe(program_, id_), misfit);
    const OperandGroups groups = groups_of(op);
    ASSERT(!groups.empty(), "the check of placements knows no way of op '{}'", op.type);
    std::vector<Spreads> given;  // by group
    for (const auto& group : groups) {
      given.push_back(read(group[0]));
      for (std::size_t i = 1; i < group.size(); ++i) {
        const Spreads other = read(group[i]);
        for (const Axis axis : axes_)
          if (other[at(axis)] != given.back()[at(axis)]) refuse(axis, takes(groups, axis));
      }
    }
    for (const Axis axis : axes_) {
      std::vector<Spread> over;
      for (const Spreads& spreads : given) over.push_back(spreads[at(axis)]);
      compute_over(op, axis, groups, over);
    }
    behind_.follow(op);
  }

  /// given: by group.
  void compute_over(const Op& op, Axis axis, const OperandGroups& groups, const std::vector<Spread>& given) {
    const bool goes_round = ring_.concerns(op, given, axis);
    const auto out = goes_round ? std::vector{Spread::around} : outputs_of(op, given, axis);
    if (!out) refuse(axis, takes(groups, axis));
    if (const std::string fault = part_fault(program_, op, axis, given); !fault.empty()) refuse(axis, fault);
    if (goes_round)
      if (const std::string fault = ring_.follow(op, axis); !fault.empty())
        refuse(axis, fmt::format("{}, behind {}", fault, called(op.inputs[0])));
    const bool adds = accumulates(op);
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      const Spread spread = out->size() == 1 ? out->front() : i < out->size() ? (*out)[i] : Spread::unknown;
      const TensorId t = op.outputs[i];
      if (spread == Spread::unknown || program_.tensor(t).category == Category::workspace) continue;
      write(t, axis, spread, adds && std::ranges::find(op.inputs, t) != op.inputs.end());
    }
  }

  /// What rows of other ranks become with those of this one.
  void join_rows(const Op& op) {
    Spreads spreads = read(op.inputs[0]);
    const Spreads others = read(op.inputs.back());
    for (const Axis axis : axes_)
      spreads[at(axis)] = told(rows_.joined(op, axis, spreads[at(axis)], others[at(axis)]), op, axis);
    set(op.outputs[0], spreads);
    behind_.follow(op);
  }
  Spread told(const Told& told, const Op& op, Axis axis) const {
    if (told.fault.empty()) return told.spread;
    refuse(axis, fmt::format("{}, behind {}", told.fault, called(op.inputs[0])));
  }

  std::string called(TensorId t) const { return behind_.called(t); }

  std::string takes(const OperandGroups& groups, Axis axis) const {
    std::string text = "no placement lets it take what it is given: ";
    for (const auto& group : groups)
      for (const TensorId t : group)
        text += fmt::format("{}{} is {}", text.ends_with(": ") ? "" : "; ", called(t),
                            words_for(read(t)[at(axis)]));
    return text;
  }

  /// Returns the spread after a communication over an axis that it spans.
  Spread converted(const Op& op, Axis axis, Spread from, const std::string& what) {
    const bool flat = is_flat(op.inputs[0]);
    if (op.comm.kind == CommKind::shift) {
      if (rows_.concerns(op)) return told(rows_.shifted(op, axis, from), op, axis);
      if (!flat && (from == Spread::rows || from == Spread::around)) return ring_.shifted(op, axis, from);
    }
    const Told made = exchanged(program_, op, axis, from, flat, what);
    if (!made.fault.empty()) refuse(axis, made.fault);
    return made.spread;
  }

  /// Between stages: both sides say over which axes it is split or a sum, and verify_no_deadlock that they
  /// say the same.
  void pass_message(const Op& op) {
    const bool sends = op.comm.kind == CommKind::send;
    // Gradients of a parameter that two stages have: the sums of both are whole.
    if (sends && is_flat(op.inputs[0])) return check_sums(op.inputs[0]);
    if (!sends && is_flat(op.outputs[0]))
      return write_flat(op.outputs[0], units_.initial(program_.tensor(op.outputs[0]), true));
    const Spreads said = said_by(op);
    if (!sends) return set_all(op.outputs, said);
    const Spreads is = read(op.inputs[0]);
    for (const Axis axis : axes_)
      if (is[at(axis)] != said[at(axis)])
        refuse(axis, fmt::format("it sends {} as {}, which is {}", called(op.inputs[0]),
                                 words_for(said[at(axis)]), words_for(is[at(axis)])));
  }

  void communicate(const Op& op) {
    if (op.comm.kind == CommKind::send || op.comm.kind == CommKind::recv) return pass_message(op);
    const TensorId from = op.inputs[0], to = op.outputs[0];
    if (!is_flat(from)) {
      Spreads spreads = read(from);
      // Of a state that each rank has whole but for its own part, which is the newest.
      if (const auto unit = std::ranges::find(program_.units, op.name) - program_.units.begin();
          program_.storage(from) == program_.storage(to) && from != to)
        spreads = equal_but(program_.unit_cuts.at(at(unit)).shard_axes, Spread::shard);
      for (const Axis axis : axes_)
        if (spans(op, axis)) spreads[at(axis)] = converted(op, axis, spreads[at(axis)], called(from));
      behind_.pass(from, to);
      return set(to, spreads);
    }
    Flat flat = read_flat(from);
    const Tensor& base = program_.tensor(program_.storage(from));
    const UnitParameters::Range unit = units_.of(base.unit);
    for (std::size_t p = unit.begin; p < unit.end; ++p) {
      if (base.category == Category::gradient && !place(p).trainable) continue;
      const std::string what =
          fmt::format("{}{}", base.category == Category::gradient ? "the gradient of " : "", place(p).name);
      Spreads& spreads = flat[p - unit.begin];
      for (const Axis axis : axes_) {
        if (!spans(op, axis)) continue;
        const Spread now = spreads[at(axis)] = converted(op, axis, spreads[at(axis)], what);
        if (op.comm.kind != CommKind::all_gather && (now == Spread::shard || now == Spread::equal))
          reduced_[at(base.unit)] = reduced_[at(base.unit)] | axis;
      }
      if (accumulates(op)) require_alike(p, spreads, flat_.at(program_.storage(to))[p - unit.begin]);
    }
    write_flat(to, flat);
  }

  /// What is added to a gradient must be spread as what is there.
  void require_alike(std::size_t p, const Spreads& added, const Spreads& there) const {
    for (const Axis axis : axes_)
      if (added[at(axis)] != there[at(axis)])
        refuse(axis, fmt::format("the gradient of {} so far is {}, and what is added to it is {}",
                                 place(p).name, words_for(there[at(axis)]), words_for(added[at(axis)])));
  }

  /// The optimizer, and the norm, take the whole sum, or this rank's shard of it.
  void consume(const Op& op) {
    if (!is_flat(op.inputs[0]))
      follow(op, moved);
    else if (!looks_at_terms(op))
      check_gradient(op.inputs[0]);
    if (op.type == SumSquares::op) return set(op.outputs[0], filled(Spread::sum));
    const TensorId stepped = op.outputs[0];
    if (!is_flat(stepped)) return set(stepped, spread_of_stepped(program_, op));
    write_flat(stepped, read_flat(record_of<OptimizerStep>(op.attributes).whole ? op.outputs[1] : stepped));
  }

  void check_gradient(TensorId gradient) const {
    check_sums(gradient);
    const UnitParameters::Range unit = units_.of(program_.tensor(program_.storage(gradient)).unit);
    for (std::size_t p = unit.begin; p < unit.end; ++p)
      if (const std::string fault = stages_.gradient_fault(place(p), gradient); !fault.empty())
        refuse(Axis::pipeline, fault);
  }
  /// Returns the spreads that follow by the rule from those of the first input.
  Spreads follow(const Op& op, Told (*rule)(const Program&, const Op&, Axis, Spread)) const {
    Spreads spreads = read(op.inputs[0]);
    for (const Axis axis : axes_)
      spreads[at(axis)] = told(rule(program_, op, axis, spreads[at(axis)]), op, axis);
    return spreads;
  }

  void check_sums(TensorId gradient) const {
    const Flat flat = read_flat(gradient);
    const int number = program_.tensor(program_.storage(gradient)).unit;
    const UnitCut& cut = program_.unit_cuts[at(number)];
    const bool shard = elements(program_.tensor(gradient).shape) < program_.unit_elements[at(number)];
    const UnitParameters::Range unit = units_.of(number);
    for (std::size_t p = unit.begin; p < unit.end; ++p) {
      for (const Axis axis : axes_)
        if (const std::string fault =
                sum_fault(place(p), axis, flat[p - unit.begin][at(axis)], shard ? cut.shard_axes : AxisSet());
            !fault.empty())
          refuse(axis, fault);
    }
    for (const Axis axis : axes_)
      if (const bool is = reduced_[at(number)].contains(axis); is != cut.reduce_axes.contains(axis))
        refuse(axis, fmt::format("the gradient of {} is {}summed, and its unit says otherwise",
                                 place(unit.begin).name, is ? "" : "not "));
  }

  /// Losses are summed over all ranks: each token's must be there once.
  void count_losses(const Op& op, Spread written) {
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      for (const Axis axis : axes_)
        if (const std::string fault = loss_fault(op, i, axis, read(op.inputs[i])[at(axis)]); !fault.empty())
          refuse(axis, fault);
    set_all(op.outputs, filled(written));
  }

  /// Parameters end as they began, and so do numbers of the step.
  void check_end() const {
    for (std::size_t t = 0; t < plain_.size(); ++t)
      for (const Axis axis : axes_)
        if (const Spread now = plain_[t][at(axis)];
            is_number(program_.tensors[t]) && now != initial_spreads(program_, program_.tensors[t])[at(axis)])
          fail("program '{}' leaves '{}' as {} over {}", program_.name, program_.tensors[t].name,
               words_for(now), name_of(axis));
    for (const auto& [t, before] : first_) {
      const Tensor& tensor = program_.tensor(t);
      const Flat& flat = flat_.at(t);
      for (std::size_t i = 0; i < flat.size(); ++i)
        for (const Axis axis : axes_)
          if (flat[i][at(axis)] != before[i][at(axis)])
            fail("program '{}' leaves {} as {} over {}, where it was {}", program_.name,
                 place(units_.of(tensor.unit).begin + i).name, words_for(flat[i][at(axis)]), name_of(axis),
                 words_for(before[i][at(axis)]));
    }
  }

  const Program& program_;
  UnitParameters units_{program_};
  LastParameter behind_{program_, units_};
  RingCheck ring_{program_};
  RowsCheck rows_{program_};
  StagesCheck stages_{program_};
  OpId id_ = -1;
  std::vector<AxisSet> reduced_{program_.units.size()};  ///< by unit: what its gradient was summed over
  std::vector<Axis> axes_;       ///< of more than one rank; those of the pipeline have values of their own
  std::vector<Spreads> plain_;   ///< by tensor that holds bytes
  UnitParameters::Flats flat_;   ///< of those that belong to a unit
  UnitParameters::Flats first_;  ///< at the beginning
};

}  // namespace

void verify_placements(const Program& program) {
  if (program.parameters.empty()) return;
  Checker(program).run();
  verify_owners(program);
  verify_blocks(program);
}

}  // namespace ztrain::program
