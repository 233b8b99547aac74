#pragma once
// Binds ops to kernels. Binding happens once, when an Executor is made: addresses, shapes and attributes are
// resolved, library primitives and collectives prepared. What remains for every step is a call without
// arguments.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/record.hpp"
#include "engine/job_memory.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/launch/exec.hpp"
#include "program/ir/program.hpp"
#include "runtime/comm/mesh_comms.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::engine {

class Queues;

/// Whether a tensor has another address in each iteration of Program::repeat.
inline bool moves(const program::Program& program, program::TensorId id) {
  const program::Tensor& holder = program.tensor(program.storage(id));
  return program.tensor(id).step != 0 || (holder.persistent ? holder.ring >= 0 : program.rotates(holder));
}

/// What a binder may use. References stay valid as long as the Executor.
struct Binding {
  const program::Program& program;
  const program::Op& op;
  const JobMemory& memory;
  runtime::Mesh& mesh;
  runtime::Device& device;
  kernels::Exec& exec;       ///< of the op's stream
  program::OpId id = 0;      ///< of the op, in Program::ops
  int time = 0;              ///< how often the op was issued before, where Program::repeat has it
  Queues* queues = nullptr;  ///< which have the threads that the host computes with; null: one is enough

  /// Returns the op's constants (kernels/NAME/record.hpp).
  template <class Record>
  Record record() const {
    return record_of<Record>(op.attributes);
  }
  const program::Tensor& in(std::size_t i) const { return program.tensor(op.inputs.at(i)); }
  const program::Tensor& out(std::size_t i) const { return program.tensor(op.outputs.at(i)); }
  template <class T>
  T* input(std::size_t i) const {
    return data<T>(op.inputs.at(i));
  }
  template <class T>
  T* output(std::size_t i) const {
    return data<T>(op.outputs.at(i));
  }
  template <class T>
  T* data(program::TensorId tensor) const {
    return reinterpret_cast<T*>(memory.address(program, tensor) + program.moved_by(tensor, id, time));
  }
};

/// For people: how something is done here, where that is not always the same.
struct Note {
  std::string what, text;  ///< "attention", "cuDNN, sequences ..."
  bool warning = false;    ///< the text says why the device is far from what it could do
  bool operator==(const Note&) const = default;
};

/// A bound op: a launch (kernels), or a collective, or a launch and the collective that comes after it, all
/// on the op's stream.
struct Bound {
  std::function<void()> launch;
  std::unique_ptr<runtime::Collective> collective{};
  std::vector<Note> notes{};
  bool on_host = false;  ///< the launch is the host's own work, as Device::run_on_host takes it
};

/// Whose kernels do the work of an op on GPUs.
enum class By : std::uint8_t { us, library };

/// How an op becomes a call. Rows stand with their binders, in kernels/NAME/binding.cpp.
struct KernelRow {
  std::string_view op;
  Bound (*bind)(const Binding&);
  By by = By::us;
};

/// All rows, kind by kind.
std::vector<std::span<const KernelRow>> kernel_table();

/// Returns whether a library may run the op on GPUs. Throws Error naming the op when the table has no kernel
/// for it.
bool calls_library(const program::Op& op);

/// Returns a text that is equal for ops with the same type, shapes and dtypes of operands, group and flops.
std::string kernel_key(const program::Program& program, const program::Op& op);

/// Throws Error naming the op when the table has no kernel for it, or not for its dtypes.
Bound bind(const Binding& binding);

/// How a product is done, on CPUs: the library chooses by what the processor has. On GPUs only what is slow.
/// gemm: after prepare().
std::vector<Note> product_notes(const Binding& b, const kernels::Gemm& gemm);

}  // namespace ztrain::engine
