#include "evaluate/likelihoods.hpp"

#include <filesystem>
#include <utility>

#include "base/error.hpp"

namespace ztrain::evaluate {
namespace {

constexpr const char* option = "--write-likelihoods";

}  // namespace

LikelihoodWriter::LikelihoodWriter(const runtime::Session& session, std::string path,
                                   const LikelihoodHeader& header)
    : session_(session), path_(std::move(path)), unfinished_(path_ + ".tmp") {
  session_.agree("making the file of likelihoods", [&] {
    if (session_.rank() == 0) create_likelihoods(unfinished_, header);
  });
  session_.agree("opening the file of likelihoods", [&] {
    file_.emplace_back(unfinished_, option);
    to_.push_back(PosixFile::open_to_write(unfinished_, option));
  });
}

void LikelihoodWriter::write(std::span<const std::int64_t> places, const job::LikeliestWords& told) {
  if (told.words.empty() || !failure_.empty()) return;
  const auto k = static_cast<std::size_t>(file_[0].header().words);
  ASSERT(told.words.size() == places.size() * k, "{} words are told of {} tokens", told.words.size(),
         places.size());
  try {
    for (std::size_t begin = 0, end = 0; begin < places.size(); begin = end) {
      end = begin + 1;
      if (places[begin] < 0) continue;
      while (end < places.size() && places[end] == places[end - 1] + 1) ++end;
      file_[0].write(to_[0], places[begin], static_cast<std::int64_t>(end - begin), &told.words[begin * k],
                     &told.logs[begin * k]);
    }
  } catch (const Error& e) {
    failure_ = e.what();
  }
}

void LikelihoodWriter::finish() {
  session_.agree("writing the likelihoods", [&] {
    REQUIRE(failure_.empty(), "{}", failure_);
    to_[0].sync();
  });
  session_.agree("naming the file of likelihoods", [&] {
    if (session_.rank() == 0) std::filesystem::rename(unfinished_, path_);
  });
}

}  // namespace ztrain::evaluate
