#include "data/course.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "data/mixture.hpp"

namespace ztrain::data {
namespace {

using Names = std::vector<std::string>;

Names all_files(const std::vector<FilePart>& parts) {
  Names all;
  for (const FilePart& part : parts) all.insert(all.end(), part.files.begin(), part.files.end());
  return all;
}

/// Returns the files in the parts of the saved source; empty if a file of the source is missing.
std::vector<Names> split_as(const SourceCourse& saved, Names files) {
  std::vector<Names> lists;
  for (const FilePart& part : saved.parts) {
    for (const std::string& name : part.files) {
      const auto found = std::ranges::find(files, name);
      if (found == files.end()) return {};
      files.erase(found);
    }
    lists.push_back(part.files);
  }
  if (!files.empty()) lists.push_back(std::move(files));
  return lists;
}

Mixture mixture_of(const config::Deck& deck) {
  return {deck.data.weights.empty() ? std::vector<std::int64_t>{1} : shares_of(deck.data.weights),
          deck.run.seed};
}

SourceCourse new_source(const RowSet& set, std::size_t sources, std::size_t place) {
  return {set.name, set.parts, 0, static_cast<std::int64_t>(sources), static_cast<std::int64_t>(place)};
}

}  // namespace

std::int64_t Course::rows() const {
  return std::accumulate(sources.begin(), sources.end(), std::int64_t{0},
                         [](std::int64_t sum, const SourceCourse& source) { return sum + source.rows(); });
}

Course course_of(const std::vector<RowSet>& train) {
  Course course;
  for (std::size_t s = 0; s < train.size(); ++s)
    course.sources.push_back(new_source(train[s], train.size(), s));
  return course;
}

FileLists files_as_in(const Course& saved, const std::vector<RowSet>& train) {
  FileLists lists;
  for (const RowSet& set : train) {
    const Names files = all_files(set.parts);
    const auto source = std::ranges::find(saved.sources, set.name, &SourceCourse::name);
    std::vector<Names> own = source == saved.sources.end() ? std::vector<Names>{} : split_as(*source, files);
    if (own.empty()) own.push_back(files);
    lists.push_back(std::move(own));
  }
  return lists;
}

std::int64_t source_that_goes_on(const Course& saved, const RowSet& set) {
  const auto source = std::ranges::find(saved.sources, set.name, &SourceCourse::name);
  if (source == saved.sources.end() || source->parts.size() > set.parts.size()) return -1;
  const bool same = std::equal(source->parts.begin(), source->parts.end(), set.parts.begin(),
                               [](const FilePart& a, const FilePart& b) { return a.identity == b.identity; });
  return same ? source - saved.sources.begin() : -1;
}

Course next_course(const Course& saved, const config::Deck& before, std::int64_t samples,
                   const config::Deck& now, const std::vector<RowSet>& train) {
  const bool same_seed = before.run.seed == now.run.seed;
  bool same_mixture =
      same_seed && before.data.weights == now.data.weights && train.size() == saved.sources.size();
  std::vector<std::int64_t> old;
  for (std::size_t s = 0; s < train.size(); ++s) {
    old.push_back(same_seed ? source_that_goes_on(saved, train[s]) : -1);
    same_mixture = same_mixture && old.back() == static_cast<std::int64_t>(s);
  }
  const Mixture mixture = mixture_of(before);
  Course course;
  course.from = same_mixture ? saved.from : samples;
  for (std::size_t s = 0; s < train.size(); ++s) {
    if (old[s] < 0) {
      course.sources.push_back(new_source(train[s], train.size(), s));
      continue;
    }
    const auto o = static_cast<std::size_t>(old[s]);
    SourceCourse source = saved.sources[o];
    const std::int64_t drawn = source.drawn + mixture.drawn(o, samples - saved.from);
    ASSERT(drawn >= source.parts.back().from, "source '{}' has drawn {} rows, and files joined it at {}",
           source.name, drawn, source.parts.back().from);
    for (std::size_t part = 0; part < source.parts.size(); ++part)
      source.parts[part].rows = train[s].parts[part].rows;
    for (std::size_t part = source.parts.size(); part < train[s].parts.size(); ++part) {
      source.parts.push_back(train[s].parts[part]);
      source.parts.back().from = drawn;
    }
    if (!same_mixture) source.drawn = drawn;
    course.sources.push_back(std::move(source));
  }
  return course;
}

}  // namespace ztrain::data
