#include "checkpoint/diff.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/frozen_base.hpp"
#include "checkpoint/reader.hpp"

namespace ztrain::checkpoint {
namespace {

constexpr std::int64_t items_at_once = std::int64_t{1} << 18;

using Tensor = std::pair<std::string, std::string>;  ///< state and parameter

/// The tensors of one checkpoint.
class Side {
 public:
  explicit Side(const std::filesystem::path& folder) : reader_(folder, true) {
    const Catalog& catalog = reader_.catalog();
    if (auto base = frozen_base_of(read_metadata(folder), folder.string()))
      frozen_ = std::move(base->parameters);
    for (const auto& [name, values] : frozen_) tensors_.emplace_back(weights_state, name);
    for (std::int64_t s = 0; s < std::ssize(catalog.states); ++s)
      for (std::int64_t p = 0; p < std::ssize(catalog.parameters); ++p)
        if (!reader_.pieces(s, p).empty()) {
          tensors_.emplace_back(catalog.states[static_cast<std::size_t>(s)].name,
                                catalog.parameters[static_cast<std::size_t>(p)].name);
          places_.emplace(tensors_.back(), std::pair(s, p));
        }
  }

  const std::vector<Tensor>& tensors() const { return tensors_; }
  bool has(const Tensor& tensor) const { return places_.contains(tensor); }
  std::int64_t granule(const Tensor& tensor) const {
    return reader_.catalog().states[static_cast<std::size_t>(places_.at(tensor).first)].granule;
  }
  const ParameterEntry& parameter(const Tensor& tensor) const {
    return reader_.catalog().parameters[static_cast<std::size_t>(places_.at(tensor).second)];
  }
  DType dtype(const Tensor& tensor) const { return pieces(tensor).front().type(); }
  /// Returns the slices in which it was written; blocks of elements count within them.
  TensorSlice slice(const Tensor& tensor) const {
    return granule(tensor) == 1 ? TensorSlice{} : slices_of(parameter(tensor), pieces(tensor).front());
  }

  void read(const Tensor& tensor, const Wanted& wanted, std::byte* to, DType as) {
    for (const PieceRow& piece : pieces(tensor)) reader_.read(piece, wanted, to, as);
  }

  /// Returns the hash of weights that the checkpoint does not hold.
  std::optional<FrozenValues> frozen(const Tensor& tensor) const {
    const auto found = frozen_.find(tensor.second);
    return tensor.first == weights_state && found != frozen_.end() ? std::optional(found->second)
                                                                   : std::nullopt;
  }
  /// Returns the same hash of weights that the checkpoint holds.
  FrozenValues hashed(const Tensor& tensor, DType dtype) {
    const ParameterShape shape{.name = tensor.second, .shape = parameter(tensor).shape, .slice = {}};
    ValueHashes hashes({&shape, 1});
    std::vector<std::byte> block(static_cast<std::size_t>(items_at_once * size_of(dtype)));
    for (std::int64_t at = 0, all = elements(shape.shape), n = 0; at < all; at += n) {
      n = std::min(items_at_once, all - at);
      read(tensor, {{}, 0, at, n}, block.data(), dtype);
      hashes.add(0, at, n, block.data(), dtype);
    }
    return {dtype, hashes.sums()[0]};
  }

 private:
  std::span<const PieceRow> pieces(const Tensor& tensor) const {
    const auto [state, parameter] = places_.at(tensor);
    return reader_.pieces(state, parameter);
  }

  Reader reader_;
  std::map<std::string, FrozenValues> frozen_;
  std::vector<Tensor> tensors_;
  std::map<Tensor, std::pair<std::int64_t, std::int64_t>> places_;
};

/// Returns the type as which both are read, or nothing if there is none.
std::optional<DType> common_type(DType a, DType b) {
  if (a == b) return a;
  return converts(a, DType::f32) && converts(b, DType::f32) ? std::optional(DType::f32) : std::nullopt;
}

template <class T>
std::vector<double> values_of(const std::vector<std::byte>& bytes, std::int64_t count) {
  std::vector<T> items(static_cast<std::size_t>(count));
  std::memcpy(items.data(), bytes.data(), items.size() * sizeof(T));
  return {items.begin(), items.end()};
}

std::vector<double> numbers(const std::vector<std::byte>& bytes, DType dtype, std::int64_t count) {
  switch (dtype) {
    case DType::f64:
      return values_of<double>(bytes, count);
    case DType::f32:
      return values_of<float>(bytes, count);
    case DType::i64:
      return values_of<std::int64_t>(bytes, count);
    case DType::i32:
      return values_of<std::int32_t>(bytes, count);
    case DType::u8:
      return values_of<std::uint8_t>(bytes, count);
    default: {
      std::vector<std::byte> wide(static_cast<std::size_t>(4 * count));
      convert(bytes.data(), dtype, wide.data(), DType::f32, count);
      return values_of<float>(wide, count);
    }
  }
}

/// Compares the items of one block, whose first is item `begin` of the tensor.
void compare(const std::vector<std::byte>& a, const std::vector<std::byte>& b, DType dtype,
             std::int64_t begin, std::int64_t count, TensorDifference& found) {
  const std::int64_t size = size_of(dtype);
  if (std::memcmp(a.data(), b.data(), static_cast<std::size_t>(count * size)) == 0) return;
  const auto of_a = numbers(a, dtype, count), of_b = numbers(b, dtype, count);
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::memcmp(a.data() + i * size, b.data() + i * size, static_cast<std::size_t>(size)) == 0) continue;
    const auto at = static_cast<std::size_t>(i);
    const double apart = std::abs(of_a[at] - of_b[at]);
    const double distance = std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
    if (found.differing++ == 0) found.first = begin + i;
    found.largest = std::max(found.largest, distance);
    found.mean += distance;  // a sum until all items are seen
  }
}

std::string why_not_compared(const Side& a, const Side& b, const Tensor& tensor) {
  if (!b.has(tensor)) return "the second has none";
  if (!a.has(tensor)) return "the first has none";
  const auto &of_a = a.parameter(tensor), &of_b = b.parameter(tensor);
  if (of_a.shape != of_b.shape)
    return fmt::format("shape {} and {}", to_string(of_a.shape), to_string(of_b.shape));
  if (!common_type(a.dtype(tensor), b.dtype(tensor)))
    return fmt::format("{} and {}", name_of(a.dtype(tensor)), name_of(b.dtype(tensor)));
  if (a.granule(tensor) != b.granule(tensor))
    return fmt::format("an item for every {} elements and for every {}", a.granule(tensor),
                       b.granule(tensor));
  if (!same_slices(a.slice(tensor), b.slice(tensor))) return "blocks of slices that differ (mesh.tensor)";
  return "";
}

/// Compares weights that at least one of the checkpoints does not hold, by their hashes.
std::string difference_of_frozen(Side& a, Side& b, const Tensor& tensor) {
  const auto of_a = a.frozen(tensor), of_b = b.frozen(tensor);
  if (!of_a && !a.has(tensor)) return "the first has none";
  if (!of_b && !b.has(tensor)) return "the second has none";
  const DType dtype = (of_a ? *of_a : *of_b).dtype;
  if ((of_a ? *of_a : a.hashed(tensor, dtype)) == (of_b ? *of_b : b.hashed(tensor, dtype))) return "";
  return "other frozen weights, by their hashes";
}

TensorDifference difference(Side& a, Side& b, const Tensor& tensor, const Progress& progress) {
  if (a.frozen(tensor) || b.frozen(tensor))
    return {.state = tensor.first, .name = tensor.second, .what = difference_of_frozen(a, b, tensor)};
  TensorDifference found{
      .state = tensor.first, .name = tensor.second, .what = why_not_compared(a, b, tensor)};
  if (!found.what.empty()) return found;
  const DType dtype = *common_type(a.dtype(tensor), b.dtype(tensor));
  const StoredForm form = stored_form(a.parameter(tensor), a.granule(tensor), a.slice(tensor));
  found.items = form.items_before(std::max(1, form.slice.parts));
  std::vector<std::byte> of_a(static_cast<std::size_t>(items_at_once * size_of(dtype))), of_b = of_a;
  for (int part = 0; part < std::max(1, form.slice.parts); ++part)
    for (std::int64_t at = 0, all = form.items(part); at < all; at += items_at_once) {
      const Wanted wanted{a.slice(tensor), part, at, std::min(items_at_once, all - at)};
      a.read(tensor, wanted, of_a.data(), dtype);
      b.read(tensor, wanted, of_b.data(), dtype);
      compare(of_a, of_b, dtype, form.items_before(part) + at, wanted.count, found);
      if (progress) progress(form.items_before(part) + at + wanted.count, found.items);
    }
  if (found.items > 0) found.mean /= static_cast<double>(found.items);
  return found;
}

}  // namespace

Differences diff(const std::filesystem::path& a, const std::filesystem::path& b, const DiffOptions& options) {
  Side first(a), second(b);
  std::vector<Tensor> tensors = first.tensors();
  for (const Tensor& tensor : second.tensors())
    if (!first.has(tensor) && !first.frozen(tensor)) tensors.push_back(tensor);
  Differences found;
  for (std::int64_t i = options.part; i < std::ssize(tensors); i += options.parts) {
    TensorDifference one = difference(first, second, tensors[static_cast<std::size_t>(i)], options.progress);
    one.order = i;
    if (one.what.empty() && one.differing == 0)
      ++found.same;
    else
      found.tensors.push_back(std::move(one));
  }
  return found;
}

}  // namespace ztrain::checkpoint
