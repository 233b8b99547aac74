#include "program/ir/copies.hpp"

#include <fmt/format.h>

#include "base/index.hpp"
#include "model/op_records.hpp"

namespace ztrain::program {

bool Copies::same_kind(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.category == b.category && a.tier == b.tier &&
         a.persistent == b.persistent && (a.base == no_tensor) == (b.base == no_tensor);
}

std::string_view Copies::stem(const std::string& name) {
  return std::string_view(name).substr(0, name.rfind('.'));
}

Copies::Copies(const Program& program)
    : program_(program),
      repeat_(program.repeat),
      images_(program.tensors.size(), no_tensor),
      origins_(program.tensors.size(), no_tensor),
      named_(program.tensors.size(), false) {}

std::string Copies::compare() {
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

bool Copies::same_op(OpId id) {
  const Op& a = program_.op(id);
  const Op& b = program_.op(id + repeat_.length());
  const Communication &x = a.comm, &y = b.comm;
  return a.type == b.type && a.tier == b.tier && a.stream == b.stream && a.flops == b.flops &&
         same_action(a.action, b.action) && x.kind == y.kind && x.axes == y.axes && x.peer == y.peer &&
         x.sent_bytes == y.sent_bytes && same_attributes(id, a.attributes, b.attributes) &&
         same_operands(a.inputs, b.inputs, false) && same_operands(a.outputs, b.outputs, true);
}

bool Copies::same_action(const Action& a, const Action& b) const {
  return a.kind == b.kind && a.part == b.part && a.half == b.half &&
         (a.micro < 0 ? b.micro == a.micro : b.micro - a.micro == apart_ * repeat_.stride);
}

bool Copies::same_attributes(OpId id, const Attributes& a, const Attributes& b) {
  if (a.values().size() != b.values().size()) return false;
  for (std::size_t i = 0; i < a.values().size(); ++i) {
    const auto& [key, value] = a.values()[i];
    const auto& [other_key, other] = b.values()[i];
    if (key != other_key) return false;
    if (value == other) continue;
    const auto *from = std::get_if<std::int64_t>(&value), *to = std::get_if<std::int64_t>(&other);
    if (key != Dropout::first_token_key || !from || !to || (*to - *from) % apart_ != 0) return false;
    if (in_body_) attributes_.push_back({id, key, (*to - *from) / apart_});
  }
  return true;
}

bool Copies::same_operands(const std::vector<TensorId>& a, const std::vector<TensorId>& b, bool written) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_tensor(a[i], b[i])) return false;
    // What is written at every time and kept between steps has one place.
    if (written && a[i] != b[i] && program_.tensor(a[i]).persistent) return false;
  }
  return true;
}

bool Copies::same_tensor(TensorId a, TensorId b) {
  if (program_.tensor(a).persistent && program_.tensor(a).base == no_tensor && a != b) return same_kept(a, b);
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
bool Copies::same_kept(TensorId a, TensorId b) {
  const Tensor &x = program_.tensor(a), &y = program_.tensor(b);
  if (!same_kind(x, y) || stem(x.name) != stem(y.name) || (b - a) % apart_ != 0) return false;
  if (!in_body_) return true;
  named_[at(a)] = true;
  if (images_[at(a)] != no_tensor) return images_[at(a)] == b;
  images_[at(a)] = b;
  return true;
}

bool Copies::same_offset(const Tensor& x, const Tensor& y) const {
  return x.offset == y.offset || (x.base == y.base && (y.offset - x.offset) % apart_ == 0);
}

}  // namespace ztrain::program
