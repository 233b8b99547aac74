#include "kernels/attention/attention_documents.hpp"

#include <cuda_runtime.h>

#include "runtime/device/launch_cuda.hpp"

namespace ztrain::kernels {
namespace {

constexpr int threads = 1024, warp = 32;
constexpr std::uint16_t nan16 = 0x7fff;  ///< in bf16 and in fp16

/// The sum of `value` over the threads before this one of a block of `threads`.
__device__ int sum_before(int value) {
  __shared__ int of_warp[threads / warp];
  const int lane = threadIdx.x % warp, w = threadIdx.x / warp;
  int sum = value;
  for (int step = 1; step < warp; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == warp - 1) of_warp[w] = sum;
  __syncthreads();
  int before = sum - value;
  for (int i = 0; i < w; ++i) before += of_warp[i];
  return before;
}

struct Output {
  std::uint16_t* data;
  std::int64_t row, width;  ///< elements from one token to the next, and those of a token
};

/// Rows from `begin` on, by `step` threads of which this is number `index`.
__device__ void spoil(const Output& out, std::int64_t begin, std::int64_t end, int index, int step) {
  for (std::int64_t i = begin * out.width + index; i < end * out.width; i += step)
    out.data[i / out.width * out.row + i % out.width] = nan16;
}

struct Documents {
  const std::int32_t* start;
  std::int64_t tokens, entries, longest;
  std::int64_t q_row, k_row, o_row, lse_row;  ///< elements from one token to the next
  std::int32_t* lengths;
  std::int64_t* q;
  std::int64_t* k;
  std::int64_t* o;
  std::int64_t* lse;
  Output out;
};

__device__ void put_begin(const Documents& d, std::int64_t entry, std::int64_t token) {
  d.q[entry] = token * d.q_row;
  d.k[entry] = token * d.k_row;
  d.o[entry] = token * d.o_row;
  d.lse[entry] = token * d.lse_row;
}

/// One block. A thread counts the documents that begin in its stretch of tokens, and then knows their
/// numbers.
__global__ void __launch_bounds__(threads) find(const Documents d) {
  const std::int64_t stretch = (d.tokens + threads - 1) / threads;
  const std::int64_t begin = min(threadIdx.x * stretch, d.tokens), end = min(begin + stretch, d.tokens);
  int count = 0;
  for (std::int64_t t = begin; t < end; ++t) count += d.start[t] == t;
  std::int64_t entry = sum_before(count);
  __shared__ std::int64_t found;
  if (threadIdx.x == threads - 1) found = entry + count;
  for (std::int64_t t = begin; t < end; ++t) {
    if (d.start[t] != t) continue;
    if (entry <= d.entries) put_begin(d, entry, t);
    ++entry;
  }
  __syncthreads();
  for (std::int64_t i = found + threadIdx.x; i <= d.entries; i += threads) put_begin(d, i, d.tokens);
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < d.entries; i += threads) {
    const std::int64_t first = d.q[i] / d.q_row, last = d.q[i + 1] / d.q_row;
    d.lengths[i] = static_cast<std::int32_t>(min(last - first, d.longest));
    // This, and what is left, is for a micro-batch that does not keep to its shape.
    if (last - first > d.longest) spoil(d.out, first + d.longest, last, 0, 1);
  }
  spoil(d.out, d.q[d.entries] / d.q_row, d.tokens, static_cast<int>(threadIdx.x), threads);
}

/// Each block writes the row of the mask of one query, 8 entries of 16 bits at a time.
__global__ void __launch_bounds__(256)
    mask_rows(const std::int32_t* __restrict start, std::int64_t length, std::int64_t window,
              std::int64_t first_token, std::uint32_t low, uint4* __restrict mask) {
  const std::int64_t row = blockIdx.x, query = row % length, begin = first_token + row - query;
  const std::int64_t document = start[first_token + row] - begin;
  const std::int64_t first = window > 0 ? max(document, query - window + 1) : document;
  const std::uint32_t seen = document < 0 ? nan16 : 0;
  uint4* const to = mask + row * (length / 8);
  for (std::int64_t i = threadIdx.x; i < length / 8; i += blockDim.x) {
    const auto value = [&](std::int64_t key) { return key >= first && key <= query ? seen : low; };
    const auto pair = [&](std::int64_t key) { return value(key) | value(key + 1) << 16; };
    to[i] = {pair(8 * i), pair(8 * i + 2), pair(8 * i + 4), pair(8 * i + 6)};
  }
}

/// One block per query; only those of a broken promise do anything.
__global__ void __launch_bounds__(128)
    spoil_split(const std::int32_t* __restrict start, std::int64_t length, const Output out) {
  const std::int64_t token = blockIdx.x;
  if (start[token] == token - token % length) return;
  spoil(out, token, token + 1, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}

struct Packing {
  std::int64_t count, heads, length, at_once, heads_at_once;
};

/// One thread per number, in the order in which they are written.
__global__ void __launch_bounds__(256)
    pack(const Packing p, const float* __restrict lse, float* __restrict to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  const std::int64_t of_launch = p.at_once * p.heads_at_once * p.length, launch = i / of_launch;
  const std::int64_t parts = p.heads / p.heads_at_once, within = i % of_launch;
  const std::int64_t entry = launch / parts * p.at_once + within / (p.heads_at_once * p.length);
  const std::int64_t head = launch % parts * p.heads_at_once + within / p.length % p.heads_at_once;
  to[i] = lse[(entry * p.length + within % p.length) * p.heads + head];
}

Output output_of(const DocumentPass& pass) {
  return {static_cast<std::uint16_t*>(pass.out), pass.out_row, pass.shape.o_row()};
}

}  // namespace

void find_documents(const DocumentPass& pass) {
  const AttentionShape& s = pass.shape;
  auto* const offsets = reinterpret_cast<std::int64_t*>(pass.workspace + pass.work.offsets);
  const std::int64_t n = pass.work.entries;
  const Documents d{pass.document_start,
                    s.tokens,
                    n,
                    pass.work.length,
                    s.q_row(),
                    pass.work.kv_row,
                    s.o_row(),
                    s.heads,
                    reinterpret_cast<std::int32_t*>(pass.workspace + pass.work.lengths),
                    offsets,
                    offsets + (n + 1),
                    offsets + 2 * (n + 1),
                    offsets + 3 * (n + 1),
                    output_of(pass)};
  runtime::launch("the kernel that finds the documents", find, 1, threads, pass.stream, d);
}

void write_mask(const DocumentPass& pass, std::int64_t first, DType type) {
  const AttentionWork& w = pass.work;
  // -1e30 and -65504, the lowest of fp16: a probability of exactly 0 beside the query's own key.
  const std::uint32_t low = type == DType::bf16 ? bf16(-1e30f).bits : f16(-65504.0f).bits;
  runtime::launch("the kernel that writes the mask", mask_rows, w.at_once * w.length, 256, pass.stream,
                  pass.document_start, w.length, pass.shape.window, first * w.length, low,
                  reinterpret_cast<uint4*>(pass.workspace + w.mask));
}

void spoil_split_sequences(const DocumentPass& pass) {
  runtime::launch("the kernel that checks the documents", spoil_split, pass.shape.tokens, 128, pass.stream,
                  pass.document_start, pass.work.length, output_of(pass));
}

void pack_lse(const DocumentPass& pass, const float* lse) {
  const AttentionShape& s = pass.shape;
  const Packing p{s.tokens * s.heads, s.heads, pass.work.length, pass.work.at_once,
                  pass.work.kv_heads * (s.heads / s.kv_heads)};
  runtime::launch("the kernel that packs the sums of the softmax", pack, ceil_div(p.count, 256), 256,
                  pass.stream, p, lse, reinterpret_cast<float*>(pass.workspace + pass.work.lse));
}

}  // namespace ztrain::kernels
