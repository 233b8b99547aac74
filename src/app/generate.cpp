#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>

#include "app/parse.hpp"
#include "base/error.hpp"
#include "data/token_source.hpp"
#include "runtime/session.hpp"
#include "train/generator.hpp"

namespace ztrain::app {
namespace {

using Tokens = std::vector<std::int32_t>;

struct Arguments {
  std::string model, prompt, prompt_file, dtype, logits;
  Tokens prompt_ids;
  std::optional<Tokens> eos;
  std::int64_t max_length = 0, chunk = 128;
  bool ids = false;
  train::GenerateOptions options;
};

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

std::vector<Tokens> read_prompts(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.good(), "--prompt-file: cannot read '{}': no such file, or no permission", path);
  std::vector<Tokens> prompts;
  for (std::string line; std::getline(file, line);) {
    prompts.push_back(ids_of_line(line, fmt::format("{}:{}", path, prompts.size() + 1)));
    REQUIRE(!prompts.back().empty(), "{}:{}: a prompt of no tokens", path, prompts.size());
  }
  return prompts;
}

std::vector<Tokens> prompts_of(const Arguments& a, std::int64_t vocabulary) {
  const int given = !a.prompt.empty() + !a.prompt_ids.empty() + !a.prompt_file.empty();
  REQUIRE(given == 1,
          "give one of: a text with --prompt, token ids with --prompt-ids, or a file of them with "
          "--prompt-file");
  REQUIRE(a.prompt.empty() || vocabulary == data::text_vocab,
          "the model's vocabulary has {} tokens and ztrain has no tokenizer for it: give token ids with "
          "--prompt-ids, or use tools/generate.py",
          vocabulary);
  std::vector<Tokens> prompts{a.prompt_ids};
  if (!a.prompt_file.empty()) prompts = read_prompts(a.prompt_file);
  for (const char c : a.prompt) prompts[0].push_back(static_cast<unsigned char>(c));
  for (const Tokens& prompt : prompts)
    for (const std::int32_t t : prompt)
      REQUIRE(t >= 0 && t < vocabulary, "token {} of the prompt is outside the model's vocabulary of {}", t,
              vocabulary);
  REQUIRE(!prompts.empty(), "--prompt-file: '{}' is empty", a.prompt_file);
  return prompts;
}

/// The cache holds what is asked for, up to what the model was made for.
std::int64_t capacity_for(const Arguments& a, const train::ModelSource& source,
                          const std::vector<Tokens>& prompts) {
  const std::int64_t limit = a.max_length > 0 ? a.max_length : source.max_positions;
  REQUIRE(limit > 0, "{} does not say how many tokens the model was made for: give --max-length",
          source.folder);
  std::int64_t longest = 0;
  for (const Tokens& prompt : prompts) longest = std::max(longest, static_cast<std::int64_t>(prompt.size()));
  REQUIRE(longest <= limit,
          "a prompt has {} tokens, more than the {} of the model's context: shorten it, or give "
          "--max-length {} (a model may do poorly beyond what it was trained on)",
          longest, limit, longest + a.options.tokens);
  return std::min(limit, longest + a.options.tokens);
}

/// Prints continuations: on rank 0, as bytes or as ids.
class Printer {
 public:
  Printer(bool prints, bool text) : prints_(prints), text_(text) {}

  void begin(const std::string& prompt) const {
    if (prints_ && text_) fmt::print("{}", prompt);
  }
  void token(std::int32_t token) const {
    if (!prints_) return;
    if (!text_)
      fmt::print("{} ", token);
    else
      std::putchar(token == data::text_separator ? '\n' : token);
    std::fflush(stdout);
  }
  void end() const {
    if (prints_) fmt::print("\n");
  }

 private:
  bool prints_, text_;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File open_logits(const runtime::Session& session, const std::string& path) {
  return session.agree("writing the logits", [&]() -> File {
    if (path.empty() || session.rank() != 0) return nullptr;
    File file(std::fopen(path.c_str(), "wb"));
    REQUIRE(file != nullptr, "--logits: cannot write '{}'", path);
    return file;
  });
}

std::string speed_text(const train::Speed& speed) {
  return speed.tokens == 0 ? "none"
                           : fmt::format("{} tokens, {:.1f} tokens/s", speed.tokens,
                                         static_cast<double>(speed.tokens) / speed.seconds);
}

/// A model, what it is asked for, and how much it may hold.
struct Request {
  train::ModelSource source;
  std::vector<Tokens> prompts;
  train::GeneratorOptions options;
};

Request make_request(const Arguments& a) {
  Request r{train::open_model(a.model), {}, {}};
  r.prompts = prompts_of(a, r.source.deck.model.vocab_size);
  r.options = {a.dtype.empty() ? r.source.dtype : dtype_from(a.dtype), capacity_for(a, r.source, r.prompts),
               a.chunk, !a.logits.empty()};
  r.options.chunk = std::min(r.options.chunk, r.options.capacity);
  return r;
}

void run(const runtime::Session& session, const Arguments& a) {
  const Request r = session.agree("reading the model", [&] { return make_request(a); });
  const File logits = open_logits(session, a.logits);
  const bool prints = session.rank() == 0;
  train::Generator generator(session, r.source, r.options);
  if (prints) fmt::print(stderr, "{}\n", generator.memory_line());
  const Printer printer(prints, !a.prompt.empty() && !a.ids);
  train::GenerateOptions options = a.options;
  options.eos = a.eos.value_or(r.source.eos);
  const train::Listener listener{
      [&](std::int32_t token) { printer.token(token); },
      [&](std::span<const float> rows) {
        if (logits)
          REQUIRE(std::fwrite(rows.data(), sizeof(float), rows.size(), logits.get()) == rows.size(),
                  "--logits: writing '{}' failed: is the disk full?", a.logits);
      }};
  for (std::size_t p = 0; p < r.prompts.size(); ++p) {
    options.stream = p;
    printer.begin(a.prompt);
    const train::End end = generator.generate(r.prompts[p], options, listener);
    printer.end();
    if (prints && end == train::End::full)
      fmt::print(stderr, "the context of {} tokens is full: --max-length allows for more\n",
                 r.options.capacity);
  }
  if (prints)
    fmt::print(stderr, "prefill {}; decode {}\n", speed_text(generator.prefilled()),
               speed_text(generator.decoded()));
}

void add_sampling(CLI::App& app, train::GenerateOptions& o) {
  app.add_option("--tokens", o.tokens, "tokens to add")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--temperature", o.sampling.temperature, "0: the likeliest token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--top-k", o.sampling.top_k, "draw from the k likeliest tokens; 0: from all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--top-p", o.sampling.top_p, "draw from the likeliest tokens of this probability")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of the draws")->capture_default_str();
}

}  // namespace

int generate(const Invocation& call) {
  CLI::App app("Continues prompts with the model of a checkpoint or of a Hugging Face folder",
               "ztrain generate");
  Arguments a;
  app.add_option("model", a.model, "a folder step_N, or one with config.json and safetensors files")
      ->required();
  app.add_option("--prompt", a.prompt, "text to continue (models of bytes)");
  app.add_option("--prompt-ids", a.prompt_ids, "token ids to continue, comma-separated")->delimiter(',');
  app.add_option("--prompt-file", a.prompt_file, "file of token ids: a prompt per line, a line out for each");
  add_sampling(app, a.options);
  app.add_option("--eos", a.eos, "token ids that end a text; else those of the model's folder; -1: none")
      ->delimiter(',');
  app.add_option("--max-length", a.max_length,
                 "tokens of prompt and continuation; else what the model was made for or trained on")
      ->check(CLI::Range(1, std::numeric_limits<std::int32_t>::max()));
  app.add_option("--chunk", a.chunk, "tokens of a prompt that run at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dtype", a.dtype, "to compute in; else the checkpoint's, and bf16 for a folder")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32", "fp64"}));
  app.add_flag("--ids", a.ids, "print token ids for a text too");
  app.add_option(
      "--logits", a.logits,
      "file for the logits of every token of the prompts: fp32, little-endian, [tokens, vocabulary]");
  if (const auto code = parse(app, call)) return *code;
  run(call.session, a);
  return 0;
}

}  // namespace ztrain::app
