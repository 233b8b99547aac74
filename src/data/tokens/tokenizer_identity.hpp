#pragma once
// How token files were made, as prepared files say it (docs/data.md), and whether files go together.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::data {

/// Hashes are XXH3 (64 bits, seed 0), 16 hexadecimal digits. "" and 0: not known.
struct Tokenizer {
  std::string file;                ///< the first that says something of it
  std::string name;                ///< as given to tools/prepare_data.py
  std::string hash;                ///< of the bytes of tokenizer.json
  std::string chat_template_file;  ///< the first that was made with a chat template
  std::string chat_template_hash;  ///< of the text of the chat template
  std::string vocab_file;          ///< the first that names the largest vocabulary
  std::int64_t vocab_size = 0;
  std::vector<std::int32_t> ends;  ///< tokens that end a text, in rising order; empty: not said
};

/// What both together say. Throws Error naming key and both files where tokenizers or chat templates differ.
Tokenizer joined(const Tokenizer& a, const Tokenizer& b, const std::string& key);

/// "" where model_folder holds no tokenizer.json, or the data do not say theirs; else whether they are the
/// same, as a line for people, which is a warning where they are not or where the file cannot be read.
std::string compare_with_model(const Tokenizer& tokenizer, const std::string& model_folder);

}  // namespace ztrain::data
