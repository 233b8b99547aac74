#include "program/ir/repeat.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/index.hpp"
#include "model/op_records.hpp"
#include "program/ir/order.hpp"

namespace ztrain::program {
namespace {

/// "tokens" of "tokens.17"
std::string_view stem(const std::string& name) {
  return std::string_view(name).substr(0, name.rfind('.'));
}

bool same_kind(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.category == b.category && a.tier == b.tier &&
         a.persistent == b.persistent && (a.base == no_tensor) == (b.base == no_tensor);
}

/// The body of a Program's repeat beside its copy, op by op. Finds which tensor of the copy stands for which
/// of the body.
class Copies {
 public:
  explicit Copies(const Program& program)
      : program_(program),
        repeat_(program.repeat),
        images_(program.tensors.size(), no_tensor),
        origins_(program.tensors.size(), no_tensor) {}

  /// "" where both do the same.
  std::string compare() {
    const auto ops = static_cast<OpId>(program_.ops.size());
    if (repeat_.begin < 0 || repeat_.length() <= 0 || repeat_.times < 1 ||
        repeat_.end > ops - repeat_.length())
      return fmt::format("ops {} to {} of {} have no copy behind them", repeat_.begin, repeat_.end, ops);
    for (OpId id = repeat_.begin; id < repeat_.end; ++id)
      if (!same_op(id))
        return fmt::format("{} and {} do not do the same", describe(program_, id),
                           describe(program_, id + repeat_.length()));
    return "";
  }

  const std::vector<TensorId>& images() const { return images_; }
  const std::vector<AttributeStep>& attributes() const { return attributes_; }

 private:
  bool same_op(OpId id) {
    const Op& a = program_.op(id);
    const Op& b = program_.op(id + repeat_.length());
    const Communication &x = a.comm, &y = b.comm;
    return a.type == b.type && a.tier == b.tier && a.stream == b.stream && a.flops == b.flops &&
           same_action(a.action, b.action) && x.kind == y.kind && x.axes == y.axes && x.peer == y.peer &&
           x.sent_bytes == y.sent_bytes && same_attributes(id, a.attributes, b.attributes) &&
           same_operands(a.inputs, b.inputs, false) && same_operands(a.outputs, b.outputs, true);
  }

  /// The copy is what the body would be after all its times.
  bool same_action(const Action& a, const Action& b) const {
    return a.kind == b.kind && a.part == b.part && a.half == b.half &&
           (a.micro < 0 ? b.micro == a.micro : b.micro - a.micro == repeat_.times);
  }

  bool same_attributes(OpId id, const Attributes& a, const Attributes& b) {
    if (a.values().size() != b.values().size()) return false;
    for (std::size_t i = 0; i < a.values().size(); ++i) {
      const auto& [key, value] = a.values()[i];
      const auto& [other_key, other] = b.values()[i];
      if (key != other_key) return false;
      if (value == other) continue;
      const auto *from = std::get_if<std::int64_t>(&value), *to = std::get_if<std::int64_t>(&other);
      if (key != Dropout::first_token_key || !from || !to || (*to - *from) % repeat_.times != 0) return false;
      attributes_.push_back({id, key, (*to - *from) / repeat_.times});
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
    if (images_[at(a)] != no_tensor || origins_[at(b)] != no_tensor) return images_[at(a)] == b;
    const Tensor &x = program_.tensor(a), &y = program_.tensor(b);
    if (!same_kind(x, y)) return false;
    if (x.base != no_tensor && !(same_tensor(x.base, y.base) && same_offset(x, y))) return false;
    if (x.persistent && a != b && stem(x.name) != stem(y.name)) return false;
    images_[at(a)] = b;
    origins_[at(b)] = a;
    return true;
  }

  bool same_offset(const Tensor& x, const Tensor& y) const {
    return x.offset == y.offset || (x.base == y.base && (y.offset - x.offset) % repeat_.times == 0);
  }

  const Program& program_;
  const Repeat& repeat_;
  std::vector<TensorId> images_, origins_;
  std::vector<AttributeStep> attributes_;
};

/// How far the place of a tensor is from its image's: of views of one tensor within that, of what is kept
/// between steps by address.
std::int64_t distance(const Program& program, TensorId a, TensorId b) {
  const Tensor &x = program.tensor(a), &y = program.tensor(b);
  if (a == b) return 0;
  if (x.base != no_tensor) return y.offset - x.offset;
  return x.persistent ? y.address - x.address : 0;
}

/// The input of each time lies where its step says.
std::string input_fault(const Program& program, TensorId a, TensorId b) {
  const Tensor& first = program.tensor(a);
  const int times = program.repeat.times;
  for (int t = 1; t < times; ++t) {
    const TensorId id = a + (b - a) / times * t;
    const Tensor& input = program.tensor(id);
    if ((b - a) % times != 0 || !same_kind(first, input) || stem(input.name) != stem(first.name) ||
        input.address != first.address + t * first.step)
      return fmt::format("'{}' is not where the body would read it the {}th time", input.name, t + 1);
  }
  return "";
}

std::string tensor_fault(const Program& program, TensorId a, TensorId b) {
  const Tensor& x = program.tensor(a);
  if (b == no_tensor)
    return x.step == 0 ? "" : fmt::format("'{}' moves on, but the body does not name it", x.name);
  const Tensor& y = program.tensor(b);
  if (x.step * program.repeat.times != distance(program, a, b))
    return fmt::format("'{}' moves on by {} bytes each time, but '{}' is not where that leads", x.name,
                       x.step, y.name);
  if (x.base != no_tensor) return "";
  if (x.persistent) return a == b ? "" : input_fault(program, a, b);
  if (a == b && x.first >= program.repeat.begin)
    return fmt::format("'{}' begins in the body and is used by its copy", x.name);
  if (a != b && x.first < program.repeat.begin && y.first < program.repeat.begin)
    return fmt::format("'{}' and '{}', which stands for it in the copy, both begin before the body", x.name,
                       y.name);
  if (a != b && x.address != y.address)
    return fmt::format("'{}' is at {}, but '{}', which stands for it in the copy, at {}", x.name, x.address,
                       y.name, y.address);
  return "";
}

std::string dependency_fault(const Program& program) {
  const Repeat& r = program.repeat;
  for (OpId id = r.begin; id < r.end; ++id) {
    std::vector<OpId> expected = program.op(id).after;
    for (OpId& earlier : expected)
      if (earlier >= r.begin - r.length()) earlier += r.length();
    if (expected != program.op(id + r.length()).after)
      return fmt::format("{} waits for others than {}", describe(program, id),
                         describe(program, id + r.length()));
  }
  return "";
}

OpId first_forward(const Program& program, int micro) {
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) {
    const Action& action = program.op(id).action;
    if (action.kind == ActionKind::forward && action.micro == micro) return id;
  }
  return no_op;
}

std::nullopt_t give_up(Program& program) {
  program.repeat = {};
  return std::nullopt;
}

}  // namespace

std::vector<int> micros_to_compile(int micro_batches) {
  if (micro_batches > 5) return {0, 1, 2, micro_batches - 2, micro_batches - 1};
  std::vector<int> all;
  for (int m = 0; m < micro_batches; ++m) all.push_back(m);
  return all;
}

std::optional<std::vector<TensorId>> find_repeat(Program& program, const std::vector<int>& micros) {
  constexpr std::size_t body = 2;
  if (micros.size() != 5) return std::nullopt;
  const OpId begin = first_forward(program, micros[body]), end = first_forward(program, micros[body + 1]);
  program.repeat = {begin, end, micros[body + 1] - micros[body]};
  if (begin == no_op || end == no_op) return give_up(program);
  // What is gathered ahead is for the micro-batch that follows: in the list that is a later one.
  for (OpId id = begin; id < end; ++id)
    if (Action& action = program.op(id).action; action.micro == micros[body + 1])
      action.micro = micros[body] + 1;
  Copies copies(program);
  if (!copies.compare().empty()) return give_up(program);
  program.repeat.attributes = copies.attributes();
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (const TensorId image = copies.images()[t]; image != no_tensor && program.tensors[t].base != no_tensor)
      program.tensors[t].step = distance(program, static_cast<TensorId>(t), image) / program.repeat.times;
  return copies.images();
}

void set_persistent_steps(Program& program, const std::vector<TensorId>& images) {
  for (std::size_t t = 0; t < images.size(); ++t)
    if (Tensor& tensor = program.tensors[t];
        tensor.persistent && tensor.base == no_tensor && images[t] != no_tensor)
      tensor.step = distance(program, static_cast<TensorId>(t), images[t]) / program.repeat.times;
}

std::vector<TensorId> images_of(const Program& program) {
  Copies copies(program);
  copies.compare();
  return copies.images();
}

std::string repeat_fault(const Program& program) {
  if (program.repeat.times == 1) return "";
  Copies copies(program);
  if (std::string fault = copies.compare(); !fault.empty()) return fault;
  if (copies.attributes() != program.repeat.attributes)
    return "attributes of the body do not move on as those of its copy say";
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    std::string fault = tensor_fault(program, static_cast<TensorId>(t), copies.images()[t]);
    if (!fault.empty()) return fault;
  }
  return dependency_fault(program);
}

}  // namespace ztrain::program
