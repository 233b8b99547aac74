#include <fmt/format.h>

#include <cstdio>

#include "app/parse.hpp"
#include "base/error.hpp"
#include "data/token_source.hpp"
#include "runtime/session.hpp"
#include "train/generator.hpp"

namespace ztrain::app {
namespace {

struct Arguments {
  std::string checkpoint, prompt;
  std::vector<std::int32_t> prompt_ids;
  train::GenerateOptions options;
};

void run(const runtime::Session& session, const Arguments& a) {
  train::Generator generator(session, a.checkpoint);
  const bool text = a.prompt_ids.empty();
  std::vector<std::int32_t> prompt = a.prompt_ids;
  session.agree("reading the prompt", [&] {
    REQUIRE(!text || generator.vocab_size() == data::text_vocab,
            "the model's vocabulary has {} tokens and ztrain has no tokenizer for it: give token ids with "
            "--prompt-ids",
            generator.vocab_size());
    REQUIRE(!text || !a.prompt.empty(), "give a text with --prompt, or token ids with --prompt-ids");
    if (text)
      for (char c : a.prompt) prompt.push_back(static_cast<unsigned char>(c));
    for (std::int32_t t : prompt)
      REQUIRE(t >= 0 && t < generator.vocab_size(),
              "token {} of the prompt is outside the model's vocabulary of {}", t, generator.vocab_size());
  });
  const bool prints = session.rank() == 0;
  if (prints && text) fmt::print("{}", a.prompt);
  generator.generate(std::move(prompt), a.options, [&](std::int32_t token) {
    if (!prints) return;
    if (!text)
      fmt::print("{} ", token);
    else
      std::putchar(token == data::text_separator ? '\n' : token);
    std::fflush(stdout);
  });
  if (prints) fmt::print("\n");
}

}  // namespace

int generate(const Invocation& call) {
  CLI::App app("Continues a text with the model of a checkpoint", "ztrain generate");
  Arguments a;
  app.add_option("checkpoint", a.checkpoint, "a folder step_N")->required();
  app.add_option("--prompt", a.prompt, "text to continue (models of bytes)");
  app.add_option("--prompt-ids", a.prompt_ids, "token ids to continue, comma-separated")->delimiter(',');
  app.add_option("--tokens", a.options.tokens, "tokens to add")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--temperature", a.options.temperature, "0: the likeliest token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", a.options.seed, "of the draws")->capture_default_str();
  if (const auto code = parse(app, call)) return *code;
  run(call.session, a);
  return 0;
}

}  // namespace ztrain::app
