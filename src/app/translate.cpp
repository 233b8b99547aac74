#include "translate/translate.hpp"

#include <fmt/format.h>

#include "app/parse.hpp"
#include "base/error.hpp"
#include "config/text/load.hpp"
#include "files/file.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "translate/back.hpp"

namespace ztrain::app {
namespace {

struct TranslateArguments {
  translate::Request request;
  std::string to;
  bool markdown = false, deepspeed = false, accelerate = false;
};

/// Writes the text to --to, or prints it.
void give(const Invocation& call, const TranslateArguments& a, const std::string& text) {
  if (a.to.empty()) return call.console.print(text);
  OutputFile file = create_output(a.to, "--to", a.request.files);
  file.write(text);
  file.close();
}

void translate_back(const Invocation& call, const TranslateArguments& a) {
  REQUIRE(a.request.files.size() == 1, "--to-deepspeed and --to-accelerate translate one deck");
  const config::Deck deck =
      config::load_deck(a.request.files[0], a.request.overrides, config::Files::elsewhere);
  const translate::Translated back =
      a.deepspeed ? translate::to_deepspeed(deck) : translate::to_accelerate(deck, a.request.ranks);
  give(call, a, back.text);
  for (const std::string& remark : back.remarks) call.console.print_error(remark + "\n");
}

void run_translation(const Invocation& call, const TranslateArguments& a) {
  if (call.session.rank() != 0) return;
  if (a.markdown) return call.console.print(translate::names_markdown());
  REQUIRE(!a.request.files.empty(), "name the files to translate; --help says which");
  if (a.deepspeed || a.accelerate) return translate_back(call, a);
  const translate::Translation made = translate::translate(a.request);
  give(call, a, translate::deck_text(made));
  if (a.to.empty()) return;
  if (const std::string counts = translate::counts_text(made); !counts.empty())
    call.console.print(fmt::format("{0}: {1}: see the end of {0}\n", a.to, counts));
  call.console.print(fmt::format("{0}: `ztrain check {0} --without-files` checks it\n", a.to));
}

}  // namespace

int translate(const Invocation& call) {
  Parser parser(
      "Translates configurations of DeepSpeed, Accelerate, transformers, TRL, axolotl and torchtitan into a "
      "commented deck. Several files make one deck; of values that contradict each other the last counts",
      "ztrain translate");
  TranslateArguments a;
  parser.option("files", a.request.files, "YAML, JSON or TOML files; with --to-... a deck");
  parser.option("--from", a.request.from, "the program that they are of; by default their names say it");
  parser.option("--ranks", a.request.ranks, "ranks of the run, which batch.global follows from")
      .range(1, 1 << 20);
  parser.option("--to", a.to, "write the result there instead of printing it").local_path();
  parser.flag("--to-deepspeed", a.deepspeed, "a deck to DeepSpeed's JSON");
  parser.flag("--to-accelerate", a.accelerate, "a deck to Accelerate's YAML");
  parser.flag("--markdown", a.markdown, "print the tables of docs/coming-from.md");
  parser.keep_others();
  if (const auto code = parser.parse(call)) return *code;
  a.request.overrides = parser.remaining();
  call.session.agree("translating", [&] { run_translation(call, a); });
  return 0;
}

}  // namespace ztrain::app
