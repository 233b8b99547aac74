#include "job/saved_course.hpp"

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"

namespace ztrain::job {
namespace {

std::uint64_t number_of(const std::string& hexadecimal) {
  std::uint64_t value = 0;
  std::from_chars(hexadecimal.data(), hexadecimal.data() + hexadecimal.size(), value, 16);
  return value;
}

data::SourceCourse source_of(const nlohmann::json& j, const std::string& checkpoint) {
  constexpr std::int64_t most_sources = 1 << 20;
  data::SourceCourse source;
  source.name = j.at("name").get<std::string>();
  source.drawn = counted(j, "drawn", most_counted, checkpoint);
  source.sources = counted(j, "sources", most_sources, checkpoint);
  source.place = counted(j, "place", most_sources, checkpoint);
  std::int64_t joined = 0;
  for (const nlohmann::json& part : j.at("parts")) {
    data::FilePart own{
        part.at("files").get<std::vector<std::string>>(), counted(part, "rows", most_counted, checkpoint),
        number_of(part.at("identity").get<std::string>()), counted(part, "from", most_counted, checkpoint)};
    require_course(own.rows > 0 && own.from >= joined, checkpoint);
    joined = own.from;
    source.parts.push_back(std::move(own));
  }
  require_course(!source.parts.empty(), checkpoint);
  return source;
}

}  // namespace

std::int64_t counted(const nlohmann::json& j, const char* key, std::int64_t most,
                     const std::string& checkpoint) {
  const nlohmann::json& value = j.at(key);
  const bool legal = value.is_number_integer() && value >= 0 && value <= most;
  REQUIRE(legal,
          "{}: its metadata is damaged: {} = {} is no integer from 0 to {}; choose another checkpoint with "
          "checkpoint.resume",
          checkpoint, key, json_text(value), most);
  return value.get<std::int64_t>();
}

void require_course(bool legal, const std::string& checkpoint) {
  REQUIRE(legal,
          "{}: its metadata is damaged: the course of its data contradicts itself; choose another checkpoint "
          "with checkpoint.resume",
          checkpoint);
}

nlohmann::json to_json(const data::Course& course) {
  nlohmann::json sources = nlohmann::json::array();
  for (const data::SourceCourse& source : course.sources) {
    nlohmann::json parts = nlohmann::json::array();
    for (const data::FilePart& part : source.parts)
      parts.push_back({{"files", part.files},
                       {"rows", part.rows},
                       {"identity", hex(part.identity)},
                       {"from", part.from}});
    sources.push_back({{"name", source.name},
                       {"drawn", source.drawn},
                       {"sources", source.sources},
                       {"place", source.place},
                       {"parts", parts}});
  }
  return {{"from", course.from}, {"sources", sources}};
}

nlohmann::json to_json(const config::Earlier& earlier) {
  return {{"steps", earlier.steps},
          {"samples", earlier.samples},
          {"tokens", earlier.tokens},
          {"epochs", earlier.epochs}};
}

data::Course course_of(const nlohmann::json& metadata, const std::string& checkpoint) {
  data::Course course;
  if (!metadata.contains("course")) return course;
  try {
    const nlohmann::json& j = metadata.at("course");
    course.from = counted(j, "from", counted(metadata, "samples", most_counted, checkpoint), checkpoint);
    for (const nlohmann::json& source : j.at("sources"))
      course.sources.push_back(source_of(source, checkpoint));
  } catch (const nlohmann::json::exception& e) {
    fail("{}: its metadata cannot be read ({}); choose another checkpoint with checkpoint.resume", checkpoint,
         reason_of(e));
  }
  return course;
}

config::Earlier earlier_of(const nlohmann::json& j, const std::string& checkpoint) {
  if (!j.contains("earlier")) return {};
  const nlohmann::json& e = j.at("earlier");
  return {counted(e, "steps", most_counted, checkpoint), counted(e, "samples", most_counted, checkpoint),
          counted(e, "tokens", most_counted, checkpoint), e.at("epochs").get<double>()};
}

}  // namespace ztrain::job
