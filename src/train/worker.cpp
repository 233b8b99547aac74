#include "train/worker.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "program/passes.hpp"
#include "train/require_memory.hpp"
#include "train/weights.hpp"

namespace ztrain::train {
namespace {

using program::Job;
using program::Program;

constexpr AxisSet data_axes = Axis::replicate | Axis::shard;

/// Equal for ranks whose Programs have the same ops, order and communications.
std::uint64_t fingerprint(const Job& job) {
  std::uint64_t h = 0;
  for (const Program* p : {&job.load, &job.train, &job.evaluate})
    for (const program::Op& op : p->ops) {
      h = hash_text(op.type, h);
      const std::int64_t facts[] = {static_cast<std::int64_t>(op.stream),
                                    static_cast<std::int64_t>(op.comm.kind), op.comm.axes.bits(),
                                    op.comm.peer, op.inputs.empty() ? 0 : p->tensor(op.inputs[0]).bytes()};
      h = hash_bytes(facts, sizeof facts, h);
      h = hash_bytes(op.after.data(), op.after.size() * sizeof(program::OpId), h);
    }
  return h;
}

void verify_classes(const model::Graph& graph, const program::JobSpec& spec, const Job& own,
                    const std::vector<std::uint64_t>& fingerprints) {
  std::map<std::uint64_t, std::vector<int>> ranks_of;
  for (std::size_t r = 0; r < fingerprints.size(); ++r)
    ranks_of[fingerprints[r]].push_back(static_cast<int>(r));
  std::vector<Job> others;
  others.reserve(ranks_of.size());
  std::vector<const Job*> jobs;
  std::vector<std::vector<int>> classes;
  for (const auto& [print, ranks] : ranks_of) {
    classes.push_back(ranks);
    if (ranks.front() == own.train.rank) {
      jobs.push_back(&own);
    } else {
      others.push_back(program::compile(graph, spec, ranks.front()));
      jobs.push_back(&others.back());
    }
  }
  for (Program Job::*which : {&Job::load, &Job::train, &Job::evaluate}) {
    std::vector<const Program*> programs;
    for (const Job* job : jobs) programs.push_back(&(job->*which));
    verify_joint(programs, classes);
  }
}

void verify_together(const runtime::Session& session, const model::Graph& graph, const program::JobSpec& spec,
                     const Job& job) {
  const std::uint64_t mine = fingerprint(job);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(session.size()));
  REQUIRE(MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, session.world()) == MPI_SUCCESS,
          "MPI_Allgather failed while the ranks compared their programs");
  session.agree("verifying the step program", [&] {
    if (session.rank() == 0) verify_classes(graph, spec, job, all);
  });
}

engine::ExecutorOptions options(bool poison) {
  engine::ExecutorOptions o;
  o.poison = poison;
  return o;
}

}  // namespace

Job compile_and_verify(const runtime::Session& session, const model::Graph& graph,
                       const program::JobSpec& spec) {
  Job job = session.agree("compiling the step program",
                          [&] { return program::compile(graph, spec, session.rank()); });
  verify_together(session, graph, spec, job);
  return job;
}

Worker::Worker(const runtime::Session& session, const model::Graph& graph, const program::JobSpec& spec,
               bool poison)
    : Worker(session, compile_and_verify(session, graph, spec), nullptr, poison) {}

Worker::Worker(const runtime::Session& session, Job job, const config::Deck* deck, bool poison)
    : job_((require_memory(session, job, deck), std::move(job))),
      mesh_(session, job_.train.mesh),
      exec_(kernels::make_exec()),
      memory_(session.agree("allocating memory",
                            [&] {
                              return engine::JobMemory(
                                  {&job_.load, &job_.train, &job_.evaluate},
                                  poison ? memory::Arena::Guards::on : memory::Arena::Guards::off);
                            })),
      load_(job_.load, memory_, mesh_, *exec_, options(poison)),
      train_(job_.train, memory_, mesh_, *exec_, options(poison)),
      evaluate_(job_.evaluate, memory_, mesh_, *exec_, options(poison)) {
  scalars() = {};
}

void Worker::initialize(std::uint64_t seed) {
  initialize_weights(job_.load, job_.tensors, job_.layout, job_.graph, memory_, *exec_, seed);
  load_copies();
}

checkpoint::Imported Worker::import_weights(const std::string& folder, const checkpoint::Progress& progress) {
  const auto shards = state_shards(job_.load, job_.tensors, memory_, false);
  return checkpoint::import_weights(folder, place_of(job_.load, job_.layout), shards, progress);
}

void Worker::complete_import(const checkpoint::Imported& imported, std::uint64_t seed) {
  const std::set<std::string> absent(imported.absent.begin(), imported.absent.end());
  draw_weights(job_.load, job_.tensors, job_.layout, job_.graph, memory_, *exec_, seed,
               [&](const model::Parameter& p) { return absent.contains(p.name); });
  zero_moments(job_.load, job_.tensors, memory_, *exec_);
  load_copies();
}

std::int64_t Worker::weight_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& shard : state_shards(job_.load, job_.tensors, memory_, false))
    bytes += job_.layout.unit(shard.unit).shard_elements * size_of(shard.dtype);
  return bytes;
}

std::int64_t Worker::outside_bytes() const {
  return runtime::resident_bytes() - memory_.resident_bytes();
}

StepScalars& Worker::scalars() const {
  return *memory_.data<StepScalars>(job_.train, job_.tensors.scalars);
}

const StepPartial* Worker::partials() const {
  return memory_.data<StepPartial>(job_.train, job_.tensors.partials);
}

InputAddresses Worker::inputs(int micro) const {
  const auto at = [&](const char* name) { return job_.train.find(program::input_name(name, micro)); };
  return {memory_.data<std::int32_t>(job_.train, at("tokens")),
          memory_.data<std::int32_t>(job_.train, at("targets")),
          memory_.data<float>(job_.train, at("weights")),
          memory_.data<std::int32_t>(job_.train, at("positions")),
          memory_.data<std::int32_t>(job_.train, at("document_start"))};
}

int Worker::data_index() const {
  return mesh_.coordinate().index_in(data_axes);
}
int Worker::data_ranks() const {
  return mesh_.shape().size(data_axes);
}

}  // namespace ztrain::train
