#pragma once
// The order of a run's data in the metadata of its checkpoints.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/validate/validate.hpp"
#include "data/course.hpp"

namespace ztrain::job {

/// Most that is counted of anything: JSON keeps larger numbers only roughly.
inline constexpr std::int64_t most_counted = std::int64_t{1} << 53;

/// Returns an integer of the metadata from 0 to `most`. Throws Error for others, which JSON may hold, and
/// which would be cut or taken for another place.
std::int64_t counted(const nlohmann::json& j, const char* key, std::int64_t most,
                     const std::string& checkpoint);

/// Throws Error, which says that the metadata are damaged, unless they are `legal`.
void require_course(bool legal, const std::string& checkpoint);

nlohmann::json to_json(const data::Course& course);
nlohmann::json to_json(const config::Earlier& earlier);

/// Returns the course of a checkpoint's data; an empty one if it has none, as checkpoints of older versions.
/// Throws Error if it is damaged.
data::Course course_of(const nlohmann::json& metadata, const std::string& checkpoint);
/// Returns what the run had done when its batch or data last changed. Throws Error if it is damaged.
config::Earlier earlier_of(const nlohmann::json& metadata, const std::string& checkpoint);

}  // namespace ztrain::job
