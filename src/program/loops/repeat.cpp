#include "program/loops/repeat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/shape.hpp"
#include "program/ir/order.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

/// The body beside its copy, op by op: whether both do the same, and which tensor stands for which.
class Copies {
 public:
  explicit Copies(const Program& program)
      : program_(program),
        repeat_(program.repeat),
        images_(program.tensors.size(), no_tensor),
        origins_(program.tensors.size(), no_tensor),
        named_(program.tensors.size(), false) {}

  /// Returns "" if all iterations of the warm-up, the body and its copy do the same.
  std::string compare() {
    const auto ops = static_cast<OpId>(program_.ops.size());
    if (repeat_.begin < 0 || repeat_.length() <= 0 || repeat_.times < 1 || repeat_.stride < 1 ||
        repeat_.warm_up < 0 || repeat_.warm_up_begin() < 0 || repeat_.end > ops - repeat_.length())
      return fmt::format("ops {} to {} of {} have no copy behind them", repeat_.begin, repeat_.end, ops);
    for (OpId id = repeat_.warm_up_begin(); id < repeat_.end; ++id) {
      in_body_ = id >= repeat_.begin;
      // The copy is what the body would be after all its times.
      apart_ = in_body_ ? repeat_.times : 1;
      if (!same_op(id))
        return fmt::format("{} and {} do not do the same", describe(program_, id),
                           describe(program_, id + repeat_.length()));
    }
    return "";
  }

  /// By tensor: the one that the next iteration names instead; itself for what both name. Of inputs: their
  /// rings say it.
  const std::vector<TensorId>& images() const { return images_; }
  /// Bytes by which a tensor's place moves on in its base from one iteration of the body to the next.
  std::int64_t step_of(TensorId a) const {
    const Tensor& tensor = program_.tensor(a);
    if (!named_[at(a)] || tensor.base == no_tensor) return 0;
    return (program_.tensor(images_[at(a)]).offset - tensor.offset) / repeat_.times;
  }
  /// Whether the body names it, or a view of it.
  bool is_named(TensorId a) const { return named_[at(a)]; }
  const std::vector<AttributeStep>& attributes() const { return attributes_; }

  static bool same_kind(const Tensor& a, const Tensor& b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.category == b.category && a.tier == b.tier &&
           a.persistent == b.persistent && (a.base == no_tensor) == (b.base == no_tensor);
  }

 private:
  bool same_op(OpId id) {
    const Op& a = program_.op(id);
    const Op& b = program_.op(id + repeat_.length());
    return a.type == b.type && a.tier == b.tier && a.stream == b.stream && a.flops == b.flops &&
           same_action(a.action, b.action) && a.comm == b.comm &&
           same_attributes(id, a.attributes, b.attributes) && same_operands(a.inputs, b.inputs, false) &&
           same_operands(a.outputs, b.outputs, true);
  }

  bool same_action(const Action& a, const Action& b) const {
    return a.kind == b.kind && a.part == b.part && a.half == b.half &&
           (a.micro < 0 ? b.micro == a.micro : b.micro - a.micro == apart_ * repeat_.stride);
  }

  bool same_attributes(OpId id, const Attributes& a, const Attributes& b) {
    const auto is_stepped = [&](const std::string& key) {
      return op_type(program_.op(id).type).record.is_stepped(key);
    };
    if (a.values().size() != b.values().size()) return false;
    for (std::size_t i = 0; i < a.values().size(); ++i) {
      const auto& [key, value] = a.values()[i];
      const auto& [other_key, other] = b.values()[i];
      if (key != other_key) return false;
      if (value == other) continue;
      const auto *from = std::get_if<std::int64_t>(&value), *to = std::get_if<std::int64_t>(&other);
      if (!from || !to || (*to - *from) % apart_ != 0 || !is_stepped(key)) return false;
      if (in_body_) attributes_.push_back({id, key, (*to - *from) / apart_});
    }
    return true;
  }

  bool same_operands(const std::vector<TensorId>& a, const std::vector<TensorId>& b, bool written) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!same_tensor(a[i], b[i])) return false;
      // What is written at every time and kept between steps has one place.
      if (written && a[i] != b[i] && program_.tensor(a[i]).persistent) return false;
    }
    return true;
  }

  bool same_tensor(TensorId a, TensorId b) {
    const bool moves = a != b || program_.tensor(a).ring >= 0;
    if (program_.tensor(a).persistent && program_.tensor(a).base == no_tensor && moves)
      return follows_in_ring(a, b);
    if (in_body_) named_[at(a)] = true;
    if (images_[at(a)] != no_tensor || origins_[at(b)] != no_tensor)
      return images_[at(a)] == b && (!in_body_ || program_.tensor(a).base == no_tensor ||
                                     same_tensor(program_.tensor(a).base, program_.tensor(b).base));
    const Tensor &x = program_.tensor(a), &y = program_.tensor(b);
    if (!same_kind(x, y)) return false;
    if (x.base != no_tensor && !(same_tensor(x.base, y.base) && same_offset(x, y))) return false;
    images_[at(a)] = b;
    origins_[at(b)] = a;
    return true;
  }

  /// Whether they are inputs of micro-batches that are so many iterations apart.
  bool follows_in_ring(TensorId a, TensorId b) const {
    const Tensor &x = program_.tensor(a), &y = program_.tensor(b);
    return x.ring >= 0 && x.ring == y.ring && y.ring_index - x.ring_index == apart_;
  }

  bool same_offset(const Tensor& x, const Tensor& y) const {
    return x.offset == y.offset || (x.base == y.base && (y.offset - x.offset) % apart_ == 0);
  }

  const Program& program_;
  const Repeat& repeat_;
  std::vector<TensorId> images_, origins_;
  std::vector<bool> named_;
  std::vector<AttributeStep> attributes_;
  /// Of the two that are compared: by how many times the copy is the later one, and whether the other is the
  /// body.
  int apart_ = 1;
  bool in_body_ = false;
};

/// Returns how many tensors of a ring are alive at once: each is dead before the one so many behind it
/// begins. 0: more than the ring has.
std::size_t slots_of(const Program& program, const std::vector<TensorId>& ring) {
  for (std::size_t n = 1; n < ring.size(); ++n) {
    bool follow = true;
    for (std::size_t k = 0; k + n < ring.size() && follow; ++k)
      follow = program.tensor(ring[k]).last < program.tensor(ring[k + n]).first;
    if (follow) return n;
  }
  return 0;
}

/// Whether each iteration makes the tensor anew, and the next one has another.
bool is_made_anew(const Program& program, const std::vector<TensorId>& images, TensorId a) {
  return images[at(a)] != no_tensor && images[at(a)] != a && !program.tensor(a).persistent &&
         program.tensor(a).base == no_tensor;
}

std::string tensor_fault(const Program& program, const Copies& copies, TensorId a) {
  const Tensor& x = program.tensor(a);
  const TensorId b = copies.images()[at(a)];
  if (x.step != copies.step_of(a))
    return fmt::format("'{}' moves on by {} bytes in each iteration, and its copy is not where that leads",
                       x.name, x.step);
  if (b == no_tensor || x.persistent || x.base != no_tensor) return "";
  const Tensor& y = program.tensor(b);
  if (copies.is_named(a) && a == b && x.first >= program.repeat.begin)
    return fmt::format("'{}' begins in the body and is used by its copy", x.name);
  if (copies.is_named(a) && a != b && program.repeat.warm_up == 0 && x.first < program.repeat.begin &&
      y.first < program.repeat.begin)
    return fmt::format("'{}' and '{}', which stands for it in the copy, both begin before the body", x.name,
                       y.name);
  if (a != b && (x.ring < 0 || y.ring != x.ring || y.ring_index != x.ring_index + 1))
    return fmt::format("'{}' does not follow '{}' in its ring", y.name, x.name);
  return "";
}

/// Inputs are those of micro-batches that are one iteration apart: "tokens.3" and, with two micro-batches to
/// an iteration, "tokens.5".
std::string input_fault(const Program& program, const Ring& ring) {
  const Tensor& first = program.tensor(ring.tensors.front());
  const std::size_t dot = first.name.rfind('.') + 1;
  const int micro = std::stoi(first.name.substr(dot));
  for (std::size_t k = 1; k < ring.tensors.size(); ++k) {
    const Tensor& input = program.tensor(ring.tensors[k]);
    const std::string name =
        first.name.substr(0, dot) + std::to_string(micro + static_cast<int>(k) * program.repeat.stride);
    if (!Copies::same_kind(first, input) || input.name != name)
      return fmt::format("'{}' is not the {} that iteration {} reads", input.name, name, k);
  }
  return "";
}

std::string ring_fault(const Program& program, const std::vector<TensorId>& images, int r) {
  const Ring& ring = program.repeat.rings[at(r)];
  if (ring.slots < 1 || at(ring.slots) > ring.tensors.size()) return "there are slots that no tensor has";
  for (std::size_t k = 0; k < ring.tensors.size(); ++k) {
    const TensorId id = ring.tensors[k];
    const Tensor &tensor = program.tensor(id), &slot = program.tensor(ring.slot_of(static_cast<int>(k)));
    if (tensor.ring != r || at(tensor.ring_index) != k)
      return fmt::format("'{}' is not number {} of its ring", tensor.name, k);
    if (!tensor.persistent && k > 0 && images[at(ring.tensors[k - 1])] != id)
      return fmt::format("'{}' does not follow '{}'", tensor.name, program.tensor(ring.tensors[k - 1]).name);
    if (tensor.address != slot.address)
      return fmt::format("'{}' is at {}, but '{}', whose slot it has, at {}", tensor.name, tensor.address,
                         slot.name, slot.address);
  }
  return program.tensor(ring.tensors.front()).persistent ? input_fault(program, ring) : "";
}

std::string rings_fault(const Program& program, const std::vector<TensorId>& images) {
  std::size_t members = 0;
  for (int r = 0; r < std::ssize(program.repeat.rings); ++r) {
    members += program.repeat.rings[at(r)].tensors.size();
    if (std::string fault = ring_fault(program, images, r); !fault.empty()) return fault;
  }
  const auto has_ring = [](const Tensor& tensor) { return tensor.ring >= 0; };
  const std::size_t claimed = at(std::ranges::count_if(program.tensors, has_ring));
  return claimed == members ? "" : "a tensor has a number in a ring that does not have it";
}

std::string dependency_fault(const Program& program) {
  const Repeat& r = program.repeat;
  for (OpId id = r.begin; id < r.end; ++id) {
    std::vector<OpId> expected = program.op(id).after;
    for (OpId& earlier : expected)
      if (earlier >= r.warm_up_begin() - r.length()) earlier += r.length();
    if (expected != program.op(id + r.length()).after)
      return fmt::format("{} waits for others than {}", describe(program, id),
                         describe(program, id + r.length()));
  }
  return "";
}

/// The first op of a micro-batch's forward through these blocks.
OpId first_forward(const Program& program, int micro, const std::pair<int, int>& blocks) {
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Action& action = program.op(id).action;
    if (action.kind == ActionKind::forward && action.micro == micro && action.part >= blocks.first &&
        action.part < blocks.second)
      return id;
  }
  return no_op;
}

/// What is gathered ahead is for the micro-batch that follows: in the list that is a later one.
void number_as_body(Program& program) {
  const Repeat& r = program.repeat;
  const int left_out = (r.times - 1) * r.stride;
  for (OpId id = r.begin; id < r.end; ++id) {
    int& micro = program.op(id).action.micro;
    if (micro >= 0 && program.op(id + r.length()).action.micro - r.times * r.stride == micro - left_out)
      micro -= left_out;
  }
}

bool has_copy(const Program& program) {
  const Repeat& r = program.repeat;
  return r.begin != no_op && r.begin < r.end && r.end + r.length() <= static_cast<OpId>(program.ops.size());
}

/// A ring goes from a tensor to its image, as far as that goes.
void add_rings(Program& program, const std::vector<TensorId>& images) {
  std::vector<bool> follows(images.size(), false);
  const auto tensors = static_cast<TensorId>(images.size());
  for (TensorId t = 0; t < tensors; ++t)
    if (is_made_anew(program, images, t)) follows[at(images[at(t)])] = true;
  for (TensorId t = 0; t < tensors; ++t) {
    if (!is_made_anew(program, images, t) || follows[at(t)]) continue;
    Ring ring{{t}};
    while (is_made_anew(program, images, ring.tensors.back()))
      ring.tensors.push_back(images[at(ring.tensors.back())]);
    add_ring(program, std::move(ring));
  }
}

}  // namespace

void add_ring(Program& program, Ring ring) {
  int index = 0;
  for (const TensorId id : ring.tensors) {
    program.tensor(id).ring = static_cast<int>(program.repeat.rings.size());
    program.tensor(id).ring_index = index++;
  }
  program.repeat.rings.push_back(std::move(ring));
}

bool set_body(Program& program, const BodyBegin& first) {
  Repeat& repeat = program.repeat;
  repeat.begin = first_forward(program, first.micro, first.blocks);
  repeat.end = first_forward(program, first.micro + repeat.times * repeat.stride, first.blocks);
  if (!has_copy(program)) return false;
  number_as_body(program);
  Copies copies(program);
  if (!copies.compare().empty()) return false;
  repeat.attributes = copies.attributes();
  for (TensorId t = 0; t < static_cast<TensorId>(program.tensors.size()); ++t)
    program.tensor(t).step = copies.step_of(t);
  add_rings(program, copies.images());
  return true;
}

bool set_slots(Program& program) {
  for (Ring& ring : program.repeat.rings) {
    if (program.tensor(ring.tensors.front()).persistent) continue;
    ring.slots = static_cast<int>(slots_of(program, ring.tensors));
    if (ring.slots == 0 || (ring.slots > 1 && ring.slots > program.repeat.warm_up + 1)) return false;
  }
  return true;
}

int times_to_prove(const Program& program) {
  std::int64_t longest = program.repeat.warm_up, all = 1;
  for (const Ring& ring : program.repeat.rings) {
    if (!program.rotates(ring)) continue;
    longest = std::max<std::int64_t>(longest, ring.slots);
    all = std::min<std::int64_t>(std::lcm(all, std::int64_t{ring.slots}), program.repeat.times);
  }
  const std::int64_t least = longest + 2, left_out = std::max<std::int64_t>(0, program.repeat.times - least);
  return program.repeat.times - static_cast<int>(left_out / all * all);
}

std::string repeat_fault(const Program& program) {
  if (program.repeat.times == 1) return "";
  Copies copies(program);
  if (std::string fault = copies.compare(); !fault.empty()) return fault;
  if (copies.attributes() != program.repeat.attributes)
    return "attributes of the body do not move on as those of its copy say";
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    std::string fault = tensor_fault(program, copies, static_cast<TensorId>(t));
    if (!fault.empty()) return fault;
  }
  if (std::string fault = rings_fault(program, copies.images()); !fault.empty()) return fault;
  return dependency_fault(program);
}

}  // namespace ztrain::program
