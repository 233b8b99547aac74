#include "app/prompts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "data/tokens/token_source.hpp"
#include "files/file.hpp"

namespace ztrain::app {
namespace {

constexpr std::int64_t largest_prompts = 1 << 28;  ///< bytes; 40 million tokens

Tokens ids_of_line(const std::string& line, const std::string& where) {
  Tokens ids;
  std::string text = line;
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    REQUIRE(error == std::errc() && end == word.data() + word.size(), "{}: '{}' is no token id", where, word);
    ids.push_back(id);
  }
  return ids;
}

/// where: of the prompt, as "file:line: "; "" where there is only one.
void require_in_vocabulary(const Tokens& prompt, std::int64_t vocabulary, const std::string& where) {
  for (const std::int32_t t : prompt)
    REQUIRE(t >= 0 && t < vocabulary, "{}token {} of the prompt is outside the model's vocabulary of {}",
            where, t, vocabulary);
}

std::vector<Tokens> read_prompts(const std::string& path, std::int64_t vocabulary) {
  const std::string bytes = read_file_or_stream(path, largest_prompts, "--prompt-file");
  std::istringstream file{std::string(utf8_text(bytes, path))};
  std::vector<Tokens> prompts;
  for (std::string line; std::getline(file, line);) {
    const std::string where = fmt::format("{}:{}", path, prompts.size() + 1);
    prompts.push_back(ids_of_line(line, where));
    REQUIRE(!prompts.back().empty(), "{}: a prompt of no tokens", where);
    require_in_vocabulary(prompts.back(), vocabulary, where + ": ");
  }
  REQUIRE(!prompts.empty(), "--prompt-file: '{}' is empty", path);
  return prompts;
}

}  // namespace

std::vector<Tokens> prompts_of(const GenerateArguments& a, std::int64_t vocabulary) {
  const int given = !a.prompt.empty() + !a.prompt_ids.empty() + !a.prompt_file.empty();
  REQUIRE(
      given == 1,
      "give one of: a text with --prompt, token ids with --prompt-ids, or a file of them with --prompt-file");
  REQUIRE(a.prompt.empty() || vocabulary == data::text_vocab,
          "the model's vocabulary has {} tokens and ztrain has no tokenizer for it: give token ids with "
          "--prompt-ids, or use tools/generate.py",
          vocabulary);
  if (!a.prompt_file.empty()) return read_prompts(a.prompt_file, vocabulary);
  Tokens prompt = a.prompt_ids;
  for (const char c : a.prompt) prompt.push_back(static_cast<unsigned char>(c));
  require_in_vocabulary(prompt, vocabulary, "");
  return {prompt};
}

}  // namespace ztrain::app
