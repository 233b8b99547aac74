#include "train/frozen_weights.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "checkpoint/hf/base_weights.hpp"
#include "checkpoint/rank_group.hpp"
#include "config/adapters.hpp"
#include "config/hf/starting_point.hpp"
#include "config/validate/validate.hpp"
#include "job/weights.hpp"

namespace ztrain::train {
namespace {

/// Throws Error if a checkpoint does not hold the weights of which codes are to be made, but what their codes
/// said.
void require_own_base(const std::string& from) {
  if (!config::is_checkpoint(from)) return;
  const auto base = checkpoint::frozen_base_of(checkpoint::read_metadata(from), from);
  REQUIRE(
      !base || !base->quantized.form.any(),
      "model.from: '{}' holds adapters beside weights in few bits (lora.quantization), whose codes a new run "
      "would not make again: start from the folder that `ztrain export {} --to FOLDER` makes, in which the "
      "adapters are merged",
      from, from);
}

}  // namespace

/// Returns whether checkpoints of the run lack some weights.
bool FrozenWeights::is_needed() const {
  return (!config::saves_frozen(run_.deck) || run_.worker.keeps_codes()) &&
         std::ranges::any_of(run_.worker.job().layout.parameters(),
                             [](const ParameterShape& p) { return !p.trainable; });
}

checkpoint::QuantizedNames FrozenWeights::quantized() const {
  checkpoint::QuantizedNames quantized{config::weight_form(run_.deck.lora)};
  for (const ParameterShape& p : run_.worker.job().layout.parameters())
    if (p.quantized) quantized.names.insert(p.name);
  return quantized;
}

std::vector<checkpoint::StateShard> FrozenWeights::shards() const {
  std::vector<checkpoint::StateShard> shards = run_.worker.state(false);
  std::erase_if(shards, [&](const checkpoint::StateShard& shard) {
    return run_.worker.job().tensors.units[at(shard.unit)].trained;
  });
  return shards;
}

/// Collective. Returns what all ranks have added up.
checkpoint::FrozenBase FrozenWeights::noted(const std::string& from,
                                            const checkpoint::ValueHashes& hashes) const {
  const checkpoint::ImportOptions options = checkpoint::import_options(run_.deck);
  checkpoint::FrozenBase base{.from = from,
                              .seed = run_.deck.run.seed,
                              .family = run_.deck.model.family,
                              .leaves_head = options.leaves_head,
                              .added = options.added,
                              .base = options.base,
                              .quantized = quantized()};
  set_hashes(base, checkpoint::Group::world(), run_.worker.job().layout.parameters(), hashes,
             [](const ParameterShape& p) { return !p.trainable; });
  return base;
}

void FrozenWeights::imported(const checkpoint::Imported& imported) {
  if (imported.base)
    require_same_base(checkpoint::Group::world(), run_.deck.model.from, run_.worker.job().layout.parameters(),
                      *imported.base);
  if (is_needed()) run_.frozen = noted(run_.deck.model.from, hashes_);
}

std::int64_t FrozenWeights::quantize() {
  if (!run_.worker.keeps_codes()) return 0;
  const telemetry::Phase phase(run_.console, "quantising the weights",
                               [this] { return run_.worker.position(); });
  const std::string& from = run_.deck.model.from;
  const auto& parameters = run_.worker.job().layout.parameters();
  const DType computed =
      run_.deck.precision.parameters == DType::f64 ? DType::f32 : run_.deck.precision.parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (parameters[p].quantized) hashes_.set_dtype(p, computed);
  const job::DecodedElements decoded = [&](int parameter, std::int64_t begin, std::int64_t count,
                                           const float* values) {
    hashes_.add(at(parameter), begin, count, reinterpret_cast<const std::byte*>(values), DType::f32);
  };
  if (from.empty()) {
    run_.worker.quantize(run_.worker.drawn_elements(static_cast<std::uint64_t>(run_.deck.run.seed)), decoded);
    return 0;
  }
  const checkpoint::ReadParameter read = run_.session.agree("reading the weights", [&] {
    require_own_base(from);
    return checkpoint::open_elements(from, parameters, checkpoint::import_options(run_.deck));
  });
  std::int64_t elements = 0;
  run_.worker.quantize(
      [&](int parameter, std::int64_t begin, std::int64_t count, float* to) {
        read(parameters[at(parameter)].name, begin, count, to);
        elements += count;
      },
      decoded);
  return elements * size_of(computed);
}

void FrozenWeights::start_magnitudes(const checkpoint::Imported& imported) {
  const auto& lacking = imported.absent;
  if (std::ranges::none_of(lacking, [](const auto& p) { return !config::magnitude_of(p).empty(); })) return;
  const telemetry::Phase phase(run_.console, "measuring rows of the weights",
                               [this] { return run_.worker.position(); });
  run_.session.agree("measuring rows of the weights", [&] {
    const auto& parameters = run_.worker.job().layout.parameters();
    const checkpoint::ReadParameter read = checkpoint::open_elements(
        run_.deck.model.from, parameters, checkpoint::import_options(run_.deck), quantized());
    run_.worker.write_row_norms([&](int parameter, std::int64_t begin, std::int64_t count, float* to) {
      read(parameters[at(parameter)].name, begin, count, to);
    });
  });
}

void FrozenWeights::drawn() {
  if (!is_needed()) return;
  quantize();
  run_.session.agree("comparing the frozen weights", [&] {
    hashes_.add(job::place_of(run_.worker.job().load(), run_.worker.job().layout), shards());
  });
  run_.frozen = noted("", hashes_);
}

/// Collective. Fills the frozen shards as a new run would.
checkpoint::FrozenBase FrozenWeights::read_again() {
  const std::string& from = run_.deck.model.from;
  const checkpoint::Place place = job::place_of(run_.worker.job().load(), run_.worker.job().layout);
  std::optional<checkpoint::Imported> imported;
  run_.session.agree("reading the frozen weights", [&] {
    if (from.empty()) {
      run_.worker.draw_frozen(static_cast<std::uint64_t>(run_.deck.run.seed));
      hashes_.add(place, shards());
      return;
    }
    checkpoint::ImportOptions options = checkpoint::import_options(run_.deck);
    options.frozen = &hashes_;
    imported = checkpoint::import_weights(from, place, shards(), options);
  });
  quantize();
  return noted(from, hashes_);
}

void FrozenWeights::restore(const std::string& checkpoint, bool has_all,
                            const std::optional<checkpoint::FrozenBase>& saved) {
  if (has_all && !is_needed()) return;
  const telemetry::Phase phase(run_.console, "reading the frozen weights",
                               [this] { return run_.worker.position(); });
  const std::string& from = run_.deck.model.from;
  checkpoint::FrozenBase before = saved.value_or(checkpoint::FrozenBase{});
  if (has_all) {
    checkpoint::ValueHashes held(run_.worker.job().layout.parameters());
    run_.session.agree("comparing the frozen weights", [&] {
      held.add(job::place_of(run_.worker.job().load(), run_.worker.job().layout), shards());
    });
    before = noted(checkpoint, held);
  }
  const checkpoint::FrozenBase now = read_again();
  run_.session.agree("comparing the frozen weights", [&] {
    require_same_base(
        checkpoint, before, now,
        has_all ? std::string("set checkpoint.frozen = true, with which checkpoints hold these weights")
                : fmt::format("give the folder that it was trained beside (model.from)"));
  });
  if (is_needed()) run_.frozen = now;
  run_.print("the frozen weights are {} again: hash {}, as in the checkpoint\n",
             from.empty() ? fmt::format("drawn from seed {}", run_.deck.run.seed)
                          : fmt::format("read from {}", from),
             hex(hash_of(now)));
}

}  // namespace ztrain::train
