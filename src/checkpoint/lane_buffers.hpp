#pragma once
// What the bytes of checkpoints go through where they pass the page cache by. Internal to checkpoint.

#include <cstddef>
#include <cstdint>

#include "checkpoint/format/format.hpp"
#include "files/posix_file.hpp"
#include "layout/comm_cost.hpp"
#include "memory/provider.hpp"

namespace ztrain::checkpoint {

static_assert(direct_page == disk_page && checkpoint_part % checksum_block == 0);

/// A buffer for each thread, with a page more on either side than a part has: a part lies in it as it lies on
/// the pages of its file.
class LaneBuffers {
 public:
  LaneBuffers(memory::Provider& host, int lanes, std::int64_t part_bytes)
      : host_(host),
        bytes_(checkpoint_buffers(lanes, part_bytes)),
        each_(checkpoint_buffers(1, part_bytes)),
        pages_(host.allocate("room that a checkpoint goes through", bytes_)) {}
  LaneBuffers(const LaneBuffers&) = delete;
  LaneBuffers& operator=(const LaneBuffers&) = delete;
  ~LaneBuffers() { host_.release(pages_, bytes_); }

  std::byte* for_offset(int lane, std::int64_t offset) const {
    return pages_ + lane * each_ + offset % direct_page;
  }

 private:
  memory::Provider& host_;
  std::int64_t bytes_, each_;
  std::byte* pages_;
};

}  // namespace ztrain::checkpoint
