#include "program/ir/repeat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/index.hpp"
#include "program/ir/order.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

/// What is repeated beside its copy, op by op: whether both do the same, and which tensor stands for which.
class Copies {
 public:
  explicit Copies(const Program& program)
      : program_(program),
        repeat_(program.repeat),
        images_(program.tensors.size(), no_tensor),
        origins_(program.tensors.size(), no_tensor),
        named_(program.tensors.size(), false) {}

  /// "" where each time from the first that is like the body (Repeat::alike) to its copy does the same.
  std::string compare() {
    const auto ops = static_cast<OpId>(program_.ops.size());
    if (repeat_.begin < 0 || repeat_.length() <= 0 || repeat_.times < 1 || repeat_.stride < 1 ||
        repeat_.alike < 0 || repeat_.alike_from() < 0 || repeat_.end > ops - repeat_.length())
      return fmt::format("ops {} to {} of {} have no copy behind them", repeat_.begin, repeat_.end, ops);
    for (OpId id = repeat_.alike_from(); id < repeat_.end; ++id) {
      in_body_ = id >= repeat_.begin;
      // The copy is what the body would be after all its times.
      apart_ = in_body_ ? repeat_.times : 1;
      if (!same_op(id))
        return fmt::format("{} and {} do not do the same", describe(program_, id),
                           describe(program_, id + repeat_.length()));
    }
    return "";
  }

  /// By tensor: the one that the next time names instead; itself for what both name.
  const std::vector<TensorId>& images() const { return images_; }
  /// By tensor: whether the body names it, or a view of it.
  const std::vector<bool>& named() const { return named_; }
  const std::vector<AttributeStep>& attributes() const { return attributes_; }

  static bool same_kind(const Tensor& a, const Tensor& b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.category == b.category && a.tier == b.tier &&
           a.persistent == b.persistent && (a.base == no_tensor) == (b.base == no_tensor);
  }
  /// "tokens" of "tokens.17"
  static std::string_view stem(const std::string& name) {
    return std::string_view(name).substr(0, name.rfind('.'));
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
    if (program_.tensor(a).persistent && program_.tensor(a).base == no_tensor && a != b)
      return same_kept(a, b);
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

  /// Inputs of another micro-batch. The body may read some that what is like it reads too, for a micro-batch
  /// that goes forward at one time and backward at another: as many places further at each time.
  bool same_kept(TensorId a, TensorId b) {
    const Tensor &x = program_.tensor(a), &y = program_.tensor(b);
    if (!same_kind(x, y) || stem(x.name) != stem(y.name) || (b - a) % apart_ != 0) return false;
    if (!in_body_) return true;
    named_[at(a)] = true;
    if (images_[at(a)] != no_tensor) return images_[at(a)] == b;
    images_[at(a)] = b;
    return true;
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

/// How far the place of a tensor is from its image's: of views of one tensor within that, of what is kept
/// between steps by address.
std::int64_t distance(const Program& program, TensorId a, TensorId b) {
  const Tensor &x = program.tensor(a), &y = program.tensor(b);
  if (a == b) return 0;
  if (x.base != no_tensor) return y.offset - x.offset;
  return x.persistent ? y.address - x.address : 0;
}

/// As many as are alive at once, of tensors that follow each other from time to time: each is dead before the
/// one so many behind it begins. 0: more than there are.
std::size_t rota_of(const Program& program, const std::vector<TensorId>& chain) {
  for (std::size_t n = 1; n < chain.size(); ++n) {
    bool follow = true;
    for (std::size_t k = 0; k + n < chain.size() && follow; ++k)
      follow = program.tensor(chain[k]).last < program.tensor(chain[k + n]).first;
    if (follow) return n;
  }
  return 0;
}

/// The input of each time lies where its step says.
std::string input_fault(const Program& program, TensorId a, TensorId b) {
  const Tensor& first = program.tensor(a);
  const int times = program.repeat.times;
  for (int t = 1; t < times; ++t) {
    const TensorId id = a + (b - a) / times * t;
    const Tensor& input = program.tensor(id);
    if ((b - a) % times != 0 || !Copies::same_kind(first, input) ||
        Copies::stem(input.name) != Copies::stem(first.name) ||
        input.address != first.address + t * first.step)
      return fmt::format("'{}' is not where the body would read it the {}th time", input.name, t + 1);
  }
  return "";
}

/// Of what stands for each other and has no rota.
std::string place_fault(const Program& program, TensorId a, TensorId b) {
  const Tensor &x = program.tensor(a), &y = program.tensor(b);
  if (a == b && x.first >= program.repeat.begin)
    return fmt::format("'{}' begins in the body and is used by its copy", x.name);
  if (a != b && program.repeat.alike == 0 && x.first < program.repeat.begin && y.first < program.repeat.begin)
    return fmt::format("'{}' and '{}', which stands for it in the copy, both begin before the body", x.name,
                       y.name);
  if (a != b && x.rota < 0 && x.address != y.address)
    return fmt::format("'{}' is at {}, but '{}', which stands for it in the copy, at {}", x.name, x.address,
                       y.name, y.address);
  return "";
}

std::string tensor_fault(const Program& program, const Copies& copies, TensorId a) {
  const Tensor& x = program.tensor(a);
  const TensorId b = copies.images()[at(a)];
  if (b == no_tensor || !copies.named()[at(a)])
    return x.step == 0 ? "" : fmt::format("'{}' moves on, but the body does not name it", x.name);
  if (x.step * program.repeat.times != distance(program, a, b))
    return fmt::format("'{}' moves on by {} bytes each time, but '{}' is not where that leads", x.name,
                       x.step, program.tensor(b).name);
  if (x.base != no_tensor) return "";
  if (x.persistent) return a == b ? "" : input_fault(program, a, b);
  return place_fault(program, a, b);
}

/// Places that rotate are those of the tensors that follow each other.
std::string rota_fault(const Program& program, const std::vector<TensorId>& images) {
  std::vector<bool> expected(program.tensors.size(), false);
  std::size_t rotas = 0;
  for (const std::vector<TensorId>& chain : chains_of(program, images)) {
    const int rota = program.tensor(chain.front()).rota;
    if (rota < 0) continue;
    ++rotas;
    if (at(rota) >= program.repeat.rotas.size() || chain.size() < program.repeat.rotas[at(rota)].size() ||
        !std::equal(program.repeat.rotas[at(rota)].begin(), program.repeat.rotas[at(rota)].end(),
                    chain.begin()))
      return fmt::format("'{}' has the slots of others", program.tensor(chain.front()).name);
    const std::vector<TensorId>& own = program.repeat.rotas[at(rota)];
    for (std::size_t k = 0; k < chain.size(); ++k) {
      const Tensor &tensor = program.tensor(chain[k]), &place = program.tensor(own[k % own.size()]);
      expected[at(chain[k])] = true;
      if (tensor.rota != rota || at(tensor.slot) != k % own.size())
        return fmt::format("'{}' does not follow '{}' in its rota", tensor.name, program.tensor(own[0]).name);
      if (tensor.address != place.address)
        return fmt::format("'{}' is at {}, but '{}', whose slot it has, at {}", tensor.name, tensor.address,
                           place.name, place.address);
    }
  }
  for (std::size_t t = 0; t < expected.size(); ++t)
    if (program.tensors[t].rota >= 0 && !expected[t])
      return fmt::format("'{}' rotates with nothing", program.tensors[t].name);
  return rotas == program.repeat.rotas.size() ? "" : "there are slots that no tensor has";
}

std::string dependency_fault(const Program& program) {
  const Repeat& r = program.repeat;
  for (OpId id = r.begin; id < r.end; ++id) {
    std::vector<OpId> expected = program.op(id).after;
    for (OpId& earlier : expected)
      if (earlier >= r.alike_from() - r.length()) earlier += r.length();
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

std::nullopt_t give_up(Program& program) {
  program.repeat = {};
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<TensorId>> find_repeat(Program& program, const BodyPlace& place) {
  const OpId begin = first_forward(program, place.micro, place.blocks);
  const OpId end = first_forward(program, place.micro + place.times * place.stride, place.blocks);
  program.repeat = {
      .begin = begin, .end = end, .times = place.times, .stride = place.stride, .alike = place.alike};
  const Repeat& r = program.repeat;
  if (begin == no_op || end <= begin || r.end + r.length() > static_cast<OpId>(program.ops.size()))
    return give_up(program);
  number_as_body(program);
  Copies copies(program);
  if (!copies.compare().empty()) return give_up(program);
  program.repeat.attributes = copies.attributes();
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (copies.named()[t] && program.tensors[t].base != no_tensor)
      program.tensors[t].step =
          distance(program, static_cast<TensorId>(t), copies.images()[t]) / program.repeat.times;
  return copies.images();
}

std::vector<std::vector<TensorId>> chains_of(const Program& program, const std::vector<TensorId>& images) {
  const auto goes_on = [&](std::size_t t) {
    return images[t] != no_tensor && images[t] != static_cast<TensorId>(t) &&
           !program.tensors[t].persistent && program.tensors[t].base == no_tensor;
  };
  std::vector<bool> follows(images.size(), false);
  for (std::size_t t = 0; t < images.size(); ++t)
    if (goes_on(t)) follows[at(images[t])] = true;
  std::vector<std::vector<TensorId>> chains;
  for (std::size_t t = 0; t < images.size(); ++t) {
    if (!goes_on(t) || follows[t]) continue;
    std::vector<TensorId>& chain = chains.emplace_back(1, static_cast<TensorId>(t));
    while (goes_on(at(chain.back()))) chain.push_back(images[at(chain.back())]);
  }
  return chains;
}

std::optional<std::vector<TensorId>> set_rotas(Program& program, const std::vector<TensorId>& images) {
  std::vector<TensorId> next(images.size(), no_tensor);
  for (const std::vector<TensorId>& chain : chains_of(program, images)) {
    const std::size_t rota = rota_of(program, chain);
    if (rota == 0 || (rota > 1 && rota > at(program.repeat.alike) + 1)) return std::nullopt;
    if (rota == 1) {
      for (std::size_t k = 0; k + 1 < chain.size(); ++k) next[at(chain[k])] = chain[k + 1];
      continue;
    }
    for (std::size_t k = 0; k < chain.size(); ++k) {
      program.tensor(chain[k]).rota = static_cast<int>(program.repeat.rotas.size());
      program.tensor(chain[k]).slot = static_cast<int>(k % rota);
    }
    program.repeat.rotas.emplace_back(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(rota));
  }
  return next;
}

void set_steps(Program& program, const std::vector<TensorId>& images) {
  Copies copies(program);
  copies.compare();
  for (std::size_t t = 0; t < images.size(); ++t)
    if (Tensor& tensor = program.tensors[t];
        tensor.persistent && tensor.base == no_tensor && copies.named()[t])
      tensor.step = distance(program, static_cast<TensorId>(t), images[t]) / program.repeat.times;
}

std::vector<TensorId> images_of(const Program& program) {
  Copies copies(program);
  copies.compare();
  return copies.images();
}

int times_to_prove(const Program& program) {
  std::int64_t longest = program.repeat.alike, all = 1;
  for (const auto& rota : program.repeat.rotas) {
    longest = std::max(longest, std::ssize(rota));
    all = std::min<std::int64_t>(std::lcm(all, std::ssize(rota)), program.repeat.times);
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
  if (std::string fault = rota_fault(program, copies.images()); !fault.empty()) return fault;
  return dependency_fault(program);
}

}  // namespace ztrain::program
