#include "data/tokens/tokenizer_identity.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "files/file.hpp"

namespace ztrain::data {

Tokenizer joined(const Tokenizer& a, const Tokenizer& b, const std::string& key) {
  REQUIRE(
      a.hash.empty() || b.hash.empty() || a.hash == b.hash,
      "{}: '{}' was tokenised with {} (tokenizer.json {}) and '{}' with {} ({}); prepare both with the same "
      "tokenizer",
      key, a.file, a.name, a.hash, b.file, b.name, b.hash);
  REQUIRE(a.chat_template_hash.empty() || b.chat_template_hash.empty() ||
              a.chat_template_hash == b.chat_template_hash,
          "{}: '{}' and '{}' were made with different chat templates ({} and {}); prepare both with the same",
          key, a.chat_template_file, b.chat_template_file, a.chat_template_hash, b.chat_template_hash);
  Tokenizer all = a;
  if (all.hash.empty()) all.file = b.file, all.name = b.name, all.hash = b.hash;
  if (all.chat_template_hash.empty()) {
    all.chat_template_file = b.chat_template_file;
    all.chat_template_hash = b.chat_template_hash;
  }
  if (b.vocab_size > all.vocab_size) all.vocab_file = b.vocab_file, all.vocab_size = b.vocab_size;
  all.ends.clear();
  std::ranges::set_union(a.ends, b.ends, std::back_inserter(all.ends));
  return all;
}

std::string compare_with_model(const Tokenizer& tokenizer, const std::string& model_folder) {
  const std::filesystem::path path = std::filesystem::path(model_folder) / "tokenizer.json";
  std::error_code ignored;
  if (tokenizer.hash.empty() || !std::filesystem::is_regular_file(path, ignored)) return "";
  constexpr std::int64_t largest = 1 << 28;  // bytes; the largest in use take some 30 million
  std::string found;
  try {
    const std::string bytes = read_file(path.string(), largest);
    found = hex(hash_bytes(bytes.data(), bytes.size()));
  } catch (const Error& e) {
    return fmt::format("warning: the data were tokenised with {} (tokenizer.json {}), and {}", tokenizer.name,
                       tokenizer.hash, e.what());
  }
  if (found == tokenizer.hash) return fmt::format("{}, that of {}", tokenizer.name, model_folder);
  return fmt::format("warning: the data were tokenised with {} (tokenizer.json {}), {} has another ({})",
                     tokenizer.name, tokenizer.hash, model_folder, found);
}

}  // namespace ztrain::data
