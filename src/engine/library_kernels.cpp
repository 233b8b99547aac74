#include "engine/library_kernels.hpp"

#include <set>
#include <string>

#include "engine/kernel_table.hpp"

namespace ztrain::engine {

using program::OpId;
using program::Program;

namespace {

void launch_each(const std::vector<const Program*>& programs, const JobMemory& memory, runtime::Mesh& mesh,
                 Queues& queues) {
  runtime::Device& device = queues.device();
  std::set<std::string> launched;
  for (const Program* program : programs)
    for (OpId id = 0; id < static_cast<OpId>(program->ops.size()); ++id) {
      const program::Op& op = program->op(id);
      if (!calls_library(op) || !launched.insert(kernel_key(*program, op)).second) continue;
      const runtime::Queue queue = queue_of(op.stream);
      const Bound bound =
          bind({*program, op, memory, mesh, device, queues.exec(queue), id, /*time=*/0, &queues});
      if (bound.launch && !bound.on_host) device.submit(queue, bound.launch);
      device.finish();
    }
}

}  // namespace

void load_library_kernels(const runtime::Session& session, const std::vector<const Program*>& programs,
                          const JobMemory& memory, runtime::Mesh& mesh, Queues& queues) {
  if (queues.device().native_stream(runtime::compute_queue) == nullptr) return;
  session.agree("loading the kernels of libraries", [&] {
    launch_each(programs, memory, mesh, queues);
    memory.each_region(program::Tier::device, [&](void* data, std::int64_t bytes) {
      if (bytes > 0) memory.provider().fill(static_cast<std::byte*>(data), 0, bytes);
    });
  });
}

}  // namespace ztrain::engine
