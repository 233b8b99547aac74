#pragma once
// Reads from prepared files how they were tokenised (docs/data.md), and says whether files go together.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::data {

/// Hashes are XXH3 (64 bits, seed 0), 16 hexadecimal digits. "" and 0: not known.
struct Tokenizer {
  std::string file;                ///< first file that says anything of it
  std::string name;                ///< name given to tools/prepare_data.py
  std::string hash;                ///< hash of the bytes of tokenizer.json
  std::string chat_template_file;  ///< first file that was made with a chat template
  std::string chat_template_hash;  ///< hash of the text of the chat template
  std::string vocab_file;          ///< first file that names the largest vocabulary
  std::int64_t vocab_size = 0;
  std::vector<std::int32_t> ends;  ///< tokens that end a text, in rising order; empty: not given
};

/// Joins what two sources say. Throws Error naming key and both files if tokenizers or chat templates differ.
Tokenizer joined(const Tokenizer& a, const Tokenizer& b, const std::string& key);

/// Returns a line that says whether the data's tokenizer is that of model_folder, as a warning if it is not
/// or if the file cannot be read. Returns "" if the folder holds no tokenizer.json, or the data do not name
/// theirs.
std::string compare_with_model(const Tokenizer& tokenizer, const std::string& model_folder);

}  // namespace ztrain::data
