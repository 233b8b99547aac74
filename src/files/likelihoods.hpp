#pragma once
// A file of the likeliest words that a model, the teacher, gave the tokens of token files: an HDF5 file with
// words int32 and log_likelihoods fp32, k of each for each token, flat. A token that the teacher was not
// asked for has zeros. The attributes say who the teacher was and which tokens these are.

#include <cstdint>
#include <string>
#include <vector>

#include "files/input_file.hpp"
#include "files/posix_file.hpp"

namespace ztrain {

inline constexpr std::int64_t most_teacher_words = 1024;

/// Tokens [begin, begin + tokens) of the file: those of one source of data.
struct LikelihoodSource {
  std::string name;      ///< for people: the files of the source
  std::string identity;  ///< hash of its tokens, and of its documents if rows are made of these
  std::string rows;      ///< windows | documents: how rows were made of the source
  std::int64_t begin = 0, tokens = 0;
};

struct LikelihoodHeader {
  std::string teacher;          ///< its folder, as it was given
  std::int64_t vocab_size = 0;  ///< of the teacher
  std::int64_t sequence = 0;    ///< tokens of a row
  std::int64_t words = 0;       ///< of a token, k
  std::vector<LikelihoodSource> sources;
  std::int64_t tokens() const { return sources.empty() ? 0 : sources.back().begin + sources.back().tokens; }
};

/// Makes the file, in which no token has likelihoods yet. Throws Error naming the file.
void create_likelihoods(const std::string& path, const LikelihoodHeader& header);

class LikelihoodFile {
 public:
  /// Throws Error naming key and file for a file that is none of likelihoods, or shorter than it says.
  LikelihoodFile(const std::string& path, const std::string& key);

  const LikelihoodHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  /// Reads header().words words and their log-likelihoods of each of `tokens` tokens. Throws Error naming the
  /// file if it cannot be read, or has become another one. Any thread.
  void read(std::int64_t begin, std::int64_t tokens, std::int32_t* words, float* log_likelihoods) const;
  /// Writes the same through a file that open_to_write() gives.
  void write(const PosixFile& to, std::int64_t begin, std::int64_t tokens, const std::int32_t* words,
             const float* log_likelihoods) const;

 private:
  void read_header(std::int64_t file);

  std::string path_, key_;
  LikelihoodHeader header_;
  std::int64_t words_at_ = 0, logs_at_ = 0;  ///< offsets in the file
  InputFile file_;
};

}  // namespace ztrain
