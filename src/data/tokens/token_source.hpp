#pragma once
// Presents token files as one long array of ids, whatever their layout, together with what some layouts add:
// where documents begin, which tokens are to be predicted, and how the files were tokenised.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokens/text_files.hpp"

namespace ztrain::data {

/// Says how prepared files were tokenised (docs/data.md). Hashes are XXH3 (64 bits, seed 0), 16 hexadecimal
/// digits. "" and 0: not known.
struct Tokenizer {
  std::string file;                ///< first file that says anything of it
  std::string name;                ///< name given to tools/prepare_data.py
  std::string hash;                ///< hash of the bytes of tokenizer.json
  std::string folder;              ///< folder of that tokenizer.json when the file was made
  std::string chat_template_file;  ///< first file that was made with a chat template
  std::string chat_template_hash;  ///< hash of the text of the chat template
  std::string vocab_file;          ///< first file that names the largest vocabulary
  std::int64_t vocab_size = 0;
  /// Tokens that end a text or a trained turn of a chat, in rising order; empty: not given.
  std::vector<std::int32_t> ends;
};

/// Joins what two sources say. Throws Error naming key and both files if tokenizers or chat templates differ.
Tokenizer joined(const Tokenizer& a, const Tokenizer& b, const std::string& key);

/// Returns a line that says whether the data's tokenizer is that of model_folder, as a warning if it is not
/// or if the file cannot be read. Returns "" if the folder holds no tokenizer.json, or the data do not name
/// theirs.
std::string compare_with_model(const Tokenizer& tokenizer, const std::string& model_folder);

/// Position of a token, for messages.
struct Place {
  std::string file;
  std::int64_t position = 0;  ///< index of the token within the file
};

/// A file whose ids are below `limit` because of their type; 0: none is.
struct NarrowIds {
  std::string file;
  std::int64_t limit = 0;
};

/// A read-only array of token ids. All functions may be called from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// Returns the number of tokens, at least 1.
  virtual std::int64_t size() const = 0;

  /// Copies tokens [begin, begin + count) to out. Ids are as stored, not yet checked against a vocabulary.
  /// Throws Error if the range leaves the source or the file cannot be read.
  virtual void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const = 0;

  /// Asks the system to read tokens [begin, begin + count) and their mask, which are needed soon; returns at
  /// once. A hint that a source may ignore. Throws Error if the range leaves the source.
  virtual void read_ahead(std::int64_t begin, std::int64_t count) const { require_inside(begin, count); }

  /// Returns a hash of the files' stems, token counts and samples of their content, which does not depend on
  /// their folders. Documents and masks are not part of it.
  virtual std::uint64_t identity() const = 0;

  /// Returns a hash of the last tokens of each file, which the samples of identity() can miss.
  std::uint64_t end_identity() const;

  /// Returns the vocabulary that the files themselves name (text: 257; llm.c: GPT-2's 50257, Llama 3's
  /// 128256; prepared files: their attribute), or 0.
  virtual std::int64_t known_vocab() const = 0;

  /// Returns the file whose type of integers has the fewest bits, if the type cannot hold an id of 2^16.
  virtual NarrowIds narrow_ids() const { return {}; }

  virtual Place locate(std::int64_t position) const = 0;

  /// Returns the id of one token as its file has it, for messages; read() returns at most 32 bits of it.
  virtual std::string id_text(std::int64_t position) const;

  /// Returns whether the files say where documents begin.
  virtual bool has_documents() const { return false; }

  /// Returns [documents + 1] offsets: document d is tokens [offsets[d], offsets[d + 1]), and all together are
  /// the source. Throws Error naming the file if they do not increase from 0 to its number of tokens.
  virtual std::vector<std::int64_t> document_offsets() const { return {0, size()}; }

  /// Returns whether a file says which tokens are to be predicted.
  virtual bool has_mask() const { return false; }

  /// Returns what two consecutive documents are: "pairs": a chosen answer and the rejected one; "labels": an
  /// answer with a label, and one to the same prompt that belongs to another; "": documents of their own.
  virtual std::string preference() const { return ""; }

  /// Returns for each two documents of "labels" 1 if the answer is desirable, else 0.
  virtual std::vector<std::uint8_t> labels() const { return {}; }

  /// Reads 1 for each of tokens [begin, begin + count) that is to be predicted, else 0; as stored, not yet
  /// checked. Errors are those of read.
  virtual void read_mask(std::int64_t begin, std::int64_t count, std::uint8_t* out) const;

  /// Returns how the files were tokenised; members are empty if the files do not say it. Throws Error naming
  /// two files that were tokenised differently.
  virtual Tokenizer tokenizer() const { return {}; }

 protected:
  /// Throws Error unless tokens [begin, begin + count) are in the source.
  void require_inside(std::int64_t begin, std::int64_t count) const;
};

/// Returns the part of a source in which a token lies; `begin` of a part is the position of its first token.
template <class Part>
std::size_t part_of(const std::vector<Part>& parts, std::int64_t position) {
  const auto after = std::ranges::upper_bound(parts, position, {}, &Part::begin);
  return static_cast<std::size_t>(after - parts.begin()) - 1;
}

/// Returns the identity of a file, which depends on its content and not on its folder: a hash chained on
/// `before`, of its stem, its number of tokens, and `samples`, the hash of samples of its content.
std::uint64_t identity_of(std::uint64_t before, const std::string& path, std::int64_t tokens,
                          std::uint64_t samples);

/// Token between the documents (files) of text data, and size of the vocabulary of text.
inline constexpr std::int32_t text_separator = 256;
inline constexpr std::int64_t text_vocab = 257;

/// Opens files or glob patterns as one source, in the order of the files' paths, each file once.
///
/// format is one of:
/// - "auto": .h5 and .hdf5 are HDF5 files, .bin are token files (of Megatron if an .idx file is beside it),
/// all
///   others text; kinds may not be mixed. Raw uint32 is told from raw uint16 by the first ids and the
///   reader's vocabulary.
/// - "text": bytes as ids 0..255, files separated by token 256; empty files are passed over.
/// - "bin-uint16", "bin-uint32": raw little-endian ids as nanoGPT writes, or ids after llm.c's header of 256
///   int32 (magic 20240520 version 1: uint16; magic 20240801 version 7: uint32).
/// - "hdf5": see hdf5_tokens.hpp.
/// - "megatron": see megatron_tokens.hpp.
///
/// `key` is the deck key that gave the patterns ("data.train"), for messages. Throws Error naming key,
/// pattern and file for patterns that match nothing, for files that are empty, truncated or of an unknown
/// layout, and for files that are not text, or text that the reader cannot take as bytes (require_text).
std::unique_ptr<TokenSource> open_tokens(const std::vector<std::string>& patterns, const std::string& format,
                                         const std::string& key, const Reader& reader = {});

/// Returns the files that the patterns name, sorted by path, each once. A pattern is a path, a glob(7)
/// pattern, or the NAME of Megatron's NAME.bin with NAME.idx; of the latter two the former is returned.
/// Throws Error naming key and pattern if it matches no file or holds "**".
std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns, const std::string& key);

/// Returns "'a.bin'" for one file, "'a.bin', ..." for several, for messages.
std::string files_of(const TokenSource& source);

/// Reads the mask of a source from front to end without holding it.
class MaskStream {
 public:
  /// key is the deck's, for messages. source must outlive the stream.
  MaskStream(const TokenSource& source, std::string key);

  /// Returns the trained tokens of [begin, end): all of them in a source without a mask. begin is not below
  /// the end of the previous call. Throws Error naming file and token for values other than 0 and 1.
  std::int64_t count(std::int64_t begin, std::int64_t end);

  /// Reads the rest. Returns a hash of the whole mask; 0 for a source without one.
  std::uint64_t finish();

 private:
  void next_block();

  const TokenSource& source_;
  std::string key_;
  std::vector<std::uint8_t> block_;
  std::int64_t begin_ = 0, end_ = 0;  ///< range of the block, in the source
  std::uint64_t hash_ = 0;
};

}  // namespace ztrain::data
