#include "kernels/attention/attention_graph_cudnn.hpp"

#include <cudnn_frontend.h>

#include <vector>

#include "base/error.hpp"

// Below 1.22 a launch leaves entries of its own in the caller's map of pointers. Up to 1.27 a cuDNN
// below 9.12 is asked for sums of the softmax token by token, which it then writes packed. 1.28 takes them so
// from cuDNN 9.26 on only, so that most attention would not be cuDNN's, without an error.
#if CUDNN_FRONTEND_VERSION < 12900
#error \
    "cudnn-frontend is older than 1.29: tools/install_cuda_headers.sh fetches one that is good, or set CUDNN_FRONTEND_ROOT"
#endif

namespace ztrain::kernels {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Dims = std::vector<std::int64_t>;

constexpr std::int64_t uid(AttentionTensor tensor) {
  return static_cast<std::int64_t>(tensor);
}

/// Builds the tensors of one request.
class Builder {
 public:
  Builder(const AttentionRequest& request, int sm)
      : r_(request),
        s_(request.shape),
        heads_(request.work.kv_heads * (s_.heads / s_.kv_heads)),
        graph_(std::make_shared<fe::graph::Graph>()) {
    graph_->set_name(r_.backward ? "attention_backward" : "attention_forward")
        .set_io_data_type(r_.type == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (sm > 0) graph_->set_sm_version(sm);
    if (ragged()) {
      q_offsets_ = offsets(AttentionTensor::q_offsets);
      k_offsets_ = offsets(AttentionTensor::k_offsets);
      v_offsets_ = offsets(AttentionTensor::v_offsets);
      o_offsets_ = offsets(AttentionTensor::o_offsets);
      lse_offsets_ = offsets(AttentionTensor::lse_offsets);
    }
  }

  CudnnGraph forward() {
    fe::graph::SDPA_attributes attributes;
    attributes.set_name("attention").set_generate_stats(true);
    common(attributes);
    auto [o, lse] = graph_->sdpa(input(AttentionTensor::q, queries()), input(AttentionTensor::k, keys()),
                                 input(AttentionTensor::v, values()), attributes);
    output(o, AttentionTensor::o, outputs());
    place_lse(lse->set_output(true));
    return graph_;
  }

  CudnnGraph backward() {
    fe::graph::SDPA_backward_attributes attributes;
    attributes.set_name("attention_backward").set_deterministic_algorithm(s_.deterministic && !ragged());
    common(attributes);
    if (ragged()) {
      attributes.set_max_total_seq_len_q(s_.tokens);
      attributes.set_max_total_seq_len_kv(s_.tokens);
    }
    const Tensor lse = graph_->tensor(fe::graph::Tensor_attributes());
    place_lse(*lse);
    auto [dq, dk, dv] =
        graph_->sdpa_backward(input(AttentionTensor::q, queries()), input(AttentionTensor::k, keys()),
                              input(AttentionTensor::v, values()), input(AttentionTensor::o, outputs()),
                              input(AttentionTensor::dout, outputs()), lse, attributes);
    output(dq, AttentionTensor::dq, queries());
    output(dk, AttentionTensor::dk, keys());
    output(dv, AttentionTensor::dv, values());
    return graph_;
  }

 private:
  bool ragged() const { return r_.work.way == AttentionWay::documents; }

  /// Masks and the scale, which both directions name alike.
  template <class Attributes>
  void common(Attributes& attributes) {
    attributes.set_attn_scale(static_cast<float>(s_.score_scale()))
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
    set_band(attributes, r_);
    if (r_.work.way == AttentionWay::masked) attributes.set_bias(mask());
    if (ragged())
      attributes.set_padding_mask(true)
          .set_seq_len_q(lengths(AttentionTensor::q_lengths))
          .set_seq_len_kv(lengths(AttentionTensor::k_lengths));
  }

  /// Where heads lie: tokens begin `row` elements apart, ragged entries at their offsets.
  struct Rows {
    std::int64_t heads, row;
    const Tensor& offsets;
  };
  Rows queries() const { return {heads_, s_.q_row(), q_offsets_}; }
  Rows keys() const { return {r_.work.kv_heads, r_.work.kv_row, k_offsets_}; }
  Rows values() const { return {r_.work.kv_heads, r_.work.kv_row, v_offsets_}; }
  Rows outputs() const { return {heads_, s_.o_row(), o_offsets_}; }

  void place(fe::graph::Tensor_attributes& t, AttentionTensor which, const Rows& rows) const {
    const std::int64_t length = r_.work.length;
    t.set_uid(uid(which))
        .set_dim({r_.work.at_once, rows.heads, length, s_.head_dim})
        .set_stride({length * rows.row, s_.head_dim, rows.row, 1});
    if (rows.offsets) t.set_ragged_offset(rows.offsets);
  }
  Tensor input(AttentionTensor which, const Rows& rows) const {
    fe::graph::Tensor_attributes t;
    place(t, which, rows);
    return graph_->tensor(t);
  }
  void output(const Tensor& t, AttentionTensor which, const Rows& rows) const {
    place(t->set_output(true), which, rows);
  }

  /// cuDNN 9.19 reads lse of whole entries only packed.
  void place_lse(fe::graph::Tensor_attributes& t) const {
    const std::int64_t length = r_.work.length;
    const bool packed = r_.backward && !ragged();
    t.set_uid(uid(AttentionTensor::lse))
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({r_.work.at_once, heads_, length, 1})
        .set_stride(packed ? Dims{heads_ * length, length, 1, 1} : Dims{length * s_.heads, 1, s_.heads, 1});
    if (ragged()) t.set_ragged_offset(lse_offsets_);
  }

  Tensor mask() const {
    const std::int64_t length = r_.work.length;
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid(AttentionTensor::mask))
                              .set_dim({r_.work.at_once, 1, length, length})
                              .set_stride({length * length, length * length, length, 1}));
  }
  Tensor integers(AttentionTensor which, fe::DataType_t type, std::int64_t count) const {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid(which))
                              .set_data_type(type)
                              .set_dim({count, 1, 1, 1})
                              .set_stride({1, 1, 1, 1}));
  }
  Tensor lengths(AttentionTensor which) const {
    return integers(which, fe::DataType_t::INT32, r_.work.entries);
  }
  Tensor offsets(AttentionTensor which) const {
    return integers(which, fe::DataType_t::INT64, r_.work.entries + 1);
  }

  AttentionRequest r_;
  AttentionShape s_;
  std::int64_t heads_;  ///< of queries, of a launch
  CudnnGraph graph_;
  Tensor q_offsets_, k_offsets_, v_offsets_, o_offsets_, lse_offsets_;
};

std::string message(fe::error_t status) {
  return status.is_good() ? std::string() : status.get_message();
}

std::string failed(const char* step, fe::error_t status) {
  return status.is_good() ? std::string() : fmt::format("{}: {}", step, status.get_message());
}

/// Bytes of workspace that a plan may take.
std::int64_t room_of(const AttentionRequest& request) {
  return request.work.end - request.work.library;
}

}  // namespace

CudnnGraph describe_attention(const AttentionRequest& request, int sm) {
  Builder builder(request, sm);
  return request.backward ? builder.backward() : builder.forward();
}

std::string check_graph(fe::graph::Graph& graph) {
  if (auto why = message(graph.validate()); !why.empty()) return why;
  return message(graph.build_operation_graph(nullptr));
}

std::string unpromised(const AttentionRequest& request, std::size_t cudnn) {
  if (request.work.way != AttentionWay::documents || cudnn >= cudnn_with_empty_documents) return {};
  const auto text = [](std::size_t version) {
    return fmt::format("{}.{}", version / 10000, version / 100 % 100);
  };
  return fmt::format("cuDNN {} promises nothing of documents without tokens; {} does", text(cudnn),
                     text(cudnn_with_empty_documents));
}

std::string choose_plans(fe::graph::Graph& graph, const PlanDevice& device, const AttentionRequest& request) {
  if (!device.properties.empty()) {
    const auto properties = std::make_shared<fe::DeviceProperties>();
    if (auto why =
            failed("device", properties->deserialize({device.properties.begin(), device.properties.end()}));
        !why.empty())
      return why;
    graph.set_device_properties(properties);
  }
  if (auto why = failed("validate", graph.validate()); !why.empty()) return why;
  if (auto why = failed("build", graph.build_operation_graph(device.handle)); !why.empty()) return why;
  if (auto why = failed("plan", graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}));
      !why.empty())
    return why;
  graph.deselect_workspace_greater_than(room_of(request));
  if (request.backward && request.shape.deterministic)
    graph.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
  return failed("support", graph.check_support());
}

std::string compile_plan(fe::graph::Graph& graph, const AttentionRequest& request) {
  const std::int64_t room = room_of(request);
  std::string tried;
  for (std::int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
    std::int64_t needed = 0;
    std::string why = failed("compile", graph.build_plan_at_index(i));
    if (why.empty()) why = failed("workspace", graph.get_workspace_size_plan_at_index(i, needed));
    if (why.empty() && needed > room)
      why = fmt::format("its workspace of {} bytes is above the {} reserved", needed, room);
    // Takes the plan as it is, and prepares launches.
    if (why.empty()) return failed("prepare", graph.build_plans());
    tried += fmt::format("{}plan {}: {}", tried.empty() ? "" : "; ", i, why);
  }
  return tried;
}

std::int64_t workspace_of(const fe::graph::Graph& graph) {
  std::int64_t bytes = 0;
  const std::string why = message(graph.get_workspace_size(bytes));
  REQUIRE(why.empty(), "attention: cuDNN's plan does not tell its workspace: {}", why);
  return bytes;
}

std::vector<std::int64_t> pointers_of(const fe::graph::Graph& graph) {
  return graph.get_variant_pack_uids_sorted();
}

std::string run_graph(fe::graph::Graph& graph, cudnnHandle_t handle,
                      std::unordered_map<std::int64_t, void*>& pointers, void* workspace) {
  return message(graph.execute(handle, pointers, workspace));
}

std::int64_t row_of(const CudnnGraph& graph, AttentionTensor tensor) {
  fe::graph::Tensor_attributes t;
  const std::string why = message(graph->query_tensor_attributes_of_uid(uid(tensor), t));
  REQUIRE(why.empty(), "attention: cuDNN's graph has no tensor {}: {}", uid(tensor), why);
  return t.get_stride().at(2);
}

}  // namespace ztrain::kernels
