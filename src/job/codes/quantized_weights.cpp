#include "job/codes/quantized_weights.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "program/codes/quantized.hpp"

namespace ztrain::job {

QuantizedWeights::QuantizedWeights(const program::Job& job, const engine::JobMemory& memory)
    : job_(job), memory_(memory), here_(job.load().mesh, job.load().rank) {
  const auto& parameters = job.layout.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!parameters[p].quantized) continue;
    const Shape& shape = parameters[p].shape;
    form_ = job.graph.parameters[p].form;
    scales_.try_emplace(static_cast<int>(p), form_, elements(shape), shape.back());
  }
  for (const FlatUnit& unit : job.layout.units())
    for (const Piece& piece : job.layout.pieces(unit.unit, here_))
      if (const ParameterShape& p = parameters[at(piece.parameter)]; p.quantized)
        parts_.push_back({unit.unit, piece, program::part_of_matrix(job.layout, piece.parameter, here_),
                          owns(here_, unit, p)});
}

void QuantizedWeights::find(const ReadElements& read) {
  for (const FlatUnit& unit : job_.layout.units()) {
    if (!job_.tensors.units[at(unit.unit)].quantized) continue;
    const program::TensorId slice = job_.tensors.units[at(unit.unit)].parameters.slice;
    const program::Tensor& t = job_.load().tensor(slice);
    const program::Tier tier = job_.load().tensor(job_.load().storage(slice)).tier;
    memory_.provider(tier).fill(memory_.address(job_.load(), slice), 0, t.bytes());
  }
  for (Part& part : parts_) form_.in_blocks() ? find_blocks(part, read) : find_rows(part, read);
}

void QuantizedWeights::agree(const runtime::Session& session) {
  for (auto& [parameter, scales] : scales_) {
    runtime::largest_of_all(session, scales.largest());
    if (!form_.nested) continue;
    runtime::largest_of_all(session, scales.least());
    scales.sum().carry();
    runtime::sum_of_all(session, scales.sum().limb);
  }
}

void QuantizedWeights::encode(const ReadElements& read) {
  for (const auto& [parameter, scales] : scales_)
    if (job_.tensors.statistics[at(parameter)] != program::no_tensor)
      write_statistics(parameter, statistics_[parameter] = scales.statistics());
  for (const Part& part : parts_) {
    if (form_.nested) encode_scales(part);
    if (form_.code == WeightCode::int8) encode_rows(part, read);
  }
}

void QuantizedWeights::decode(const DecodedElements& decoded) const {
  std::vector<std::byte> quanta;
  std::vector<float> values(at(quantized_window));
  for (const Part& part : parts_) {
    const Piece& piece = part.piece;
    const int slice = part_of(job_.layout.parameters()[at(piece.parameter)].slice, here_);
    for (std::int64_t begin = 0; part.owned && begin < piece.count; begin += quantized_window) {
      const std::int64_t count = std::min(quantized_window, piece.count - begin),
                         first = piece.slice_begin + begin;
      quanta.resize(at(form_.bytes(count)));
      read(part, begin, quanta);
      decode_quanta(form_, quanta.data(), part.matrix, first, count, statistics_.at(piece.parameter),
                    values.data());
      for (const LogicalRun& run : job_.layout.logical_runs(piece.parameter, slice, first, count))
        decoded(piece.parameter, run.logical_begin, run.count, values.data() + (run.slice_begin - first));
    }
  }
}

void QuantizedWeights::find_blocks(Part& part, const ReadElements& read) {
  ScalesOfWeight& scales = scales_.at(part.piece.parameter);
  each_window(part, read, [&](std::int64_t at, std::span<const float> values) {
    const auto count = std::ssize(values);
    std::vector<std::byte> quanta(ztrain::at(form_.bytes(count)));
    for (std::int64_t begin = 0; begin < count; begin += scale_block) {
      const float* x = values.data() + begin;
      const std::int64_t n = std::min(scale_block, count - begin), in_quantum = begin % code_quantum;
      const float scale = ByScale::kept(largest_magnitude(x, n), n == scale_block);
      std::byte* const quantum = quanta.data() + begin / code_quantum * form_.quantum_bytes();
      encode_block(form_.code, x, n, scale, quantum + in_quantum / 2);
      if (!form_.nested) {
        std::memcpy(quantum + form_.code_bytes() + in_quantum / scale_block * 4, &scale, sizeof scale);
        continue;
      }
      part.scales.push_back(scale);
      scales.add_block(part.matrix.index_of(part.piece.slice_begin + at + begin), scale, part.owned);
    }
    write(part, at, quanta);
  });
}

void QuantizedWeights::find_rows(const Part& part, const ReadElements& read) {
  ScalesOfWeight& scales = scales_.at(part.piece.parameter);
  each_window(part, read, [&](std::int64_t at, std::span<const float> values) {
    for (std::int64_t i = 0; i < std::ssize(values); ++i)
      scales.add_element(part.matrix.index_of(part.piece.slice_begin + at + i), values[ztrain::at(i)]);
  });
}

void QuantizedWeights::encode_scales(const Part& part) {
  const std::vector<float>& statistics = statistics_.at(part.piece.parameter);
  const std::int64_t blocks =
      ceil_div(elements(job_.layout.parameters()[at(part.piece.parameter)].shape), scale_block);
  std::vector<std::byte> quanta;
  for (std::int64_t begin = 0; begin < part.piece.count; begin += quantized_window) {
    const std::int64_t count = std::min(quantized_window, part.piece.count - begin);
    quanta.resize(at(form_.bytes(count)));
    this->read(part, begin, quanta);
    for (std::int64_t b = begin / scale_block; b < ceil_div(begin + count, scale_block); ++b) {
      const std::int64_t element = part.matrix.index_of(part.piece.slice_begin + b * scale_block);
      const std::int64_t group = element / scale_group, in_window = b - begin / scale_block;
      quanta[at(in_window / blocks_per_quantum * form_.quantum_bytes() + form_.code_bytes() +
                in_window % blocks_per_quantum)] =
          static_cast<std::byte>(encode_scale(part.scales[at(b)] - statistics.back(), statistics[at(group)],
                                              (group + 1) * nested_block <= blocks));
    }
    write(part, begin, quanta);
  }
}

void QuantizedWeights::encode_rows(const Part& part, const ReadElements& read) {
  const std::vector<float>& statistics = statistics_.at(part.piece.parameter);
  each_window(part, read, [&](std::int64_t at, std::span<const float> values) {
    std::vector<std::byte> quanta(ztrain::at(form_.bytes(std::ssize(values))));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t e = part.piece.slice_begin + at + static_cast<std::int64_t>(i);
      const std::int64_t row = part.matrix.index_of(e) / part.matrix.columns;
      quanta[i] = static_cast<std::byte>(encode_int8(values[i], statistics[ztrain::at(row)]));
    }
    write(part, at, quanta);
  });
}

void QuantizedWeights::write_statistics(int parameter, const std::vector<float>& statistics) const {
  const program::TensorId tensor = job_.tensors.statistics[at(parameter)];
  memory_.provider(job_.load().tensor(tensor).tier)
      .write(memory_.address(job_.load(), tensor), statistics.data(), job_.load().tensor(tensor).bytes());
}

template <class F>
void QuantizedWeights::each_window(const Part& part, const ReadElements& read, const F& f) {
  const Piece& piece = part.piece;
  const int slice = part_of(job_.layout.parameters()[at(piece.parameter)].slice, here_);
  std::vector<float> values(at(std::min(quantized_window, piece.count)));
  for (std::int64_t begin = 0; begin < piece.count; begin += quantized_window) {
    const std::int64_t count = std::min(quantized_window, piece.count - begin);
    for (const LogicalRun& run :
         job_.layout.logical_runs(piece.parameter, slice, piece.slice_begin + begin, count))
      read(piece.parameter, run.logical_begin, run.count,
           values.data() + (run.slice_begin - piece.slice_begin - begin));
    f(begin, std::span<const float>(values.data(), at(count)));
  }
}

std::byte* QuantizedWeights::address_of(const Part& part, std::int64_t at) const {
  const std::int64_t in_shard = part.piece.flat_begin - job_.layout.unit(part.unit).shard_begin(here_);
  return memory_.address(job_.load(), job_.tensors.units[ztrain::at(part.unit)].parameters.slice) +
         form_.bytes(in_shard) + form_.bytes(at);
}

memory::Provider& QuantizedWeights::provider_of(const Part& part) const {
  const program::TensorId slice = job_.tensors.units[at(part.unit)].parameters.slice;
  return memory_.provider(job_.load().tensor(job_.load().storage(slice)).tier);
}

void QuantizedWeights::write(const Part& part, std::int64_t at, const std::vector<std::byte>& quanta) const {
  provider_of(part).write(address_of(part, at), quanta.data(), std::ssize(quanta));
}

void QuantizedWeights::read(const Part& part, std::int64_t at, std::vector<std::byte>& quanta) const {
  provider_of(part).read(quanta.data(), address_of(part, at), std::ssize(quanta));
}

}  // namespace ztrain::job
