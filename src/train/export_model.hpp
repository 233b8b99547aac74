#pragma once
// A checkpoint as a Hugging Face model or a PEFT adapter: what `ztrain export` and the end of a run share.

#include <string>

#include "checkpoint/hf/export.hpp"
#include "config/deck.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::train {

struct ExportRequest {
  std::string checkpoint, to;
  std::string dtype = "auto";  ///< auto: what the model computes in; bf16, fp16, fp32
  std::int64_t max_shard_bytes = checkpoint::ExportOptions{}.max_shard_bytes;
  checkpoint::ExportContent content = checkpoint::ExportContent::model;
  checkpoint::ExportKeys keys;
};

/// Collective: writes the folder, sharing the work (checkpoint/hf/export.hpp), and beside the weights
/// config.json and what the folder of model.from has of a tokenizer; beside adapters their configuration.
/// Throws AgreedError.
void export_model(const runtime::Session& session, telemetry::Console& console, const ExportRequest& request);

/// Throws Error for what can be known before a run of which this is to be the end: the folder exists, or the
/// model has no Hugging Face form.
void require_exportable(const config::Deck& deck);

/// What checkpoint.export asks for, of a checkpoint of the run.
ExportRequest export_request(const config::Deck& deck, const std::string& checkpoint);

}  // namespace ztrain::train
