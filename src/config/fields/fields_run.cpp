#include "config/fields/fields_rows.hpp"

namespace ztrain::config::rows {

std::vector<Field> run() {
  return {
      free(written_path({KEY_OF(run, output), R"("")", "", any(),
                         "Folder that receives the resolved deck, metrics and checkpoints. Empty: runs/ "
                         "followed by the deck's name without its extension."})),
      on_request(numeric({KEY_OF(run, seed), "1234", "", count(0),
                          "Seed of the initial weights and of the order of the data."})),
      free(numeric(example("1000", {KEY_OF(run, steps), "0", "steps", count(0),
                                    "Length of the run in optimizer steps. Exactly one of steps, tokens and "
                                    "epochs is given; 0 means not given."}))),
      free(numeric({KEY_OF(run, tokens), "0", "tokens", count(0),
                    "Length of the run in tokens, rounded up to whole steps."})),
      free(numeric({KEY_OF(run, epochs), "0", "epochs", between(0, 1e9),
                    "Length of the run in passes over the training data, rounded to whole steps."})),
      free({KEY_OF(run, max_minutes), "0", "minutes", between(0, 1e9),
            "Wall-clock time after which the run ends itself, by rank 0's clock from the start of the "
            "program: the step under way is finished, a checkpoint saved (unless checkpoint.interval is -1), "
            "and the exit status is 0. At least one step is taken. The schedule stays that of the run's "
            "whole length, so that resuming goes on as if nothing had been. 0: no limit."}),
      free({KEY_OF(run, end_margin), "120", "seconds", between(-1, 1e9),
            "Ahead of the end of its SLURM allocation (SLURM_JOB_END_TIME, which slurm/launch.sh asks for "
            "where SLURM does not give it) the run ends itself as a signal would end it: a checkpoint is "
            "saved, and the exit status 75 says that the same command goes on. It does so as long before the "
            "end as the longest step so far took, with what came behind it, and the longest save, and by so "
            "many seconds more. -1: it takes no notice of the end. Nor does a run that saves nothing "
            "(checkpoint.interval = -1)."}),
  };
}

std::vector<Field> data() {
  return {
      on_request(read_path(
          example(R"(["data/*.bin"])",
                  {KEY_OF(data, train), "", "", any(),
                   "Files with training tokens, or glob patterns (*, ?, [...]), read in the order of "
                   "their paths. On resume, folders may change; other file names, and files that were "
                   "added, are for checkpoint.override."}))),
      free(read_path({KEY_OF(data, validation), "[]", "", any(),
                      "Files or glob patterns with validation tokens. Each entry is a set of its own, with a "
                      "loss of its own. Empty: part of the training data is held out."})),
      on_request(numeric(
          {KEY_OF(data, validation_fraction), "0.01", "", below_one(),
           "Part of the training data held out for validation, at least one sequence, where "
           "data.validation is empty: the end of the tokens, or rows of packed documents from all over; "
           "of each entry of data.train with data.weights. 0: nothing is held out."})),
      on_request(numeric(
          {KEY_OF(data, weights), "[]", "", above(0),
           "Mixture: how often each entry of data.train is drawn from, as shares of their sum, such as "
           "[3, 1]: kept exactly over as many sequences as their smallest whole numbers add up to. "
           "run.epochs counts passes over the sum of all sequences, of which an entry may see more or "
           "less. Empty: the files are one set, each sequence drawn once per epoch."})),
      on_request(numeric(
          {KEY_OF(data, format), R"("auto")", "",
           close_to({{"jsonl", "hdf5"},
                     {"json", "hdf5"},
                     {"parquet", "hdf5"},
                     {"txt", "text"},
                     {"bin", "bin-uint16"},
                     {"mmap", "megatron"},
                     {"idx", "megatron"}},
                    one_of({"auto", "text", "bin-uint16", "bin-uint32", "hdf5", "megatron"})),
           "Layout of the files. auto: .h5 and .hdf5 files are HDF5 with a dataset named tokens "
           "(docs/data.md); .bin files with an .idx file beside them are Megatron-LM's, other .bin files "
           "hold raw tokens (nanoGPT) or tokens behind a header of 1024 bytes (llm.c); all others are "
           "text, read as bytes 0 to 255 with token 256 between files."})),
      on_request(numeric(
          {KEY_OF(data, sequence), "512", "tokens", between(1, 1 << 24), "Length of a training sequence."})),
      on_request(numeric(
          {KEY_OF(data, packing), R"("auto")", "",
           also({{"true", "documents"}, {"false", "windows"}}, one_of({"auto", "windows", "documents"})),
           "documents: whole documents share a sequence, as many as fit; attention and positions start "
           "anew with each. windows: the tokens are cut every data.sequence. auto: documents where the "
           "files say where they begin (tools/prepare_data.py writes such files), else windows."})),
      on_request(
          numeric({KEY_OF(data, long_documents), R"("truncate")", "", one_of({"truncate", "split", "drop"}),
                   "What becomes of a document longer than data.sequence: its first tokens, parts that are "
                   "packed as documents of their own, or nothing. Of packed documents only."})),
      on_request(numeric({KEY_OF(data, max_documents), "0", "documents", between(0, 1 << 24),
                          "Most documents in one sequence of packed documents. 0: no limit."})),
      free(written_path({KEY_OF(data, stage), R"("")", "", any(),
                         "Folder on a drive that each node has for itself, such as ${TMPDIR}. Before "
                         "training, one rank of each node copies the files of data.train and "
                         "data.validation there, and all ranks read the copies. A copy of the same size and "
                         "modification time is reused; copies stay after the run. Empty: the files are read "
                         "where they are."})),
  };
}

}  // namespace ztrain::config::rows
