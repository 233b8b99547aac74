#include "checkpoint/hf/added_rows.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/philox.hpp"
#include "checkpoint/format/convert.hpp"
#include "config/architectures.hpp"

namespace ztrain::checkpoint {
namespace {

class AddedRowsSource : public WrappedWeights {
 public:
  AddedRowsSource(std::unique_ptr<WeightSource> source, const AddedRows& rows,
                  std::map<std::string, std::string> parameters)
      : WrappedWeights(std::move(source)), rows_(rows), parameters_(std::move(parameters)) {
    shapes_ = source_->shapes();
    for (const auto& [name, parameter] : parameters_)
      if (const auto at = shapes_.find(name); at != shapes_.end()) at->second[0] += rows.count;
  }

  void read(const std::string& name, std::int64_t begin, std::int64_t count, std::byte* data,
            DType to) override {
    const std::int64_t old = elements(source_->shapes().at(name));
    const std::int64_t stored = std::clamp<std::int64_t>(old - begin, 0, count);
    if (stored > 0) source_->read(name, begin, stored, data, to);
    if (stored == count) return;
    std::vector<float> made(static_cast<std::size_t>(count - stored));
    for (std::size_t i = 0; i < made.size(); ++i)
      made[i] = element(name, begin + stored + static_cast<std::int64_t>(i));
    convert(reinterpret_cast<const std::byte*>(made.data()), DType::f32, data + stored * size_of(to), to,
            std::ssize(made));
  }

 private:
  float element(const std::string& name, std::int64_t index) {
    if (!rows_.drawn) {
      const std::vector<float>& row = mean_of(name);
      return row[static_cast<std::size_t>(index % std::ssize(row))];
    }
    const std::uint64_t stream = hash_text(parameters_.at(name));
    return static_cast<float>(rows_.std * normal(rows_.seed, stream, static_cast<std::uint64_t>(index)));
  }

  const std::vector<float>& mean_of(const std::string& name) {
    std::vector<float>& row = means_[name];
    if (!row.empty()) return row;
    const std::int64_t all = elements(source_->shapes().at(name)), count = source_->shapes().at(name)[0],
                       width = all / count;
    std::vector<double> sums(static_cast<std::size_t>(width));
    std::vector<float> block(static_cast<std::size_t>(std::min(block_elements, all)));
    for (std::int64_t begin = 0; begin < all; begin += block_elements) {
      const std::int64_t n = std::min(block_elements, all - begin);
      source_->read(name, begin, n, reinterpret_cast<std::byte*>(block.data()), DType::f32);
      for (std::int64_t i = 0; i < n; ++i)
        sums[static_cast<std::size_t>((begin + i) % width)] += double{block[static_cast<std::size_t>(i)]};
    }
    for (const double sum : sums) row.push_back(static_cast<float>(sum / static_cast<double>(count)));
    return row;
  }

  AddedRows rows_;
  std::map<std::string, std::string> parameters_;
  std::map<std::string, std::vector<float>> means_;
};

}  // namespace

std::unique_ptr<WeightSource> with_added_rows(std::unique_ptr<WeightSource> source, const AddedRows& rows,
                                              std::map<std::string, std::string> parameters) {
  return std::make_unique<AddedRowsSource>(std::move(source), rows, std::move(parameters));
}

}  // namespace ztrain::checkpoint
