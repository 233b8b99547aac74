#pragma once
// Tokens in HDF5 files. Each holds
//   tokens            [N]      integers
//   document_offsets  [D + 1]  integers, optional: document d is tokens [offsets[d], offsets[d + 1]);
//                              increasing from 0 to N
//   loss_mask         [N]      integers, optional: 1 for tokens that are to be predicted, else 0
// and, as attributes of its root, all optional: ztrain_format (1), tokenizer, tokenizer_hash,
// tokenizer_folder, chat_template_hash, vocab_size, eos_id, turn_end_ids, preference ("pairs": documents 2 i
// and 2 i + 1 are the chosen and the rejected answer of pair i; "labels": an answer, and one of another
// record to the same prompt). With "labels" a dataset `labels` has an integer for each two documents: 1 if
// the answer is desirable, else 0. tools/prepare_data.py writes such files; docs/data.md describes them.

#include <string>
#include <vector>

#include "data/tokens/token_source.hpp"
#include "files/hdf5_handle.hpp"

namespace ztrain::data {

/// Keeps its files open and reads hyperslabs, under the process's lock of the HDF5 library. Calls are serial:
/// every rank opens the files for itself.
class Hdf5Tokens : public TokenSource {
 public:
  Hdf5Tokens(const std::vector<std::string>& files, const std::string& key);
  Hdf5Tokens(const Hdf5Tokens&) = delete;
  Hdf5Tokens& operator=(const Hdf5Tokens&) = delete;
  ~Hdf5Tokens() override;

  std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const override;
  void read_ahead(std::int64_t begin, std::int64_t count) const override;
  std::uint64_t identity() const override;
  std::int64_t known_vocab() const override;
  NarrowIds narrow_ids() const override;
  Place locate(std::int64_t position) const override;
  std::string id_text(std::int64_t position) const override;
  bool has_documents() const override { return has_documents_; }
  std::vector<std::int64_t> document_offsets() const override;
  std::string preference() const override { return parts_.front().preference; }
  std::vector<std::uint8_t> labels() const override;
  bool has_mask() const override { return has_mask_; }
  void read_mask(std::int64_t begin, std::int64_t count, std::uint8_t* out) const override;
  Tokenizer tokenizer() const override;

 private:
  struct Part {
    std::string path;
    std::int64_t begin = 0, tokens = 0, offsets = 0;  ///< offsets counts items of document_offsets; 0: none
    FileState state;                                  ///< state of the file when it was opened
    Tokenizer tokenizer;
    std::string preference{};
    hdf5::Handle file{}, ids{}, documents{}, mask{};
    hdf5::Stretch ids_at{}, mask_at{};
  };
  /// The part of the source's range [begin, begin + count) that lies in one file.
  struct Slice {
    const Part& part;
    std::int64_t begin, count;  ///< within the part
  };

  /// A dataset of a file, and the type in memory that its items become.
  struct Column {
    const hdf5::Handle& dataset;
    const char* name;
    hid_t type;
  };

  void open(const std::string& path);
  hdf5::Handle open_dataset(const Part& part, const char* name) const;
  void require_whole(const Part& part, const hdf5::Handle& dataset, const char* name) const;
  void open_documents(Part& part) const;
  void read_attributes(Part& part) const;
  /// Reads items. Throws Error if they cannot be read, or if the file has changed since it was opened.
  static void read(const Slice& slice, const Column& column, void* out);
  std::vector<Slice> slices(std::int64_t begin, std::int64_t count) const;

  std::string key_;
  std::vector<Part> parts_;
  std::int64_t size_ = 0;
  bool has_documents_ = false, has_mask_ = false;
};

}  // namespace ztrain::data
