#include "train/references.hpp"

#include <algorithm>
#include <filesystem>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "data/rows/batch_part.hpp"
#include "data/rows/pair_rows.hpp"
#include "files/hdf5_file.hpp"
#include "job/evaluation.hpp"

namespace ztrain::train {
namespace {

constexpr const char* reference_name = "reference.h5";

/// Sets of rows whose references are one table: a set, and what was held out of it.
struct ReferenceTable {
  std::string name;
  data::References* values = nullptr;
  std::vector<const data::PairRows*> rows;
};

std::vector<ReferenceTable> reference_tables(const data::Datasets& sets) {
  std::vector<ReferenceTable> tables;
  const auto add = [&](const data::RowSet& set, const std::string& name) {
    data::References* const values = &set.pairs->references();
    auto table = std::ranges::find(tables, values, &ReferenceTable::values);
    if (table == tables.end()) table = tables.insert(tables.end(), {name, values, {}});
    table->rows.push_back(set.pairs.get());
  };
  for (std::size_t i = 0; i < sets.train.size(); ++i) add(sets.train[i], fmt::format("train.{}", i));
  for (std::size_t i = 0; i < sets.validation.size(); ++i)
    add(sets.validation[i], fmt::format("validation.{}", i));
  return tables;
}

const char* unit_of(const Run& run) {
  return find_pair_loss(run.deck.preference.loss_type).labelled ? "answer" : "pair";
}

std::string hash_of_tables(const std::vector<ReferenceTable>& tables) {
  std::uint64_t hash = 0;
  for (const ReferenceTable& table : tables)
    hash = hash_bytes(table.values->data(), table.values->size() * sizeof(double), hash);
  return hex(hash);
}

/// Copies what this rank has told of its rows of a micro-batch, [first, first + micro) of `rows`.
void note_rows(const data::PairRows& rows, std::int64_t first, std::int64_t micro,
               std::span<const double> logps, std::vector<double>& table) {
  const std::int64_t slots = sequence_slots(rows.sequence());
  for (std::int64_t r = 0; r < micro && first + r < rows.rows(); ++r) {
    const auto [begin, end] = rows.pairs_of(first + r);
    for (std::int64_t p = begin; p < end; ++p)
      std::copy_n(logps.begin() + r * slots + rows.slot_of(begin, p), 2, table.begin() + 2 * p);
  }
}

/// Collective. Runs forward over all rows, each once over all ranks. Returns why rows could not be read on
/// this rank, or "".
std::string run_forward(Run& run, const data::PairRows& rows, std::vector<double>& table,
                        telemetry::Phase& phase) {
  job::Worker& worker = run.worker;
  const std::int64_t micro = run.deck.batch.micro, stride = micro * worker.data_ranks(),
                     batches = ceil_div(rows.rows(), stride);
  data::BatchPart part = job::part_of_batches(worker, micro * rows.sequence());
  std::string failure;
  for (std::int64_t b = 0; b < batches; ++b) {
    phase.at(fmt::format("batch {} of {}", b + 1, batches));
    const std::int64_t first = b * stride + worker.data_index() * micro;
    part.fill(job::batch_of(worker.inputs(0)), [&](const data::MicroBatch& batch) {
      try {
        data::fill_in_order(rows, first, micro, batch);
      } catch (const Error& e) {
        failure = e.what();  // the other ranks wait for this batch
      }
    });
    worker.evaluate_batch();
    if (const std::span<const double> logps = worker.logps(); !logps.empty())
      note_rows(rows, first, micro, logps, table);
  }
  return failure;
}

void compute_tables(Run& run, const std::vector<ReferenceTable>& tables) {
  const double start = now();
  std::int64_t pairs = 0;
  telemetry::Phase phase(run.console, "log-probabilities of the reference",
                         [&run] { return run.worker.position(); });
  for (const ReferenceTable& table : tables) {
    std::vector<double> values(static_cast<std::size_t>(2 * table.rows.front()->pairs()));
    pairs += table.rows.front()->pairs();
    std::string failure;
    for (const data::PairRows* rows : table.rows)
      if (const std::string why = run_forward(run, *rows, values, phase); !why.empty()) failure = why;
    run.session.agree("reading the pairs", [&] { REQUIRE(failure.empty(), "{}", failure); });
    runtime::sum_over_ranks(run.session, values);
    *table.values = std::move(values);
  }
  run.print("reference: the model as it is now, log-probabilities of {} ({:.1f} s)\n",
            count_text(pairs, unit_of(run)), now() - start);
}

void write_tables(const std::vector<ReferenceTable>& tables, const std::filesystem::path& path) {
  const std::filesystem::path unfinished = path.string() + ".tmp";
  std::vector<std::int64_t> offsets;
  {
    Hdf5File file = Hdf5File::create(unfinished, "run.output");
    for (const ReferenceTable& table : tables)
      offsets.push_back(file.reserve(table.name, DType::f64, std::ssize(*table.values)));
    file.close();
  }
  const PosixFile bytes = PosixFile::open_to_write(unfinished, "run.output");
  for (std::size_t i = 0; i < tables.size(); ++i)
    bytes.write_at(tables[i].values->data(),
                   static_cast<std::int64_t>(tables[i].values->size() * sizeof(double)), offsets[i]);
  bytes.sync();
  std::filesystem::rename(unfinished, path);
}

void read_tables(const Run& run, const std::vector<ReferenceTable>& tables,
                 const std::filesystem::path& path) {
  std::error_code unknown;
  REQUIRE(std::filesystem::is_regular_file(path, unknown),
          "run.output: '{}' {}. It holds the log-probabilities of the reference model, from which the "
          "run goes on: copy it from the run's first output folder",
          path.string(), std::filesystem::exists(path, unknown) ? "is no file" : "is not there");
  const Hdf5File file = Hdf5File::open_to_read(path);
  for (const ReferenceTable& table : tables) {
    *table.values = file.read_doubles(table.name);
    REQUIRE(
        std::ssize(*table.values) == 2 * table.rows.front()->pairs(),
        "run.output: '{}' has {} log-probabilities in {}, and the data need {}, two for each of {}: copy it "
        "again from the run's first output folder",
        path.string(), table.values->size(), table.name, 2 * table.rows.front()->pairs(),
        count_text(table.rows.front()->pairs(), unit_of(run)));
  }
  REQUIRE(hash_of_tables(tables) == run.progress.reference,
          "run.output: '{}' holds other log-probabilities of the reference model than those that the "
          "checkpoint was trained with",
          path.string());
}

}  // namespace

void take_references(Run& run) {
  const std::string& loss = run.deck.preference.loss_type;
  if (!run.deck.preference.is_on() || !find_pair_loss(loss).reference || run.is_complete()) return;
  const std::vector<ReferenceTable> tables = reference_tables(run.data);
  const std::filesystem::path path = std::filesystem::path(run.deck.run.output) / reference_name;
  if (run.progress.step > 0)
    return run.session.agree("reading the reference's log-probabilities",
                             [&] { read_tables(run, tables, path); });
  compute_tables(run, tables);
  run.progress.reference = hash_of_tables(tables);
  run.session.agree("writing the reference's log-probabilities", [&] {
    if (run.session.rank() == 0) write_tables(tables, path);
  });
}

}  // namespace ztrain::train
