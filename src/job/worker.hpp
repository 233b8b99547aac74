#pragma once
// One rank's machinery for a compiled job: mesh, memory, executors and the state in them.

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/preference_loss.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/hf/import.hpp"
#include "config/deck.hpp"
#include "engine/executor.hpp"
#include "engine/host_tensors.hpp"
#include "engine/inspector.hpp"
#include "engine/job_memory.hpp"
#include "job/codes/quantized_weights.hpp"
#include "job/held_memory.hpp"
#include "job/open_device.hpp"
#include "kernel_interface/exact_sum.hpp"
#include "kernel_interface/experts_partial.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "program/jobs/compile.hpp"
#include "runtime/comm/mesh_comms.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "telemetry/place.hpp"

namespace ztrain::job {

/// Input tensors of one micro-batch: where the host writes them.
struct InputAddresses {
  std::int32_t* tokens;
  std::int32_t* targets;
  float* weights;
  std::int32_t* positions;
  std::int32_t* document_start;
  std::int32_t* sequences = nullptr;  ///< null, as `reference`, unless the loss is on pairs
  double* reference = nullptr;
  /// Words of each token's teacher and their probabilities, [tokens, k]; empty unless there is a teacher.
  std::span<std::int32_t> words{};
  std::span<float> shares{};
};

/// Sums over tokens, in nats.
struct DistillationSums {
  double entropy = 0, divergence = 0;
};

/// Words of tokens, the likeliest first, and the logarithms of their probabilities: [tokens, k].
struct LikeliestWords {
  std::span<const std::int32_t> words{};
  std::span<const float> logs{};
};

struct WorkerOptions {
  bool poison = false;  ///< debug.poison
  bool timed = false;   ///< engine::ExecutorOptions::timed
  config::Device device = default_device_options();
  memory::NvmeOptions nvme{};  ///< what [offload] says of it
  int host_threads = 0;        ///< offload.optimizer_threads
};
WorkerOptions worker_options(const config::Deck& deck);

class Worker {
 public:
  /// Collective. Compiles, proves the joint graph, allocates and binds. The state is not set yet:
  /// initialize() draws it; or write the slices and call derive_parameters(). device: null for that of the
  /// build.
  Worker(const runtime::Session& session, const model::Graph& graph, const program::JobSpec& spec,
         WorkerOptions options = {}, std::unique_ptr<runtime::Device> device = nullptr);
  /// Collective. The same on a device with communicators that were chosen by the caller.
  Worker(const runtime::Session& session, const model::Graph& graph, const program::JobSpec& spec,
         const WorkerOptions& options, Ground ground);
  /// Collective. For a job compiled by compile_and_verify. deck: to say in terms of what would make a job fit
  /// that does not; may be null.
  Worker(const runtime::Session& session, program::Job job, const config::Deck* deck, WorkerOptions options,
         std::unique_ptr<runtime::Device> device);

  /// Collective: weights drawn from the seed, moments zero.
  void initialize(std::uint64_t seed);
  /// Fills the slices of the weights from a Hugging Face model's folder or a checkpoint, and touches no other
  /// memory; what checkpoint::import_weights gives and throws. Call complete_import() once all ranks are
  /// through.
  checkpoint::Imported import_weights(const std::string& folder, const checkpoint::ImportOptions& options);
  /// Collective: draws adapters that the folder lacked from the seed, makes moments zero, derives all copies.
  void complete_import(const checkpoint::Imported& imported, std::uint64_t seed);
  /// Returns whether weights are kept in 4 or 8 bits: the same on every rank.
  bool keeps_codes() const;
  /// Collective. Makes the codes of such weights. Throws AgreedError if reading fails on any rank. decoded:
  /// gets what this rank owns of them as their codes say, if it is given. Call derive_parameters()
  /// afterwards.
  void quantize(const ReadElements& read, const DecodedElements& decoded = {});
  /// Writes the parameters that start as norms of the rows of a weight (model::Init::row_norms). Call
  /// derive_parameters() afterwards.
  void write_row_norms(const ReadElements& read);
  /// Gives elements of parameters as initialize() draws them.
  ReadElements drawn_elements(std::uint64_t seed);
  /// Draws the weights that are not trained and not kept in few bits from the seed again, and leaves all else
  /// as it is.
  void draw_frozen(std::uint64_t seed);
  /// Bytes of this rank's slices of the weights, which import_weights and quantize fill.
  std::int64_t weight_bytes() const;

  /// What the log should say of how this came about; none: nothing.
  const std::vector<engine::Note>& notes() const { return notes_; }
  const program::Job& job() const { return job_; }
  runtime::Device& device() const { return *device_; }
  const engine::JobMemory& memory() const { return memory_; }
  runtime::Mesh& mesh() { return mesh_; }
  engine::Queues& queues() { return queues_; }
  /// Returns the executor of the train step that scalars() ask for. The job must have one (Job::trains).
  engine::Executor& train() { return warms_up() ? *warm_up_ : *train_; }
  const engine::Executor& train() const { return warms_up() ? *warm_up_ : *train_; }
  engine::Executor& evaluate() { return evaluate_; }

  /// Collective, after the slices of the state were written: the parameters that ranks compute with follow
  /// from them.
  void derive_parameters() { load_.run(); }
  /// Collective: the train Program on inputs() and scalars(), whose results are there on return. That is
  /// where the host waits for the device, and nowhere else. A step that left rows out has changed nothing and
  /// is taken again with room for all.
  void step();
  /// Returns whether the last step was taken again.
  bool reran() const { return reran_; }
  /// Collective: a step as before, whose ops are looked at. Not on devices that work later.
  void step(engine::OpObserver& observer);
  /// Collective: a step as before, whose ops are looked at for the first result of this rank that is not
  /// finite. Nothing on devices that work later.
  std::optional<engine::FoundOp> inspect_step();
  /// Collective: the evaluation of micro-batch 0; partials() are there on return.
  void evaluate_batch();
  /// For a watchdog on another thread: the op that the host is at, or what the device is at while the host
  /// waits for it in a step or an evaluation; "" where it is neither.
  std::string where() const;
  /// Where this rank is, for the others: all but the process and the phase.
  telemetry::Place place() const;
  /// The same in brief: "op 37 of 146, forward model.layers.2 micro 0".
  std::string position() const;
  /// This rank's slices of the state. No work is under way on them.
  std::vector<checkpoint::StateShard> state(bool optimizer) const;
  /// Takes the memory for the next, which else comes when it is first written: at the start of a run the
  /// machine still has it, and no step waits for it.
  void take_room_for_copies() const;
  /// The same of a copy in the host's memory, which stays as it is until the next call. Of a job with room
  /// for it (JobSpec::snapshots); on ranks that have none it is not there.
  std::vector<checkpoint::StateShard> copied_state() const;
  /// Collective: the state is again as it was when it was last copied, of a job with room for it on every
  /// rank. Nothing is written to the copy.
  void restore_copied();

  /// What this rank holds, as it is counted by others than the plan. Of a GPU as of the last look().
  HeldMemory& held() { return held_; }
  const HeldMemory& held() const { return held_; }
  std::int64_t outside_bytes() const { return held_.outside(memory_); }
  /// Arenas of the memory that is counted.
  std::int64_t planned_bytes() const { return HeldMemory::planned(*device_, memory_); }

  StepScalars& scalars() const;
  /// [ranks], after an evaluation.
  const StepPartial* partials() const;
  /// Returns what all ranks report of experts together, after a step or an evaluation; in an evaluation no
  /// load. Nothing if the model has no experts.
  std::optional<ExpertsPartial> experts() const;
  /// Returns what all ranks report of pairs of answers together, after a step or an evaluation. Nothing if
  /// the loss is another.
  std::optional<PreferenceSums> preference() const;
  /// Returns the log-probabilities of this rank's sequences in the last evaluation, by slot. Empty on ranks
  /// that do not tell: those without the head, and all but one of those that computed the same.
  std::span<const double> logps() const;
  /// Returns the sums over all ranks' tokens of cross-entropy and divergence from the teacher, after a step.
  /// Nothing unless there is a teacher.
  std::optional<DistillationSums> distillation() const;
  /// Returns the likeliest words of this rank's tokens in the last evaluation. Empty on ranks that do not
  /// tell, as logps().
  LikeliestWords likeliest() const;
  InputAddresses inputs(int micro) const;
  /// Index of this rank among those that see different data, and their number.
  int data_index() const;
  int data_ranks() const;

 private:
  Worker(const runtime::Session& session, program::Job job, const config::Deck* deck,
         const WorkerOptions& options, Ground ground);
  void note_nvme(memory::NvmeMemory& nvme);
  void note_algorithms(const runtime::Session& session, const config::Deck& deck);
  void run_step(engine::Executor& executor);
  /// Returns whether the step is one of the job's warm-up.
  bool warms_up() const;
  /// Makes the averages equal to the weights, which must be loaded.
  void start_averages();
  /// Returns the executors of all Programs: that of the load Program is first, that of the train step, if
  /// there is one, is last.
  std::vector<const engine::Executor*> executors() const;
  void wait(engine::Executor& executor);
  /// One past the last input among the host's tensors. What steps report follows.
  std::size_t inputs_end() const;
  std::size_t input_names() const;
  std::size_t input_place(int micro, std::size_t name) const;
  bool of_pairs() const { return job_.tensors.preference.report != program::no_tensor; }
  bool distils() const { return job_.tensors.teacher.report != program::no_tensor; }
  /// Returns where the host has what steps report in this tensor of the job, which is there.
  const std::byte* report_at(program::TensorId tensor) const;
  template <class T>
  const T* report(program::TensorId tensor) const {
    return reinterpret_cast<const T*>(report_at(tensor));
  }
  void download_reports();

  const runtime::Session& session_;
  program::Job job_;
  std::unique_ptr<runtime::Device> device_;
  engine::Queues queues_;
  HeldMemory held_;
  runtime::Mesh mesh_;
  Arenas arenas_;
  engine::JobMemory& memory_ = arenas_.memory;
  runtime::CloseMesh close_;
  program::Succession succession_{job_.programs};
  engine::Executor load_;
  std::unique_ptr<engine::Executor> train_, warm_up_, all_rows_;  ///< null where the job has no such Program
  engine::Executor evaluate_;
  bool reran_ = false;
  engine::HostTensors host_;
  std::vector<engine::Note> notes_;
  runtime::AbortOnError abort_;
};

/// Collective: compiles this rank's job, and proves the joint graph of every Program of it. Ranks whose
/// Programs communicate alike are one class, compiled once on rank 0. Throws AgreedError on every rank when a
/// proof fails.
program::Job compile_and_verify(const runtime::Session& session, telemetry::Console& console,
                                const model::Graph& graph, const program::JobSpec& spec);

}  // namespace ztrain::job
