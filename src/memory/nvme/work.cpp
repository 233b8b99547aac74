#include "memory/nvme/work.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/hash.hpp"

namespace ztrain::memory {
namespace {

/// Most answers to one request that bring no further page. Some come from a full queue, so there may be many.
constexpr int most_tries = 1000;

std::uint64_t sum_of(const std::byte* of) {
  const std::uint64_t sum = hash_bytes(of, nvme_page);
  return sum == unknown_sum ? 1 : sum;
}

void keep_sums(const NvmeRequest& request) {
  if (request.sums == nullptr) return;
  for (std::int64_t at = 0; at < request.bytes; at += nvme_page)
    request.sums[at / nvme_page] = sum_of(request.memory + at);
}

void forget_sums(const NvmeRequest& request) {
  if (request.sums != nullptr) std::fill_n(request.sums, request.bytes / nvme_page, unknown_sum);
}

/// Returns the first byte of a page that differs from what was written, else the number of bytes.
std::int64_t same_bytes(const NvmeRequest& request) {
  if (request.sums == nullptr) return request.bytes;
  for (std::int64_t at = 0; at < request.bytes; at += nvme_page) {
    const std::uint64_t sum = request.sums[at / nvme_page];
    if (sum != unknown_sum && sum != sum_of(request.memory + at)) return at;
  }
  return request.bytes;
}

}  // namespace

void NvmeWork::add(NvmeJob& job) {
  {
    const std::lock_guard lock(mutex_);
    List& list = lists_[job.writes ? 1 : 0];
    job.next = 0;
    job.behind = nullptr;
    (list.first == nullptr ? list.first : list.last->behind) = &job;
    list.last = &job;
  }
  came_.notify_all();
}

NvmeRequest* NvmeWork::take_locked() {
  turn_ ^= 1;
  List& list = lists_[lists_[turn_].first != nullptr ? turn_ : turn_ ^ 1];
  if (list.first == nullptr) return nullptr;
  NvmeJob& job = *list.first;
  NvmeRequest& request = job.requests[job.next++];
  if (job.next == job.requests.size()) list.first = job.behind;
  return &request;
}

NvmeRequest* NvmeWork::take() {
  const std::lock_guard lock(mutex_);
  return take_locked();
}

NvmeRequest* NvmeWork::wait_and_take() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (NvmeRequest* const request = take_locked()) return request;
    if (end_) return nullptr;
    came_.wait(lock);
  }
}

void NvmeWork::leave(NvmeJob& job) {
  // A thread that waits may start or remove the transfer as soon as this is zero.
  if (job.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  { const std::lock_guard lock(mutex_); }  // no thread is between looking and waiting
  left_.notify_all();
}

void NvmeWork::wait_for(const NvmeJob& job) {
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return job.left.load(std::memory_order_acquire) == 0; });
}

void NvmeWork::end() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  came_.notify_all();
}

bool NvmeWork::ended() {
  const std::lock_guard lock(mutex_);
  return end_;
}

void NvmeSteps::fail(NvmeRequest& request, int error) const {
  NvmeJob& job = *request.job;
  if (job.writes) forget_sums(request);
  if (!job.failed.exchange(true)) {
    job.failure = &request;
    job.error = error;
  }
  work_->leave(job);
}

bool NvmeSteps::begin(NvmeRequest& request) const {
  NvmeJob& job = *request.job;
  request.done = 0;
  request.tries = 0;
  if (job.failed) {
    work_->leave(job);
    return false;
  }
  if (!job.writes) return true;
  if (request.tail_bytes > 0)
    std::memcpy(request.memory, request.tail, static_cast<std::size_t>(request.tail_bytes));
  keep_sums(request);
  return true;
}

std::int64_t NvmeSteps::ask(const NvmeRequest& request) const {
  return system_->ask(request.job->writes, request.offset + request.done, request.bytes - request.done);
}

bool NvmeSteps::take_answer(NvmeRequest& request, std::int64_t answer) const {
  NvmeJob& job = *request.job;
  answer = system_->answer(job.writes, request.offset + request.done, answer);
  const bool again = answer == -EINTR || answer == -EAGAIN;
  if (answer < 0 && !again) {
    fail(request, static_cast<int>(-answer));
    return true;
  }
  // Direct I/O goes on from a whole page.
  const std::int64_t pages = again ? 0 : answer / nvme_page * nvme_page;
  request.done += pages;
  request.tries = pages > 0 ? 0 : request.tries + 1;
  if (request.done < request.bytes) {
    if (request.tries < most_tries) return false;
    fail(request, again ? static_cast<int>(-answer) : EIO);
    return true;
  }
  if (const std::int64_t same = job.writes ? request.bytes : same_bytes(request); same < request.bytes) {
    request.done = same;
    fail(request, 0);
    return true;
  }
  if (!job.writes && request.tail_bytes > 0)
    std::memcpy(request.tail, request.memory, static_cast<std::size_t>(request.tail_bytes));
  work_->leave(job);
  return true;
}

}  // namespace ztrain::memory
