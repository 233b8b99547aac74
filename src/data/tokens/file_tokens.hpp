#pragma once
// Reads token files and text as windows of them are needed.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/tokens/token_source.hpp"
#include "files/input_file.hpp"

namespace ztrain::data {

/// Says how a file's bytes hold ids.
struct BinaryLayout {
  std::int64_t header_bytes = 0;
  int width = 2;  ///< bytes of one little-endian id: 1, 2, 4 or 8
  std::int64_t tokens = 0;
  std::int64_t known_vocab = 0;  ///< 0: the layout does not give it
  bool has_sign = false;         ///< whether ids are stored with a sign
};

/// Files one after the other; text has a separator token between them.
class FileTokens : public TokenSource {
 public:
  static std::unique_ptr<TokenSource> text(const std::vector<std::string>& files, const std::string& key);
  static std::unique_ptr<TokenSource> binary(const std::vector<std::string>& files, const std::string& format,
                                             std::int64_t vocab_size, const std::string& key);
  /// Files whose layout is known, each of one token or more.
  static std::unique_ptr<FileTokens> of(std::vector<std::pair<InputFile, BinaryLayout>> files);

  std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const override;
  void read_ahead(std::int64_t begin, std::int64_t count) const override;
  std::uint64_t identity() const override;
  std::int64_t known_vocab() const override;
  NarrowIds narrow_ids() const override;
  Tokenizer tokenizer() const override;
  Place locate(std::int64_t position) const override;

 private:
  struct Part {
    InputFile file;
    BinaryLayout layout;
    std::int64_t begin = 0;  ///< position of its first token in the source
  };

  void add(InputFile file, const BinaryLayout& layout);
  template <class Read, class Separator>
  void each_part(std::int64_t begin, std::int64_t count, const Read& read, const Separator& separator) const;

  std::vector<Part> parts_;
  std::int64_t size_ = 0;
  bool separated_ = false;  ///< whether a separator token lies between parts
};

}  // namespace ztrain::data
