#include "runtime/comm/exchange.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "runtime/session/mpi_check.hpp"

namespace ztrain::runtime {

Exchange::Exchange(MPI_Comm comm, const std::string& group, std::int64_t cut)
    : comm_(comm), group_(group), cut_(cut) {
  REQUIRE(cut > 0 && cut <= largest_message, "messages cannot be cut at {} bytes: 1 to {} are possible", cut,
          largest_message);
}

void Exchange::add(Part part, std::int64_t bytes, RowCount rows) {
  for (std::int64_t at = 0; at < bytes; at += cut_) {
    Part next = part;
    if (next.source != nullptr) next.source = static_cast<const std::byte*>(part.source) + at;
    if (next.target != nullptr) next.target = static_cast<std::byte*>(part.target) + at;
    next.bytes = static_cast<int>(std::min(cut_, bytes - at));
    next.begin = at, next.all = bytes, next.rows = rows;
    parts_.push_back(next);
  }
  requests_.resize(parts_.size(), MPI_REQUEST_NULL);
  statuses_.resize(parts_.size());
}

void Exchange::receive(int from, void* data, std::int64_t bytes, RowCount rows) {
  add({nullptr, data, 0, from}, bytes, rows);
}

void Exchange::send(int to, const void* data, std::int64_t bytes, RowCount rows) {
  add({data, nullptr, 0, to}, bytes, rows);
}

void Exchange::measure(Part& part) const {
  if (part.rows.count == nullptr) return;
  const std::int64_t bytes = *part.rows.count * part.rows.row_bytes;
  REQUIRE(bytes >= 0 && bytes <= part.all, "{} rows of {} bytes do not fit into {} bytes for rank {} over {}",
          *part.rows.count, part.rows.row_bytes, part.all, part.peer, group_);
  part.bytes = static_cast<int>(std::clamp<std::int64_t>(bytes - part.begin, 0, cut_));
}

void Exchange::post(int tag) {
  bytes_sent_ = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    measure(part);
    if (part.bytes == 0) continue;  // its request is null, as the last post() left it
    if (part.source == nullptr)
      check(part, MPI_Irecv(part.target, part.bytes, MPI_BYTE, part.peer, tag, comm_, &requests_[i]),
            "MPI_Irecv");
    else
      check(part, MPI_Isend(part.source, part.bytes, MPI_BYTE, part.peer, tag, comm_, &requests_[i]),
            "MPI_Isend");
    if (part.source != nullptr) bytes_sent_ += part.bytes;
  }
}

bool Exchange::test() {
  if (parts_.empty()) return true;
  int done = 0;
  const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (statuses_[i].MPI_ERROR != MPI_ERR_PENDING) check(parts_[i], statuses_[i].MPI_ERROR, "MPI_Testall");
  }
  check_mpi(code, "MPI_Testall");
  if (done == 0) return false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].source != nullptr) continue;
    int bytes = 0;
    check_mpi(MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes), "MPI_Get_count");
    REQUIRE(bytes == parts_[i].bytes,
            "{} got {} bytes: the ranks of the group do not run the same communication", describe(parts_[i]),
            bytes);
  }
  return true;
}

std::string Exchange::describe(const Part& part) const {
  return fmt::format("a message of {} bytes {} rank {} of the group over {}", part.bytes,
                     part.source == nullptr ? "from" : "to", part.peer, group_);
}

void Exchange::check(const Part& part, int code, const char* call) const {
  REQUIRE(code == MPI_SUCCESS, "{} failed for {}: {}", call, describe(part), mpi_error_text(code));
}

}  // namespace ztrain::runtime
