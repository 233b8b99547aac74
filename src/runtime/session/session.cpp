#include "runtime/session/session.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <set>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/host_threads.hpp"
#include "base/plain_text.hpp"
#include "runtime/device/device.hpp"
#include "runtime/session/launcher.hpp"
#include "runtime/session/mpi_check.hpp"

namespace ztrain::runtime {

Session::Session(int* argc, char*** argv)
    : exceptions_at_start_(std::uncaught_exceptions()), slurm_(slurm_hints()) {
  // Ranks have one thread each by default: threads that a library starts unasked would compete with other
  // ranks.
  setenv("OMP_NUM_THREADS", "1", /*overwrite=*/0);
  const std::optional<Started> started = started_by(own_environment());
  prepare_process(started);
  // By default CUDA loads a kernel at its first launch, and may wait for the GPU to do so. If the GPU runs a
  // collective that waits for another rank, which also waits to load, both wait for ever. Loading all at the
  // start costs time and some memory of the GPU. CUDA reads this at its first call, which MPI may make.
  if (built_for_gpus()) setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  // By default CUDA gives all streams 8 connections, and streams that share one wait for each other: work
  // would wait after another stream's receive, whose sender may wait for that work. 32 is the most.
  if (built_for_gpus()) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  REQUIRE(provided >= MPI_THREAD_FUNNELED,
          "this MPI library supports no threads (MPI_THREAD_FUNNELED is needed): use a build of it with "
          "thread support");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(world_, &size_), "MPI_Comm_size");
  if (size_ == 1) require_one_job(started);
  // SIGPIPE would end the process at once without a message. MPI writes to sockets of ranks that may be gone,
  // and the launcher should see the rank that died first. A reader of stdout may be gone too: a run goes on
  // without it, and a command whose result is text fails with a message (Console::unwritten).
  std::signal(SIGPIPE, SIG_IGN);
  host_ = node_name();
  find_place();
}

Session::Session(const Session& whole, MPI_Comm part)
    : signals_(whole.signals_),
      is_part_(true),
      began_(whole.began_),
      world_(part),
      exceptions_at_start_(std::uncaught_exceptions()),
      host_(whole.host_),
      slurm_(whole.slurm_) {
  check_mpi(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(world_, &size_), "MPI_Comm_size");
  find_place();
}

Session::~Session() {
  if (std::uncaught_exceptions() > exceptions_at_start_ && !agreed_to_fail_ && size_ > 1)
    abort_all("an error on this rank alone ended its session");
  MPI_Comm_free(&world_);
  if (!is_part_) MPI_Finalize();
}

void Session::find_place() {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(node, &local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(node, &ranks_on_node_), "MPI_Comm_size");
  int first = rank_;
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, node), "MPI_Bcast");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  check_mpi(MPI_Allreduce(&ranks_on_node_, &max_ranks_per_node_, 1, MPI_INT, MPI_MAX, world_),
            "MPI_Allreduce");
  std::vector<int> firsts(static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, world_), "MPI_Allgather");
  const std::set<int> distinct(firsts.begin(), firsts.end());
  nodes_ = static_cast<int>(distinct.size());
  node_of_.clear();
  for (const int of_rank : firsts)
    node_of_.push_back(static_cast<int>(std::distance(distinct.begin(), distinct.find(of_rank))));
  node_ = node_of(rank_);
}

void Session::barrier() const {
  check_mpi(MPI_Barrier(world_), "MPI_Barrier");
}

void Session::rest() const {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(world_, &request), "MPI_Ibarrier");
  for (int done = 0;;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::unique_ptr<Session> Session::part(int ranks) const {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(world_, rank_ < ranks ? 0 : MPI_UNDEFINED, rank_, &comm), "MPI_Comm_split");
  return comm == MPI_COMM_NULL ? nullptr : std::make_unique<Session>(*this, comm);
}

std::string Session::from_rank_0(std::string text) const {
  auto size = static_cast<std::int64_t>(text.size());
  check_mpi(MPI_Bcast(&size, 1, MPI_INT64_T, 0, world_), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(size));
  constexpr std::int64_t piece = 1 << 30;  // MPI counts in int
  for (std::int64_t begin = 0; begin < size; begin += piece)
    check_mpi(
        MPI_Bcast(text.data() + begin, static_cast<int>(std::min(piece, size - begin)), MPI_CHAR, 0, world_),
        "MPI_Bcast");
  return text;
}

double Session::lasts() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

Requests Session::requests(const Report& mine) const {
  constexpr unsigned time_bit = 1u << Signals::kinds.size(), end_bit = time_bit << 1,
                     failure_bit = time_bit << 2, writing_bit = time_bit << 3;
  unsigned bits = signals_->arrived();
  if (mine.time_is_up) bits |= time_bit;
  if (mine.allocation_ends) bits |= end_bit;
  if (mine.failed) bits |= failure_bit;
  if (mine.writes) bits |= writing_bit;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &bits, 1, MPI_UNSIGNED, MPI_BOR, world_), "MPI_Allreduce");
  Requests all{.save = (bits & Signals::save) != 0, .writes = (bits & writing_bit) != 0};
  if ((bits & time_bit) != 0) all.stop = Stop::time_is_up;
  if ((bits & end_bit) != 0) all.stop = Stop::allocation_ends;
  for (const Signals::Kind& kind : Signals::kinds)
    if ((bits & kind.bit & ~Signals::save) != 0) {
      all.stop = Stop::signal;
      all.signal = kind.name;
    }
  if ((bits & failure_bit) != 0) all.stop = Stop::failure;
  return all;
}

void Session::agree_on(std::string_view what, const std::function<void()>& fn) const {
  std::optional<std::string> message;  // message of a failure
  try {
    fn();
  } catch (const Error& error) {
    message = error.what();
  } catch (const std::exception& error) {
    message = fmt::format("{}: {}", what, reason_of(error));
  } catch (...) {
    message = fmt::format("{}: an unknown error", what);
  }
  if (message && message->empty()) message = fmt::format("{}: an error without a message", what);
  int any = message ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, world_), "MPI_Allreduce");
  agreed_to_fail_ = any != 0;
  if (any != 0) throw AgreedError(collect_messages(message.value_or("")));
}

std::string Session::collect_messages(const std::string& mine) const {
  const auto ranks = static_cast<std::size_t>(size_);
  const int length = static_cast<int>(std::min<std::size_t>(mine.size(), 8192));
  std::vector<int> lengths(ranks), offsets(ranks + 1, 0);
  check_mpi(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, world_), "MPI_Allgather");
  for (std::size_t r = 0; r < ranks; ++r) offsets[r + 1] = offsets[r] + lengths[r];
  std::string texts(static_cast<std::size_t>(offsets[ranks]), ' ');
  check_mpi(MPI_Allgatherv(mine.data(), length, MPI_CHAR, texts.data(), lengths.data(), offsets.data(),
                           MPI_CHAR, world_),
            "MPI_Allgatherv");
  struct Distinct {
    std::string text;
    std::size_t first;
    std::size_t count;
  };
  std::vector<Distinct> distinct;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (lengths[r] == 0) continue;
    std::string text =
        texts.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r]));
    const auto known =
        std::find_if(distinct.begin(), distinct.end(), [&](const Distinct& d) { return d.text == text; });
    if (known != distinct.end())
      ++known->count;
    else
      distinct.push_back({std::move(text), r, 1});
  }
  std::string joined;
  for (const Distinct& d : distinct) {
    if (!joined.empty()) joined += '\n';
    joined += d.count == ranks ? d.text : fmt::format("rank {}: {}", d.first, d.text);
  }
  return joined;
}

void Session::abort_all(std::string_view message) const {
  std::fflush(stdout);
  const std::string line =
      fmt::format("ztrain: rank {} ({}) failed: {}\n", rank_, host_, printable_lines(message));
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  if (ask_launcher_to_end(1)) std::this_thread::sleep_for(std::chrono::seconds(2));
  // The launcher forwards stderr on another path than the abort; without a pause it may kill this rank first.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

namespace {

/// Returns a line of /proc/self/status, such as "VmHWM:   1234 kB", in bytes.
std::int64_t status_bytes(const char* key) {
  char text[8192];
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t n = read(file, text, sizeof text - 1);
  close(file);
  if (n <= 0) return 0;
  text[n] = '\0';
  const char* line = std::strstr(text, key);
  return line == nullptr ? 0 : std::strtoll(line + std::strlen(key), nullptr, 10) * 1024;
}

}  // namespace

std::int64_t peak_resident_bytes() {
  return status_bytes("VmHWM:");
}
std::int64_t resident_bytes() {
  return status_bytes("VmRSS:");
}

void largest_of_all(const Session& session, std::span<float> values) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_MAX,
                          session.world()),
            "MPI_Allreduce");
}

void sum_of_all(const Session& session, std::span<std::int64_t> values) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_INT64_T, MPI_SUM,
                          session.world()),
            "MPI_Allreduce");
}

}  // namespace ztrain::runtime
