#include <algorithm>

#include "base/error.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/hf/base_weights.hpp"
#include "checkpoint/hf/weight_source.hpp"
#include "checkpoint/reader.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* checkpoint_advice =
    "give the checkpoint of a run with the same [model] keys (model.from); one with adapters goes into a run "
    "without them once `ztrain export` has merged them";

class CheckpointWeights : public WeightSource {
 public:
  CheckpointWeights(const fs::path& folder, const std::string& base, WeightValues values)
      : folder_(folder),
        reader_(folder, true),
        values_(values),
        base_(open_base(folder, reader_.catalog(), base)) {
    for (const ParameterEntry& p : reader_.catalog().parameters) {
      reader_.weights(std::ssize(numbers_), values);
      numbers_.emplace(p.name, static_cast<std::int64_t>(numbers_.size()));
      shapes_[p.name] = p.shape;
      REQUIRE(!p.elsewhere || base_->shapes().contains(p.name), "{}: its frozen weights lack {}",
              folder.string(), p.name);
    }
  }

  bool may_be_left(const std::string&) const override { return false; }

  const char* advice() const override { return checkpoint_advice; }

  std::int64_t element_size(const std::string& name, DType to) const override {
    if (is_in_base(name)) return base_->element_size(name, to);
    const auto pieces = reader_.weights(numbers_.at(name), values_);
    if (pieces.empty()) return size_of(to);  // there are no elements
    REQUIRE(converts(pieces.front().type(), to), "{}: {} is {}, which does not become {}; {}",
            folder_.string(), name, name_of(pieces.front().type()), name_of(to), checkpoint_advice);
    return size_of(pieces.front().type());
  }

  void read(const std::string& name, std::int64_t begin, std::int64_t count, std::byte* data,
            DType to) override {
    if (is_in_base(name)) return base_->read(name, begin, count, data, to);
    element_size(name, to);
    const Wanted wanted{{}, 0, begin, count};
    std::int64_t found = 0;
    for (const PieceRow& piece : reader_.weights(numbers_.at(name), values_))
      found += reader_.read(piece, wanted, data, to);
    REQUIRE(found == count, "{}: holds {} of {} elements of {} from {} on; {}", folder_.string(), found,
            count, name, begin, checkpoint_advice);
    REQUIRE(all_finite(data, to, count),
            "{}: {} holds NaN or infinity, or what {} cannot hold (elements {} to {}); give an older "
            "checkpoint (model.from)",
            folder_.string(), name, name_of(to), begin, begin + count - 1);
  }

 private:
  bool is_in_base(const std::string& name) const {
    return reader_.catalog().parameters[static_cast<std::size_t>(numbers_.at(name))].elsewhere;
  }

  fs::path folder_;
  Reader reader_;
  WeightValues values_;
  std::unique_ptr<WeightSource> base_;  ///< null if the checkpoint holds all weights
  std::map<std::string, std::int64_t> numbers_;
};

}  // namespace

std::unique_ptr<WeightSource> open_checkpoint_weights(const fs::path& folder, const std::string& base,
                                                      WeightValues values) {
  return std::make_unique<CheckpointWeights>(folder, base, values);
}

}  // namespace ztrain::checkpoint
