#pragma once
// Reads data sets of Megatron-LM in place. NAME.bin has the ids of all sequences one behind the other, and
// NAME.idx, in little-endian order, has
//   magic                "MMIDIDX\0\0"
//   version              uint64, 1
//   type of an id        uint8, a code of the table in the source
//   sequences, documents uint64 each; the second is the length of the last array below
//   lengths              int32 [sequences], in tokens
//   pointers             int64 [sequences], in bytes of NAME.bin
//   document index       int64 [documents]: document d is sequences [index[d], index[d + 1])

#include <memory>
#include <string>
#include <vector>

#include "data/tokens/file_tokens.hpp"
#include "data/tokens/token_source.hpp"
#include "files/input_file.hpp"

namespace ztrain::data {

/// Returns the path of the index that belongs to a .bin file, whether it exists or not.
std::string megatron_index_of(const std::string& path);

/// Data sets one after the other, whose documents are known.
class MegatronTokens : public TokenSource {
 public:
  /// `files` are the .bin files. Throws Error naming key and file if the two files of a data set do not fit
  /// together, or are truncated, damaged or of another version.
  MegatronTokens(const std::vector<std::string>& files, const std::string& key);

  std::int64_t size() const override { return ids_->size(); }
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const override {
    ids_->read(begin, count, out);
  }
  void read_ahead(std::int64_t begin, std::int64_t count) const override { ids_->read_ahead(begin, count); }
  std::uint64_t identity() const override { return ids_->identity(); }
  std::int64_t known_vocab() const override { return 0; }
  NarrowIds narrow_ids() const override { return ids_->narrow_ids(); }
  Place locate(std::int64_t position) const override { return ids_->locate(position); }
  bool has_documents() const override { return true; }
  /// Documents without a token are left out. The first call reads the whole index, and throws Error naming
  /// it if its sequences do not follow one another or its documents are no ranges of them.
  std::vector<std::int64_t> document_offsets() const override;

 private:
  struct Index {
    InputFile file;
    std::int64_t sequences = 0, documents = 0;  ///< lengths of its arrays
    int width = 0;                              ///< bytes of an id
    bool has_sign = false;                      ///< whether ids are stored with a sign
    std::int64_t tokens = 0;
  };

  Index open(const std::string& path);
  void require_bin(const InputFile& bin, const Index& index) const;
  void add_offsets(const Index& index, std::vector<std::int64_t>& offsets) const;

  std::string key_;
  std::vector<Index> indices_;
  std::unique_ptr<FileTokens> ids_;
};

}  // namespace ztrain::data
