#include "config/fields/fields_rows.hpp"

namespace ztrain::config::rows {

std::vector<Field> checkpoint() {
  return {
      free(written_path({KEY_OF(checkpoint, folder), R"("")", "", any(),
                         "Folder of the checkpoints. Empty: checkpoints in run.output."})),
      free({KEY_OF(checkpoint, interval), "0", "steps", count(-1),
            "Steps between checkpoints. 0: only at the end. -1: never, not even at the end."}),
      free({KEY_OF(checkpoint, keep), "2", "checkpoints", between(0, 1e9),
            "How many of the latest checkpoints are kept; the latest from which a step was taken always is. "
            "0: all."}),
      free({KEY_OF(checkpoint, keep_every), "0", "steps", between(0, 1e9),
            "Checkpoints of steps that this divides are kept as well; a multiple of checkpoint.interval. 0: "
            "none."}),
      free({KEY_OF(checkpoint, keep_best), "0", "checkpoints", between(0, 1e9),
            "How many of those with the lowest validation loss are kept as well. If it is above 0, there is "
            "an "
            "evaluation at the step of each checkpoint, beside those of evaluation.interval. 0: none."}),
      free({KEY_OF(checkpoint, async), "true", "", any(),
            "Checkpoints before the end of the run are written behind training: a step waits while the state "
            "is copied to the host's memory, which needs room for it, and threads write the copy. One is "
            "written at a time; when the next is due before, the run waits. false: training stands still "
            "until a checkpoint is written."}),
      free({KEY_OF(checkpoint, files), "0", "files", between(0, 256),
            "Shard files per checkpoint. 0: one per node."}),
      free({KEY_OF(checkpoint, memory_copies), "0", "copies", between(0, 1),
            "1: between checkpoints, snapshots of the state are kept in the memory of the nodes, each node's "
            "part there and once more on another node, so that any one node may fail. The next start on the "
            "nodes that are left goes on from the newest. Takes four times a rank's part of a checkpoint of "
            "the nodes' memory, and room for the copy that checkpoint.async has too. 0: none."}),
      free({KEY_OF(checkpoint, memory_interval), "10", "steps", count(1), "Steps between these snapshots."}),
      free(written_path({KEY_OF(checkpoint, memory_folder), R"("/dev/shm")", "", any(),
                         "Where each node keeps its part of them: a folder of the node's own memory, or of a "
                         "drive of its own, with room for them. It must be there."})),
  };
}

std::vector<Field> resume_and_export() {
  return {
      free(read_path({KEY_OF(checkpoint, resume), R"("auto")", "", any(),
                      "auto: go on from the latest checkpoint in checkpoint.folder, if there is one. none: "
                      "start anew. Otherwise the folder of one checkpoint."})),
      free(
          {"checkpoint.override", MEMBER_OF(checkpoint.changes), "[]", "", any(),
           "Keys, or patterns of keys (*, ?, [...]), that may differ from the checkpoint's deck when a run "
           "goes "
           "on, such as [\"optimizer.lr\", \"schedule.*\", \"data.*\"]: those that docs/inputs.md marks \"on "
           "request\". Weights, optimizer states and the step stay. The run says each change, and what comes "
           "of it for the learning rate and the data."}),
      free(written_path(
          {"checkpoint.export", MEMBER_OF(checkpoint.export_to), R"("")", "", any(),
           "Folder that receives the trained weights as a Hugging Face model at the end of the run, as "
           "ztrain export writes it. It may not exist while there are steps to run. Empty: none."})),
      free({KEY_OF(checkpoint, export_dtype), R"("auto")", "", dtype_of({"auto", "bf16", "fp16", "fp32"}),
            "Of those weights. auto: what the model computes in."}),
      free({KEY_OF(checkpoint, export_from), R"("last")", "", one_of({"last", "best"}),
            "Which checkpoint checkpoint.export writes. last: the one at the end of the run. best: the one "
            "with "
            "the lowest validation loss, which is kept for that. There is then an evaluation at the step of "
            "each checkpoint."}),
      free({KEY_OF(checkpoint, export_adapter), "false", "", any(),
            "checkpoint.export receives the adapters alone, as a PEFT folder, instead of the model with the "
            "adapters merged."}),
      free(
          {KEY_OF(checkpoint, frozen), "false", "", any(),
           "Checkpoints hold the weights that are not trained too. false: they hold what is trained, and "
           "where "
           "the other weights came from (model.from, or the seed with lora.random_base) with a hash of them: "
           "a "
           "run that goes on, an export and generation read these again from there, and refuse others. "
           "Weights that are frozen in a run without model.from and without adapters, and those of a mixture "
           "that starts from a dense model, are always held."}),
  };
}

std::vector<Field> operation() {
  return {
      free({KEY_OF(evaluation, interval), "0", "steps", count(0),
            "Steps between evaluations on the validation data. 0: off."}),
      free({KEY_OF(evaluation, batches), "8", "micro-batches per rank", count(1),
            "Length of an evaluation, for each validation set."}),
      free({KEY_OF(evaluation, patience), "0", "evaluations", between(0, 1e9),
            "After so many evaluations in a row without an improvement the run ends as at its last step: "
            "with a "
            "checkpoint, the export, and exit status 0. A run that goes on counts on. 0: it does not."}),
      free({KEY_OF(evaluation, min_delta), "0", "nats a token", from(0),
            "A validation loss is an improvement to evaluation.patience if it is below the lowest so far by "
            "more than this."}),
      free({KEY_OF(metrics, interval), "1", "steps", count(1), "Steps between printed lines."}),
      free({KEY_OF(metrics, timeline_step), "0", "step", count(0),
            "Of this step timeline.json in run.output says what each stage of the pipeline computed and "
            "when, which tools/plot_schedule.py draws. On CPU ranks. 0: of none."}),
      free({KEY_OF(profile, steps), "[]", "steps", between(1, 1e9),
            "First and last of the steps whose ops, communications, waits and memory each rank writes with "
            "their times to trace/rank0_trace.json and so on in run.output, for ui.perfetto.dev and "
            "tools/plot_plan.py. On CPU ranks. []: none."}),
  };
}

std::vector<Field> watchdog() {
  return {
      free({KEY_OF(watchdog, timeout), "600", "seconds", between(0, 1e9),
            "Time without progress (a finished step, something read or written), from the start of the "
            "program on, after which a rank reports where it stands and aborts the job. In a run the ranks "
            "first tell each other where they are, by files in run.output, and one of them says who has not "
            "come to which communication, and who gives no answer. Before a deck is read, and in other "
            "commands than a run, what the command line gives counts, or else the default. 0: off."}),
      free({KEY_OF(watchdog, stragglers), "100", "steps", count(0),
            "Every so many steps ranks that take much longer than others for the same work (reading data, "
            "forward, backward, optimizer) are named, with their node. 0: never."}),
      free({KEY_OF(watchdog, non_finite), R"("skip")", "", one_of({"skip", "stop"}),
            "A step whose gradients are not finite. skip: it is skipped, and the run ends after 20 of them "
            "in a row. stop: the run ends with an error; the state before the step is saved, and the first "
            "op and parameter that were not finite are named: on CPU ranks the step is computed once more, "
            "and each op's result looked at. Not with precision.parameters = fp16, where the loss scale is "
            "found by such steps."}),
      free({KEY_OF(watchdog, audit_interval), "0", "steps", count(0),
            "Looks for bits that change on their own. Every so many steps, at the end and before each "
            "checkpoint, ranks that hold copies of the same weights, optimizer states or counters compare "
            "hashes of them, and every so many steps the next is computed twice. Where something differs, it "
            "is named with rank and node, and the run goes back to the last state whose copies agreed, a "
            "copy of which is kept in the host's memory. Needs device.deterministic. 0: never."}),
      free({KEY_OF(watchdog, audit_limit), "3", "times", count(0),
            "How often a run goes back so before it ends with an error instead."}),
  };
}

}  // namespace ztrain::config::rows
