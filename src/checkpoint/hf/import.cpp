#include "checkpoint/hf/import.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "base/error.hpp"
#include "base/preference_loss.hpp"
#include "base/text.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/hf/added_rows.hpp"
#include "checkpoint/hf/base_weights.hpp"
#include "checkpoint/hf/weight_source.hpp"
#include "checkpoint/host_window.hpp"
#include "config/architectures.hpp"
#include "config/hf/peft_config.hpp"
#include "config/hf/reward_model.hpp"
#include "config/hf/starting_point.hpp"
#include "config/validate/validate.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Returns text such as "2 tensors are missing:", and each on a line; "" for none.
std::string listing(const std::vector<std::string>& names, const char* what) {
  if (names.empty()) return "";
  return fmt::format("\n  {} {} {}:{}", count_text(std::ssize(names), "tensor"),
                     names.size() == 1 ? "is" : "are", what, list_lines(names, 4));
}

struct Opened {
  std::unique_ptr<WeightSource> source;  ///< has the parameters by their names
  std::vector<std::string> absent;       ///< as Imported's
};

/// Returns whether the model need not have a tensor. Throws Error for a constant of the architecture that has
/// another value in the folder.
bool may_be_left(WeightSource& files, const std::string& name, const config::Architecture* architecture) {
  if (files.may_be_left(name)) return true;
  const config::FileBuffer* buffer = architecture == nullptr ? nullptr : find_buffer(name, *architecture);
  if (buffer == nullptr || !buffer->value || elements(files.shapes().at(name)) != 1) return buffer != nullptr;
  float value = 0;
  files.read(name, 0, 1, reinterpret_cast<std::byte*>(&value), DType::f32);
  constexpr double rounding = 1.0 / 128;  // bf16 has 8 bits
  REQUIRE(std::abs(static_cast<double>(value) - *buffer->value) <= rounding * std::abs(*buffer->value),
          "model.from: tensor {} is {}, and ztrain computes {} with {} there", name, value,
          architecture->hf_class, *buffer->value);
  return true;
}

/// Returns whether a tensor is of a layer behind the model's last, which an architecture may have to predict
/// further tokens.
bool is_of_further_layer(const std::string& name, std::span<const ParameterShape> parameters,
                         const config::Architecture* architecture) {
  constexpr auto may_have = config::KeyRole::further_layers;
  if (architecture == nullptr ||
      std::ranges::count(architecture->keys, may_have, &config::ModelKey::role) == 0)
    return false;
  const auto layer_of = [](std::string_view tensor) {
    constexpr std::string_view prefix = "model.layers.";
    return tensor.starts_with(prefix) ? std::atoi(tensor.data() + prefix.size()) : -1;
  };
  int last = -1;
  for (const ParameterShape& p : parameters) last = std::max(last, layer_of(p.name));
  return layer_of(name) > last;
}

std::unique_ptr<WeightSource> open_with_rows(const fs::path& folder,
                                             std::span<const ParameterShape> parameters,
                                             const ImportOptions& options) {
  auto source = open_weights(folder, options.base, options.values);
  if (options.added.count == 0) return source;
  const auto* architecture = config::is_checkpoint(folder) ? nullptr : options.architecture;
  const bool tied = std::ranges::count(parameters, config::head_weight, &ParameterShape::name) == 0;
  std::map<std::string, std::string> names;
  for (const char* name : {config::embedding_weight, config::head_weight}) {
    const std::vector<NamedShape> one{{name, {}}};
    const TensorPart part = find_part(tensor_forms(one, architecture)[0], source->shapes());
    names[part.tensors.front()] = tied ? config::embedding_weight : name;
  }
  return with_added_rows(std::move(source), options.added, std::move(names));
}

Opened open_parameters(const fs::path& folder, std::span<const ParameterShape> parameters,
                       const ImportOptions& options);

bool may_lack_head(const ImportOptions& options) {
  return std::ranges::count(options.may_lack, config::score_weight) > 0;
}

/// Opens a folder of PEFT's, and the model that it belongs to (ImportOptions::base).
Opened open_peft(const fs::path& folder, std::span<const ParameterShape> parameters,
                 const ImportOptions& options) {
  std::vector<ParameterShape> of_model(parameters.begin(), parameters.end());
  std::erase_if(of_model, [](const ParameterShape& p) { return p.adapter; });
  ImportOptions of_base = options;
  of_base.base.clear();
  of_base.may_lack.emplace_back(config::score_weight);  // the adapters' folder may have it
  Opened opened = open_parameters(options.base, of_model, of_base);
  opened.source = with_peft(folder, parameters, options.architecture, std::move(opened.source));
  std::erase_if(opened.absent,
                [&](const std::string& name) { return opened.source->shapes().contains(name); });
  REQUIRE(may_lack_head(options) || std::ranges::count(opened.absent, config::score_weight) == 0,
          "model.from: neither '{}' nor '{}', the model that its adapters belong to, holds {}",
          folder.string(), options.base, config::score_weight);
  return opened;
}

/// Opens a folder. Requires that it holds the parameters, with their shapes, and nothing else.
Opened open_parameters(const fs::path& folder, std::span<const ParameterShape> parameters,
                       const ImportOptions& options) {
  if (config::is_peft_folder(folder)) return open_peft(folder, parameters, options);
  Opened opened{open_with_rows(folder, parameters, options), {}};
  const config::Architecture* architecture = options.architecture;
  WeightSource& files = *opened.source;
  const bool upcycles = std::ranges::any_of(
      options.may_lack, [](const std::string& glob) { return glob != config::score_weight; });
  if (config::is_checkpoint(folder) && !upcycles) architecture = nullptr;
  const bool scores = std::ranges::count(parameters, config::score_weight, &ParameterShape::name) > 0;
  const auto named = named_shapes(parameters);
  const auto forms = tensor_forms(named, architecture);
  std::vector<TensorPart> parts;
  std::vector<std::string> missing, misshapen, unexpected;
  std::set<std::string> known;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    parts.push_back(architecture == nullptr ? forms[i].front() : find_part(forms[i], files.shapes()));
    for (const std::string& tensor : parts[i].tensors) {
      if (!known.insert(tensor).second) continue;  // Parts of one tensor are named once.
      const auto at = files.shapes().find(tensor);
      const bool drawn =
          parameters[i].adapter || std::ranges::any_of(options.may_lack, [&](const std::string& glob) {
            return glob_match(glob, parameters[i].name);
          });
      if (at == files.shapes().end() && drawn)
        opened.absent.push_back(parameters[i].name);
      else if (at == files.shapes().end())
        missing.push_back(tensor);
      else if (at->second != parts[i].shape)
        misshapen.push_back(fmt::format("{} {} (the model's is {})", tensor, to_string(at->second),
                                        to_string(parts[i].shape)));
    }
  }
  for (const auto& [name, shape] : files.shapes())
    if (!known.contains(name) && !(scores && name == config::head_weight) &&
        !may_be_left(files, name, architecture) && !is_of_further_layer(name, parameters, architecture))
      unexpected.push_back(name);
  REQUIRE(missing.empty() && misshapen.empty() && unexpected.empty(),
          "model.from: '{}' does not hold the {} of the model:{}{}{}\n{}", folder.string(),
          count_text(std::ssize(known), "tensor"), listing(missing, "missing"),
          listing(unexpected, "unexpected"), listing(misshapen, "of another shape"), files.advice());
  opened.source = with_parts(std::move(opened.source), named, parts);
  return opened;
}

/// Compares the head of a folder with the embedding, for a model that has one weight for both. Transformers 4
/// drops such a head and transformers 5 keeps it, so a folder whose two differ is two models.
class TiedHead {
 public:
  TiedHead(WeightSource& source, const fs::path& folder, std::span<const ParameterShape> parameters,
           const ImportOptions& options)
      : source_(source), folder_(folder) {
    const auto has = [&](const char* name) {
      return std::ranges::count(parameters, name, &ParameterShape::name) > 0;
    };
    compares_ = !options.leaves_head && !has(config::head_weight) && !has(config::score_weight) &&
                has(config::embedding_weight) && source.shapes().contains(config::head_weight);
    if (compares_ && source.shapes().at(config::head_weight) != source.shapes().at(config::embedding_weight))
      differs(0);
  }

  bool is_of(const std::string& name) const { return compares_ && name == config::embedding_weight; }

  /// Throws Error unless elements [begin, begin + count) of the head are those of the embedding. Compares in
  /// fp32 whatever dtype the shards have, so that `ztrain check` and a run agree.
  void require_same(std::int64_t begin, std::int64_t count) {
    const std::int64_t size = size_of(DType::f32);
    head_.resize(static_cast<std::size_t>(count * size));
    embedding_.resize(head_.size());
    source_.read(config::head_weight, begin, count, head_.data(), DType::f32);
    source_.read(config::embedding_weight, begin, count, embedding_.data(), DType::f32);
    const auto at = std::ranges::mismatch(head_, embedding_).in1 - head_.begin();
    if (at < std::ssize(head_)) differs(begin + at / size);
  }

  /// Throws Error unless all elements of the head are those of the embedding.
  void require_same() {
    if (!compares_) return;
    const std::int64_t all = elements(source_.shapes().at(config::embedding_weight));
    for (std::int64_t begin = 0; begin < all; begin += block_elements)
      require_same(begin, std::min(block_elements, all - begin));
  }

 private:
  [[noreturn]] void differs(std::int64_t at) const {
    fail(
        "model.from: '{}': {} differs from {} (at element {}), and its config.json ties them "
        "(tie_word_embeddings): set model.tie_word_embeddings = false to keep both, as transformers 5 does, "
        "or true to keep the embedding alone; without a deck, set it to false in config.json",
        folder_.string(), config::head_weight, config::embedding_weight, at);
  }

  WeightSource& source_;
  const fs::path& folder_;
  bool compares_ = false;
  std::vector<std::byte> head_, embedding_;
};

class Importer {
 public:
  Importer(WeightSource& source, TiedHead& head, const fs::path& folder, const Place& place,
           const ImportOptions& options, ValueHashes* base)
      : source_(source), head_(head), folder_(folder), place_(place), options_(options), base_(base) {}

  void count(const StateShard& shard) {
    for (const Piece& piece : pieces(shard))
      total_ += piece.count * source_.element_size(parameter(piece).name, shard.dtype);
  }

  void fill(const StateShard& shard) {
    const FlatUnit& unit = place_.layout->unit(shard.unit);
    const std::int64_t begin = unit.shard_begin(place_.at), size = size_of(shard.dtype);
    HostWindow window(shard, block_elements * size);
    std::int64_t written = 0;  // bytes, from the start of the shard
    for (const Piece& piece : pieces(shard)) {
      const std::int64_t at = (piece.flat_begin - begin) * size;
      window.zero(written, at);
      written = at + piece.count * size;
      const int part = part_of(parameter(piece).slice, place_.at);
      is_owned_ = owns(place_.at, unit, parameter(piece));
      for (const LogicalRun& run :
           place_.layout->logical_runs(piece.parameter, part, piece.slice_begin, piece.count))
        copy(piece, run, window, at + (run.slice_begin - piece.slice_begin) * size, shard.dtype);
    }
    window.flush();
    window.zero(written, unit.shard_elements * size);
  }

  std::int64_t done() const { return done_; }

 private:
  /// Returns the pieces that the source has.
  std::vector<Piece> pieces(const StateShard& shard) const {
    auto found = place_.layout->pieces(shard.unit, place_.at);
    std::erase_if(found, [&](const Piece& p) { return !source_.shapes().contains(parameter(p).name); });
    return found;
  }
  const ParameterShape& parameter(const Piece& piece) const {
    return place_.layout->parameters()[static_cast<std::size_t>(piece.parameter)];
  }

  /// begin counts bytes of the shard before the run.
  void copy(const Piece& piece, const LogicalRun& run, HostWindow& window, std::int64_t begin, DType dtype) {
    const std::string& name = parameter(piece).name;
    const std::int64_t size = source_.element_size(name, dtype);
    for (std::int64_t i = 0, end = 0; i < run.count; i += block_elements, begin = end) {
      const std::int64_t n = std::min(block_elements, run.count - i);
      end = begin + n * size_of(dtype);
      if (!window.holds(begin, end)) window.flush();
      std::byte* const to = window.place(begin, end);
      source_.read(name, run.logical_begin + i, n, to, dtype);
      require_computable(name, run.logical_begin + i, to, n, dtype);
      if (head_.is_of(name)) head_.require_same(run.logical_begin + i, n);
      if (is_owned_) hash(piece, run.logical_begin + i, n, to, dtype);
      done_ += n * size;
      if (options_.progress) options_.progress(done_, total_);
    }
  }

  void hash(const Piece& piece, std::int64_t begin, std::int64_t count, const std::byte* data, DType dtype) {
    if (base_ != nullptr) base_->add(ztrain::at(piece.parameter), begin, count, data, dtype);
    if (options_.frozen != nullptr && !parameter(piece).trainable)
      options_.frozen->add(ztrain::at(piece.parameter), begin, count, data, dtype);
  }

  /// Throws Error if a weight becomes infinite in the dtype that the model computes with. The shards may be
  /// wider.
  void require_computable(const std::string& name, std::int64_t begin, const std::byte* data,
                          std::int64_t count, DType dtype) {
    if (!options_.computed || size_of(*options_.computed) >= size_of(dtype)) return;
    const DType computed = *options_.computed;
    // fp16 and bf16 values are within the range of bf16.
    if (computed == DType::bf16 && source_.element_size(name, dtype) == size_of(computed)) return;
    rounded_.resize(static_cast<std::size_t>(count * size_of(computed)));
    convert(data, dtype, rounded_.data(), computed, count);
    REQUIRE(
        all_finite(rounded_.data(), computed, count),
        "model.from: '{}': tensor {} holds what {} cannot hold (elements {} to {}): set precision.parameters "
        "to {}fp32",
        folder_.string(), name, name_of(computed), begin, begin + count - 1,
        computed == DType::f16 ? "bf16 or " : "");
  }

  WeightSource& source_;
  TiedHead& head_;
  const fs::path& folder_;
  const Place& place_;
  const ImportOptions& options_;
  ValueHashes* base_;      ///< null: the source is no checkpoint that lacks its base
  bool is_owned_ = false;  ///< whether this rank owns the piece that is read
  std::vector<std::byte> rounded_;
  std::int64_t done_ = 0, total_ = 0;
};

}  // namespace

std::unique_ptr<WeightSource> open_weights(const fs::path& folder, const std::string& base,
                                           WeightValues values) {
  return config::is_checkpoint(folder) ? open_checkpoint_weights(folder, base, values)
                                       : open_safetensors_folder(folder);
}

std::unique_ptr<WeightSource> open_model_weights(const fs::path& folder,
                                                 std::span<const ParameterShape> parameters,
                                                 const ImportOptions& options) {
  return open_parameters(folder, parameters, options).source;
}

ImportOptions import_options(const config::Deck& deck) {
  const config::Model& m = deck.model;
  const config::Architecture& architecture = config::find_architecture(m.family);
  std::vector<std::string> may_lack;
  // The routers, if model.from is a dense model; the head, if it is one of words.
  if (m.upcycled) may_lack.push_back(fmt::format("*.mlp.{}.weight", architecture.style.router));
  if (is_reward_loss(deck.preference.loss_type) && !m.from.empty() &&
      (config::is_peft_folder(m.from) || !config::is_reward_folder(m.from)))
    may_lack.emplace_back(config::score_weight);
  return {.computed = deck.precision.parameters,
          .leaves_head = config::is_explicit(deck, "model.tie_word_embeddings"),
          .added = {m.add_tokens, m.new_rows == "normal", m.initializer_range,
                    static_cast<std::uint64_t>(deck.run.seed)},
          .may_lack = std::move(may_lack),
          .architecture = &architecture,
          .base = m.base};
}

Imported import_weights(const fs::path& folder, const Place& place, std::span<const StateShard> shards,
                        const ImportOptions& options) {
  auto [source, absent] = open_parameters(folder, place.layout->parameters(), options);
  Imported imported{0, std::move(absent), {}};
  if (config::is_checkpoint(folder))
    imported.base = base_to_read(folder, place.layout->parameters(), options.base);
  TiedHead head(*source, folder, place.layout->parameters(), options);
  Importer importer(*source, head, folder, place, options, imported.base ? &imported.base->hashes : nullptr);
  for (const StateShard& shard : shards) importer.count(shard);
  for (const StateShard& shard : shards) importer.fill(shard);
  imported.bytes = importer.done();
  return imported;
}

ReadParameter open_elements(const fs::path& folder, std::span<const ParameterShape> parameters,
                            const ImportOptions& options, const QuantizedNames& quantized) {
  const std::shared_ptr<WeightSource> source =
      with_codes(open_parameters(folder, parameters, options).source, quantized);
  return [source](const std::string& name, std::int64_t begin, std::int64_t count, float* to) {
    source->read(name, begin, count, reinterpret_cast<std::byte*>(to), DType::f32);
  };
}

std::int64_t require_weights(const fs::path& folder, std::span<const ParameterShape> parameters,
                             const ImportOptions& options) {
  const auto source = open_parameters(folder, parameters, options).source;
  TiedHead(*source, folder, parameters, options).require_same();
  std::int64_t bytes = 0;
  for (const ParameterShape& p : parameters)
    if (source->shapes().contains(p.name))
      bytes += elements(p.shape) * source->element_size(p.name, DType::f32);
  return bytes;
}

}  // namespace ztrain::checkpoint
