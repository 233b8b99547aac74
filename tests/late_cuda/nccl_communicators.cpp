// NCCL's functions that make, watch and end communicators.
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "tests/late_cuda/late_cuda.hpp"
#include "tests/late_cuda/nccl_comm.hpp"

using namespace late_nccl;

namespace {

void read_config(ncclComm& comm, const ncclConfig_t* config) {
  if (config == nullptr) return;
  REQUIRE(config->magic == 0xcafebeef && config->size == sizeof(ncclConfig_t) &&
              config->version == NCCL_VERSION_CODE,
          "a configuration that NCCL_CONFIG_INITIALIZER has not made");
  if (config->blocking != NCCL_CONFIG_UNDEF_INT) comm.blocks = config->blocking != 0;
  comm.shares = config->splitShare == 1;
  if (config->maxCTAs != NCCL_CONFIG_UNDEF_INT) comm.max_ctas = config->maxCTAs;
}

/// The child of a split, once all ranks of the parent have said theirs; it is not complete yet.
std::shared_ptr<ncclComm> make_child(ncclComm& parent, std::uint64_t number, const ncclConfig_t* config) {
  Clique& all = *parent.clique;
  const Split& mine = all.self().split[number % 2];
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int r = 0; r < all.size(); ++r) {
    const Split& theirs = all.board().rank[r].split[number % 2];
    if (theirs.color == mine.color) members.emplace_back(theirs.key, r);
  }
  std::sort(members.begin(), members.end());
  const auto place = std::find(members.begin(), members.end(), std::pair(mine.key, all.rank()));
  auto child = std::make_shared<ncclComm>();
  child->blocks = parent.blocks;
  read_config(*child, config);
  child->clique =
      std::make_unique<Clique>(fmt::format("{}.{}c{}", all.name(), number, mine.color),
                               static_cast<int>(place - members.begin()), static_cast<int>(members.size()));
  child->resources = parent.shares ? parent.resources : std::make_shared<Resources>();
  return child;
}

ncclResult_t refuse(const char* text) {
  Library::get().remember(text);
  return ncclSystemError;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const int told = Library::get().options.version;
  *version = told > 0 ? told : NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclInProgress:
      return "in progress";
    case ncclRemoteError:
      return "a remote process failed, or the network did";
    case ncclSystemError:
      return "a system call failed";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "another error";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string text;
  text = Library::get().last();
  return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (Library::get().options.fault == Fault::unique_id) return refuse("no network interface was found");
  *id = {};
  const auto drawn = static_cast<long long>(ztrain::now() * 1e9);
  const std::string name = fmt::format("/late_nccl.{}.{}", getpid(), drawn);
  name.copy(id->internal, sizeof id->internal - 1);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return guarded([&] {
    Library::get().require_no_capture("ncclCommInitRankConfig");
    auto made = std::make_shared<ncclComm>();
    read_config(*made, config);
    made->clique = std::make_unique<Clique>(id.internal, rank, size);
    made->resources = std::make_shared<Resources>();
    *comm = Library::get().add(made);
    return in_background(made, [&c = *made, fault = Library::get().options.fault] {
      if (fault == Fault::absence) return ncclInProgress;
      if (fault == Fault::init) {
        c.clique->fail(fmt::format("rank {} cannot map memory of its GPU", c.clique->rank()));
        ztrain::fail("{}", c.clique->failure());
      }
      return c.clique->complete() ? ncclSuccess : ncclInProgress;
    });
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  return guarded([&] {
    const auto parent = Library::get().ready(comm, "ncclCommSplit");
    Library::get().require_no_capture("ncclCommSplit");
    *made = nullptr;
    const std::uint64_t number = ++parent->splits;
    Split& mine = parent->clique->self().split[number % 2];
    mine.color = color;
    mine.key = key;
    mine.number.store(number);
    const auto step = [=, &p = *parent, child = std::shared_ptr<ncclComm>(),
                       options = config ? std::optional(*config) : std::nullopt]() mutable {
      if (Library::get().options.fault == Fault::split) return ncclInProgress;
      if (!child) {
        for (int r = 0; r < p.clique->size(); ++r)
          if (p.clique->board().rank[r].split[number % 2].number.load() != number) return ncclInProgress;
        if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
        child = make_child(p, number, options ? &*options : nullptr);
      }
      if (!child->clique->complete()) return ncclInProgress;
      *made = Library::get().add(child);
      return ncclSuccess;
    };
    return in_background(parent, step);
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return guarded([&] {
    const auto found = Library::get().find(comm, "ncclCommGetAsyncError");
    *state = advance(*found);
    if (*state == ncclSuccess && !found->clique->failure().empty()) {
      Library::get().remember(found->clique->failure());
      *state = ncclRemoteError;
    }
    return ncclSuccess;
  });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return guarded([&] {
    *rank = Library::get().ready(comm, "ncclCommUserRank")->clique->rank();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return guarded([&] {
    *count = Library::get().ready(comm, "ncclCommCount")->clique->size();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t bytes, void** handle) {
  return guarded([&] {
    const auto found = Library::get().ready(comm, "ncclCommRegister");
    Library::get().require_no_capture("ncclCommRegister");
    REQUIRE(late_cuda::is_device_memory(data, bytes), "ncclCommRegister of what is no memory of the device");
    *handle = nullptr;
    if (Library::get().options.fault == Fault::registration)
      return refuse("no more memory can be registered");
    found->registered.push_back(std::make_unique<Region>(Region{static_cast<const std::byte*>(data), bytes}));
    *handle = found->registered.back().get();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return guarded([&] {
    const auto found = Library::get().find(comm, "ncclCommDeregister");
    REQUIRE(found->under_way.use_count() == 1, "ncclCommDeregister while work is under way");
    const auto erased = std::erase_if(found->registered, [&](const auto& r) { return r.get() == handle; });
    REQUIRE(erased == 1, "ncclCommDeregister of what is not registered");
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded([&] {
    const auto found = Library::get().ready(comm, "ncclCommFinalize");
    Library::get().require_no_capture("ncclCommFinalize");
    REQUIRE(found->captured.use_count() == 1, "ncclCommFinalize while a graph has work of the communicator");
    found->finalizes = true;
    return in_background(found, [&c = *found] {
      if (c.under_way.use_count() > 1) return ncclInProgress;
      c.clique->self().finalized.store(1);
      return c.clique->all_reached(&Rank::finalized, 1) ? ncclSuccess : ncclInProgress;
    });
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded([&] {
    const auto found = Library::get().find(comm, "ncclCommDestroy");
    REQUIRE(found->finalizes && !found->background,
            "ncclCommDestroy of a communicator that is not finalized");
    REQUIRE(found->registered.empty(), "ncclCommDestroy while memory is registered");
    Library::get().live.erase(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded([&] {
    const auto found = Library::get().find(comm, "ncclCommAbort");
    found->resources->aborted = true;  // of those that share them too
    found->background = nullptr;
    Library::get().live.erase(comm);
    return ncclSuccess;
  });
}

}  // extern "C"
