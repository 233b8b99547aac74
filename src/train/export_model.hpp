#pragma once
// Writes a checkpoint as a Hugging Face model or a PEFT adapter, and PEFT's folder merged, for `ztrain
// export` and for the end of a run.

#include <string>

#include "checkpoint/hf/export.hpp"
#include "config/deck.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::train {

struct ExportRequest {
  std::string checkpoint;  ///< or a folder of PEFT's
  std::string to;
  std::string base = {};       ///< folder of the frozen weights that the checkpoint lacks; "": as it says
  std::string dtype = "auto";  ///< bf16, fp16, fp32, or auto: the dtype in which the model computes
  std::int64_t max_shard_bytes = checkpoint::ExportOptions{}.max_shard_bytes;
  checkpoint::ExportContent content = checkpoint::ExportContent::model;
  checkpoint::WeightValues values = checkpoint::WeightValues::trained;
  checkpoint::ExportKeys keys;
};

/// Collective. Writes the folder; the ranks share the work (checkpoint/hf/export.hpp). Beside weights it has
/// config.json, generation_config.json if ids of special tokens are known, and the tokenizer's files, beside
/// adapters their configuration. Throws AgreedError.
void export_model(const runtime::Session& session, telemetry::Console& console, const ExportRequest& request);

/// Throws Error if the export at the end of a run would fail for a reason that is known before: the folder
/// exists, or the model has no Hugging Face form.
void require_exportable(const config::Deck& deck);

/// Returns the request that checkpoint.export makes of a checkpoint of the run.
ExportRequest export_request(const config::Deck& deck, const std::string& checkpoint);

}  // namespace ztrain::train
