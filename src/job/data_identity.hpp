#pragma once
// What a checkpoint records of the data, and what a resumed run makes of it.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/datasets.hpp"

namespace ztrain::job {

/// {"train": ..., "validation": {name: ...}, "tokenizer": ..., "chat_template": ...}
nlohmann::json to_json(const data::Identity& identity);

/// Compares the data of a checkpoint's metadata with those of now. Throws Error saying which of training
/// data, tokenizer and chat template have changed. Returns what to tell the user of changed validation sets,
/// whose losses cannot be compared then; "" for none.
std::string compare_data(const nlohmann::json& metadata, const data::Identity& now,
                         const std::string& checkpoint);

}  // namespace ztrain::job
