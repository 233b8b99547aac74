#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/hf/weight_source.hpp"
#include "kernel_interface/quantized_weights.hpp"

namespace ztrain::checkpoint {
namespace {

/// Weights as they are computed with if they are kept in 4 or 8 bits. A weight is read once beforehand to
/// find the statistics that its codes depend on.
class QuantizedSource : public WrappedWeights {
 public:
  QuantizedSource(std::unique_ptr<WeightSource> source, const QuantizedNames& quantized)
      : WrappedWeights(std::move(source)), form_(quantized.form), names_(quantized.names) {
    shapes_ = source_->shapes();
  }

  void read(const std::string& name, std::int64_t begin, std::int64_t count, std::byte* data,
            DType to) override {
    if (!names_.contains(name)) return source_->read(name, begin, count, data, to);
    const Shape& shape = shapes_.at(name);
    const std::int64_t all = elements(shape), first = begin / scale_block * scale_block,
                       end = std::min(ceil_div(begin + count, scale_block) * scale_block, all);
    const std::vector<float>& statistics = statistics_of(name);
    values_ = values(name, first, end - first);
    if (form_.code == WeightCode::int8)
      for (std::int64_t e = first; e < end; ++e) {
        const float largest = statistics[at(e / shape.back())];
        float& value = values_[at(e - first)];
        value = decode_int8(encode_int8(value, largest), largest);
      }
    for (std::int64_t e = first; form_.in_blocks() && e < end; e += scale_block) {
      float* const block = values_.data() + (e - first);
      const std::int64_t n = std::min(scale_block, all - e);
      const float scale = ByScale::kept(largest_magnitude(block, n), n == scale_block);
      decode_block(form_.code, block, n, scale, form_.nested ? kept_scale(e, all, scale, statistics) : scale);
    }
    convert(reinterpret_cast<const std::byte*>(values_.data() + (begin - first)), DType::f32, data, to,
            count);
  }

 private:
  std::vector<float> values(const std::string& name, std::int64_t begin, std::int64_t count) {
    std::vector<float> found(at(count));
    for (std::int64_t i = 0; i < count; i += block_elements)
      source_->read(name, begin + i, std::min(block_elements, count - i),
                    reinterpret_cast<std::byte*>(found.data() + i), DType::f32);
    return found;
  }

  float kept_scale(std::int64_t element, std::int64_t all, float scale,
                   const std::vector<float>& statistics) const {
    const std::int64_t group = element / scale_group, blocks = ceil_div(all, scale_block);
    const float mean = statistics.back(), largest = statistics[at(group)];
    const bool whole = (group + 1) * nested_block <= blocks;
    return nested_scale(scale_levels[encode_scale(scale - mean, largest, whole)], largest, mean);
  }

  const std::vector<float>& statistics_of(const std::string& name) {
    const auto [found, fresh] = statistics_.try_emplace(name);
    if (!fresh) return found->second;
    const Shape& shape = shapes_.at(name);
    const std::int64_t all = elements(shape);
    ScalesOfWeight scales(form_, all, shape.back());
    for (std::int64_t begin = 0; begin < all; begin += block_elements) {
      const std::vector<float> window = values(name, begin, std::min(block_elements, all - begin));
      scales.add(begin, window.data(), std::ssize(window));
    }
    return found->second = scales.statistics();
  }

  WeightForm form_;
  std::set<std::string> names_;
  std::map<std::string, std::vector<float>> statistics_;
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<WeightSource> with_codes(std::unique_ptr<WeightSource> source,
                                         const QuantizedNames& quantized) {
  if (!quantized.form.any()) return source;
  return std::make_unique<QuantizedSource>(std::move(source), quantized);
}

}  // namespace ztrain::checkpoint
