#include "job/worker.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "engine/connections.hpp"
#include "engine/library_kernels.hpp"
#include "job/joint_proof.hpp"
#include "job/product_algorithms.hpp"
#include "job/require_memory.hpp"
#include "job/weights.hpp"
#include "plan/rates/machine.hpp"

namespace ztrain::job {
namespace {

using program::Job;

// The order of the host's tensors: scalars, partials, the inputs by micro-batch, and what is reported. A loss
// on pairs and one against a teacher have two more inputs each, and no job has both losses.
constexpr std::size_t scalars_place = 0, partials_place = 1, first_input = 2, of_tokens = 5;
constexpr std::array names_of_inputs{"tokens",    "targets",        "weights",
                                     "positions", "document_start", "sequences",
                                     "reference", "teacher_words",  "teacher_shares"};

/// Tensors of a job that steps and evaluations report in, in their order; some may be no_tensor.
std::array<program::TensorId, 6> report_tensors(const Job& job) {
  const program::JobTensors& t = job.tensors;
  return {t.experts,        t.preference.report, t.preference.logps,
          t.teacher.report, t.teacher.words,     t.teacher.log_likelihoods};
}

engine::ExecutorOptions executor_options(const WorkerOptions& options, program::Succession& succession) {
  engine::ExecutorOptions o;
  o.succession = &succession;
  o.poison = options.poison;
  o.timed = options.timed;
  if (options.device.cuda_graphs == "compute") o.graphs = engine::Graphs::compute;
  if (options.device.cuda_graphs == "step") o.graphs = engine::Graphs::step;
  return o;
}

/// Products are bound with the algorithms that are known so far.
engine::Queues& with_algorithms(const runtime::Session& session, const runtime::Mesh& mesh,
                                const config::Deck* deck, engine::Queues& queues) {
  if (!deck) return queues;
  // Only NCCL's kernels take multiprocessors; communication over MPI runs on the host.
  const int left = mesh.connects_late() ? plan::product_multiprocessors(queues.device().multiprocessors(),
                                                                        mesh.shape(), deck->device)
                                        : 0;
  open_product_algorithms(session, mesh.shape(), deck->device, left, queues.exec(runtime::compute_queue));
  return queues;
}

std::unique_ptr<engine::Executor> if_there(const program::Program* program, engine::JobMemory& memory,
                                           runtime::Mesh& mesh, engine::Queues& queues,
                                           const engine::ExecutorOptions& options) {
  return program ? std::make_unique<engine::Executor>(*program, memory, mesh, queues, options) : nullptr;
}

/// Which share what the host computes: as many as were asked for, or the cores of this rank. A launcher that
/// binds ranks to cores has said which these are. CPU ranks compute on theirs all the time.
int host_threads(const runtime::Session& session, const runtime::Device& device, int asked) {
  if (asked > 0) return asked;
  if (!device.asynchronous()) return 1;
  const int cores = usable_cores();
  return cores < all_cores() ? cores : std::max(1, cores / session.ranks_on_node());
}

/// For a job that nobody watches.
Job compiled(const runtime::Session& session, const model::Graph& graph, const program::JobSpec& spec) {
  telemetry::Console silent;
  return compile_and_verify(session, silent, graph, spec);
}

/// What the host writes and reads, in the order of their places.
std::vector<program::TensorId> host_tensors(const Job& job) {
  std::unordered_map<std::string_view, program::TensorId> by_name;
  for (program::TensorId t = 0; t < std::ssize(job.load().tensors); ++t)
    by_name.try_emplace(job.load().tensor(t).name, t);
  std::vector<program::TensorId> tensors{job.tensors.scalars, job.tensors.partials};
  for (int micro = 0; by_name.contains(program::input_name(names_of_inputs.front(), micro)); ++micro)
    for (const char* name : names_of_inputs)
      if (const auto input = by_name.find(program::input_name(name, micro)); input != by_name.end())
        tensors.push_back(input->second);
  for (const program::TensorId report : report_tensors(job))
    if (report != program::no_tensor) tensors.push_back(report);
  return tensors;
}

std::vector<engine::DeviceRange> host_ranges(const Job& job, const engine::JobMemory& memory) {
  std::vector<engine::DeviceRange> ranges;
  for (const program::TensorId t : host_tensors(job))
    ranges.push_back({memory.address(job.load(), t), job.load().tensor(t).bytes()});
  return ranges;
}

std::int64_t pinned_bytes(const Ground& ground, const Job& job) {
  std::vector<std::int64_t> bytes;
  for (const program::TensorId t : host_tensors(job)) bytes.push_back(job.load().tensor(t).bytes());
  return job::pinned_bytes(*ground.device, *ground.backend, job.programs.all(), bytes);
}

/// The job, once it is known to fit.
Job fitting(const runtime::Session& session, const Ground& ground, Job job, const config::Deck* deck) {
  require_memory(session, *ground.device, job, pinned_bytes(ground, job), deck);
  return job;
}

}  // namespace

Job compile_and_verify(const runtime::Session& session, telemetry::Console& console,
                       const model::Graph& graph, const program::JobSpec& given) {
  program::JobSpec spec;
  Job job = session.agree("compiling the step program", [&] {
    const telemetry::Phase phase(console, "compiling the step program");
    spec = with_stages(graph, given);
    return program::compile(graph, spec, session.rank());
  });
  telemetry::Phase phase(console, "proving the step program over all ranks");
  prove_together(
      session, phase, job.programs.all(),
      [&](int rank) { return program::compile(graph, spec, rank).programs.take(); }, spec);
  return job;
}

WorkerOptions worker_options(const config::Deck& deck) {
  memory::NvmeOptions nvme;
  for (const std::string& folder : deck.offload.nvme_path) nvme.paths.emplace_back(folder);
  nvme.depth = static_cast<int>(deck.offload.queue_depth);
  nvme.block_bytes = deck.offload.nvme_block_size;
  nvme.checksums = deck.offload.checksums;
  nvme.threads = static_cast<int>(deck.offload.threads);
  return {.poison = deck.debug.poison,
          .device = deck.device,
          .nvme = std::move(nvme),
          .host_threads = static_cast<int>(deck.offload.optimizer_threads)};
}

Worker::Worker(const runtime::Session& session, const model::Graph& graph, const program::JobSpec& spec,
               WorkerOptions options, std::unique_ptr<runtime::Device> device)
    : Worker(session, compiled(session, graph, spec), nullptr, options, std::move(device)) {}

Worker::Worker(const runtime::Session& session, const model::Graph& graph, const program::JobSpec& spec,
               const WorkerOptions& options, Ground ground)
    : Worker(session, compiled(session, graph, spec), nullptr, options, std::move(ground)) {}

Worker::Worker(const runtime::Session& session, Job job, const config::Deck* deck, WorkerOptions options,
               std::unique_ptr<runtime::Device> device)
    : Worker(session, std::move(job), deck, options,
             open_ground(session, std::move(device), options.device)) {}

Worker::Worker(const runtime::Session& session, Job job, const config::Deck* deck,
               const WorkerOptions& options, Ground ground)
    : session_(session),
      job_(fitting(session, ground, std::move(job), deck)),
      device_(std::move(ground.device)),
      queues_(*device_, host_threads(session, *device_, options.host_threads)),
      held_(session, *device_),
      mesh_(session, job_.load().mesh, std::move(ground.backend)),
      arenas_(
          allocate(session, *device_,
                   engine::with_connections(session, mesh_, device_->memory(), job_.programs.all()).backend(),
                   held_, job_.programs.all(), options.nvme,
                   options.poison ? memory::Arena::Guards::on : memory::Arena::Guards::off)),
      close_(mesh_),
      load_(job_.load(), memory_, mesh_, with_algorithms(session, mesh_, deck, queues_),
            {.poison = options.poison, .succession = &succession_}),
      train_(if_there(job_.programs.find(program::train_name), memory_, mesh_, queues_,
                      executor_options(options, succession_))),
      warm_up_(if_there(job_.warm_up(), memory_, mesh_, queues_, executor_options(options, succession_))),
      all_rows_(if_there(job_.all_rows(), memory_, mesh_, queues_, executor_options(options, succession_))),
      evaluate_(job_.evaluate(), memory_, mesh_, queues_, executor_options(options, succession_)),
      host_(session.agree("allocating memory",
                          [&] { return engine::HostTensors(*device_, host_ranges(job_, memory_)); })),
      abort_(mesh_) {
  std::vector<const engine::Executor*> repeated = executors();
  repeated.erase(repeated.begin());  // that of the load Program
  session.agree("preparing graphs", [&] {
    REQUIRE(
        options.device.cuda_graphs != "step" || job_.load().mesh[Axis::pipeline] == 1 ||
            mesh_.ordered_in_graphs(),
        "device.cuda_graphs = \"step\" with mesh.pipeline = {} needs a driver of CUDA 12.9 or later: with an "
        "older one messages of a graph wait for each other's end, and ranks for each other for ever. Set "
        "device.cuda_graphs = \"compute\"",
        job_.load().mesh[Axis::pipeline]);
    for (const engine::Executor* executor : repeated) executor->require_capturable();
  });
  const std::vector<engine::Note> of_arenas = register_arenas(mesh_, arenas_);
  notes_ = (train_ ? *train_ : evaluate_).notes();
  for (const engine::Note& note : evaluate_.notes())
    if (note.warning && std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
  if (memory_.nvme()) note_nvme(*memory_.nvme());
  notes_.insert(notes_.end(), of_arenas.begin(), of_arenas.end());
  if (deck) note_algorithms(session, *deck);
  std::vector<const program::Program*> programs;
  for (const engine::Executor* executor : repeated) programs.push_back(&executor->program());
  engine::load_library_kernels(session, programs, memory_, mesh_, queues_);
  scalars() = {};
  host_.upload(scalars_place);
}

void Worker::note_nvme(memory::NvmeMemory& nvme) {
  memory_.each_region(program::Tier::host,
                      [&](void* data, std::int64_t bytes) { nvme.register_memory(data, bytes); });
  if (!nvme.description().empty()) notes_.push_back({"NVMe", nvme.description()});
  if (!nvme.warning().empty()) notes_.push_back({"NVMe", nvme.warning(), true});
}

void Worker::note_algorithms(const runtime::Session& session, const config::Deck& deck) {
  const std::string text =
      share_product_algorithms(session, deck.device, queues_.exec(runtime::compute_queue));
  if (!text.empty()) notes_.push_back({"products", text});
  const std::string others = other_processors(session, processor_of(*device_, deck.precision.parameters));
  if (!others.empty()) notes_.push_back({"processors", others, true});
}

void Worker::step() {
  host_.upload(scalars_place);
  for (std::size_t i = first_input; i < inputs_end(); ++i) host_.upload(i);
  run_step(train());
  reran_ = all_rows_ && scalars().found_inf == StepScalars::rows_left_out;
  if (reran_) run_step(*all_rows_);
}

bool Worker::warms_up() const {
  return warm_up_ && scalars().optimizer_step < static_cast<double>(job_.warm_up_steps);
}

void Worker::run_step(engine::Executor& executor) {
  executor.run();
  host_.download(scalars_place);
  download_reports();
  wait(executor);
}

std::optional<engine::FoundOp> Worker::inspect_step() {
  if (device_->asynchronous()) return std::nullopt;
  engine::Inspector inspector(train().program(), memory_);
  step(inspector);
  return inspector.found();
}

void Worker::step(engine::OpObserver& observer) {
  engine::Executor& executor = train();
  if (!device_->asynchronous()) executor.look_with(&observer);
  step();
  executor.look_with(nullptr);
}

void Worker::evaluate_batch() {
  for (std::size_t i = 0; i < input_names(); ++i) host_.upload(input_place(0, i));
  evaluate_.run();
  host_.download(partials_place);
  download_reports();
  wait(evaluate_);
}

std::size_t Worker::inputs_end() const {
  const auto reports = report_tensors(job_);
  const auto missing = static_cast<std::size_t>(std::ranges::count(reports, program::no_tensor));
  return host_.size() - (reports.size() - missing);
}

const std::byte* Worker::report_at(program::TensorId tensor) const {
  std::size_t place = inputs_end();
  for (const program::TensorId report : report_tensors(job_)) {
    if (report == tensor) break;
    if (report != program::no_tensor) ++place;
  }
  return host_.at(place);
}

std::size_t Worker::input_names() const {
  return of_tokens + (of_pairs() || distils() ? 2 : 0);
}

std::size_t Worker::input_place(int micro, std::size_t name) const {
  return first_input + static_cast<std::size_t>(micro) * input_names() + name;
}

void Worker::download_reports() {
  for (std::size_t i = inputs_end(); i < host_.size(); ++i) host_.download(i);
}

/// A communication that failed on the device would never end. What the device is at is asked for once it
/// takes its time, and then rarely: asking costs calls of the driver.
void Worker::wait(engine::Executor& executor) {
  using Clock = std::chrono::steady_clock;
  auto next = Clock::now() + std::chrono::milliseconds(500);
  const auto meanwhile = [&] {
    mesh_.check();
    if (Clock::now() < next) return;
    executor.observe();
    next = Clock::now() + std::chrono::milliseconds(100);
  };
  host_.wait(std::ref(meanwhile));  // by reference: a step allocates nothing
  executor.forget();
}

std::vector<checkpoint::StateShard> Worker::state(bool optimizer) const {
  device_->finish();
  return state_shards(job_.load(), job_.tensors, memory_, optimizer);
}

void Worker::take_room_for_copies() const {
  for (const program::UnitState& unit : job_.tensors.units)
    for (const auto& [state, copy] : unit.snapshot)
      std::memset(memory_.address(job_.load(), copy), 0,
                  static_cast<std::size_t>(job_.load().tensor(copy).bytes()));
}

std::vector<checkpoint::StateShard> Worker::copied_state() const {
  device_->finish();
  return copied_shards(job_.load(), job_.tensors, memory_);
}

void Worker::restore_copied() {
  device_->finish();
  restore_shards(job_.load(), job_.tensors, memory_);
  succession_.restart();
  derive_parameters();
}

StepScalars& Worker::scalars() const {
  return *reinterpret_cast<StepScalars*>(host_.at(scalars_place));
}

const StepPartial* Worker::partials() const {
  return reinterpret_cast<const StepPartial*>(host_.at(partials_place));
}

InputAddresses Worker::inputs(int micro) const {
  const auto ints = [&](std::size_t name) {
    return reinterpret_cast<std::int32_t*>(host_.at(input_place(micro, name)));
  };
  InputAddresses of{ints(0), ints(1), reinterpret_cast<float*>(host_.at(input_place(micro, 2))), ints(3),
                    ints(4)};
  if (of_pairs()) {
    of.sequences = ints(5);
    of.reference = reinterpret_cast<double*>(host_.at(input_place(micro, 6)));
  } else if (distils()) {
    const auto words = static_cast<std::size_t>(host_.bytes(input_place(micro, 5))) / sizeof(std::int32_t);
    of.words = {ints(5), words};
    of.shares = {reinterpret_cast<float*>(host_.at(input_place(micro, 6))), words};
  }
  return of;
}

int Worker::data_index() const {
  return mesh_.coordinate().index_in(sequence_axes);
}
int Worker::data_ranks() const {
  return mesh_.shape().size(sequence_axes);
}

}  // namespace ztrain::job
