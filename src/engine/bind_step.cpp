#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
#include "engine/groups.hpp"
#include "kernel_interface/step_partial.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/elementwise/bytes.hpp"
#include "kernels/elementwise/cast.hpp"
#include "kernels/step/step_metrics.hpp"
#include "kernels/step/sum_squares.hpp"

namespace ztrain::engine {
namespace {

runtime::Communicator& group(const Binding& b) {
  return communicator_of(b.mesh, b.op);
}

}  // namespace

Bound bind_copy(const Binding& b) {
  return {[&exec = b.exec, from = b.input<std::byte>(0), to = b.output<std::byte>(0),
           bytes = b.in(0).bytes()] { kernels::copy(exec, from, to, bytes); },
          nullptr};
}

Bound bind_cast(const Binding& b) {
  return with_type(b.in(0).dtype, [&]<class A>(Type<A>) {
    return with_type(b.out(0).dtype, [&]<class B>(Type<B>) -> Bound {
      const auto from = in_vector<A>(b, 0);
      const auto to = out_vector<B>(b, 0);
      return {[&exec = b.exec, from, to] { kernels::cast<A, B>(exec, from, to); }, nullptr};
    });
  });
}

Bound bind_zero_gaps(const Binding& b) {
  return {[&exec = b.exec, to = b.output<std::byte>(0), width = size_of(b.out(0).dtype),
           pieces = b.op.attributes.integers("pieces")] {
            for (std::size_t i = 0; i < pieces.size(); i += 2)
              kernels::zero(exec, to + pieces[i] * width, pieces[i + 1] * width);
          },
          nullptr};
}

Bound bind_release(const Binding&) {
  return {[] {}, nullptr};
}

Bound bind_sum_squares(const Binding& b) {
  return with_type(b.in(0).dtype, [&]<class G>(Type<G>) -> Bound {
    const G* gradient = b.input<G>(0);
    auto* out = b.output<ExactSum>(0);
    void* workspace = b.output<std::byte>(1);
    return {[&exec = b.exec, gradient, out, workspace, pieces = b.op.attributes.integers("pieces")] {
              kernels::zero(exec, out, sizeof(ExactSum));
              for (std::size_t i = 0; i < pieces.size(); i += 2)
                kernels::sum_squares<G>(exec, {gradient + pieces[i], pieces[i + 1]}, true, out, workspace);
            },
            nullptr};
  });
}

Bound bind_step_partials(const Binding& b) {
  const auto losses = static_cast<std::size_t>(b.op.attributes.integer("losses"));
  const bool counts_loss = b.op.attributes.integer("counts_loss") != 0;
  std::vector<kernels::Term> loss, weight;
  std::vector<const ExactSum*> squares;
  for (std::size_t i = 0; i < b.op.inputs.size(); ++i) {
    if (i >= losses) {
      squares.push_back(b.input<ExactSum>(i));
      continue;
    }
    for (std::int64_t at = 0; at < elements(b.in(i).shape); at += 2) {
      loss.push_back({b.input<double>(i) + at, counts_loss});
      weight.push_back({b.input<double>(i) + at + 1, counts_loss});
    }
  }
  return {[&exec = b.exec, out = b.output<StepPartial>(0), loss, weight, squares] {
            kernels::sum_terms(exec, loss, &out->loss_sum);
            kernels::sum_terms(exec, weight, &out->weight_sum);
            kernels::sum_exact(exec, squares, &out->squares);
          },
          nullptr};
}

Bound bind_finish_step(const Binding& b) {
  const Vector<const StepPartial> partials{b.input<StepPartial>(0), b.in(0).shape[0]};
  auto* scalars = b.output<StepScalars>(0);
  return {[&exec = b.exec, partials, scalars] { kernels::finish_step(exec, partials, scalars); }, nullptr};
}

Bound bind_all_gather(const Binding& b) {
  return {nullptr, group(b).all_gather(b.input<std::byte>(0), b.output<std::byte>(0), b.in(0).bytes())};
}

Bound bind_reduce_scatter(const Binding& b) {
  const DType type = b.in(0).dtype;
  const std::byte* full = b.input<std::byte>(0) + b.op.attributes.integer("begin") * size_of(type);
  const std::int64_t stride = elements(b.in(0).shape) / group(b).size();
  return {nullptr,
          group(b).reduce_scatter(full, type, b.output<std::byte>(0), b.out(0).dtype,
                                  elements(b.out(0).shape), accumulates(b), b.output<std::byte>(1), stride)};
}

Bound bind_all_reduce(const Binding& b) {
  return {nullptr, group(b).all_reduce(b.input<std::byte>(0), b.output<std::byte>(0), b.out(0).dtype,
                                       elements(b.out(0).shape), b.output<std::byte>(1))};
}

Bound bind_all_to_all(const Binding& b) {
  runtime::Communicator& comm = group(b);
  return {nullptr,
          comm.all_to_all(b.input<std::byte>(0), b.output<std::byte>(0), b.in(0).bytes() / comm.size())};
}

Bound bind_shift(const Binding& b) {
  return {nullptr,
          group(b).shift(b.input<std::byte>(0), b.output<std::byte>(0), b.in(0).bytes(), b.op.comm.peer)};
}

Bound bind_broadcast(const Binding& b) {
  const bool root = b.op.outputs.empty();
  return {nullptr, group(b).broadcast(root ? b.input<std::byte>(0) : b.output<std::byte>(0),
                                      root ? b.in(0).bytes() : b.out(0).bytes(), b.op.comm.peer)};
}

/// The pair's first member sends to its second.
Bound bind_send(const Binding& b) {
  return {nullptr, group(b).send(b.input<std::byte>(0), b.in(0).bytes(), 1)};
}
Bound bind_recv(const Binding& b) {
  return {nullptr, group(b).recv(b.output<std::byte>(0), b.out(0).bytes(), 0)};
}

}  // namespace ztrain::engine
