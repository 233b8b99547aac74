#include <fmt/format.h>

#include <limits>
#include <optional>

#include "app/generate_request.hpp"
#include "app/parse.hpp"
#include "base/error.hpp"
#include "data/tokens/token_source.hpp"
#include "files/file.hpp"
#include "generate/generator.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"

namespace ztrain::app {
namespace {

/// Prints continuations as ids, or as bytes after their prompt. Holds the prompt back until the first token,
/// so that progress while a long prompt is read stands on a line of its own.
class Printer {
 public:
  enum class Form : std::uint8_t { ids, text };
  Printer(telemetry::Console& console, Form form) : console_(console), form_(form) {}

  void begin(const std::string& prompt) {
    if (form_ == Form::text) waiting_ = prompt;
  }
  void token(std::int32_t token) {
    if (form_ == Form::ids)
      waiting_ += fmt::format("{} ", token);
    else
      waiting_ += token == data::text_separator ? '\n' : static_cast<char>(token);
    print();
  }
  void end() {
    waiting_ += '\n';
    print();
  }

 private:
  void print() {
    console_.print_bytes(waiting_);
    waiting_.clear();
  }

  telemetry::Console& console_;
  Form form_;
  std::string waiting_;
};

/// Opens the file of logits at rank 0, if logits are asked for.
std::optional<OutputFile> open_logits(const runtime::Session& session, const GenerateArguments& a) {
  return session.agree("writing the logits", [&]() -> std::optional<OutputFile> {
    if (a.logits.empty() || session.rank() != 0) return std::nullopt;
    return create_output(a.logits, "--logits", {a.model, a.prompt_file});
  });
}

std::string speed_text(const generate::Speed& speed) {
  return speed.tokens == 0 ? "none"
                           : fmt::format("{} tokens, {:.1f} tokens/s", speed.tokens,
                                         static_cast<double>(speed.tokens) / speed.seconds);
}

void run(const Invocation& call, const GenerateArguments& a) {
  const runtime::Session& session = call.session;
  telemetry::Console& console = call.console;
  const GenerateRequest r = make_request(session, a);
  std::optional<OutputFile> logits = open_logits(session, a);
  generate::Generator generator(session, console, r.source, r.generator);
  call.watchdog.set_timeout(0);  // from here on a slow reader of the text may be what is waited for
  console.print_error(generator.memory_line() + "\n");
  for (const engine::Note& note : generator.notes())
    console.print_error(fmt::format("{}: {}\n", note.what, note.text));
  Printer printer(console, !a.prompt.empty() && !a.ids ? Printer::Form::text : Printer::Form::ids);
  generate::GenerateOptions options = r.options;
  const generate::Listener listener{
      [&](std::int32_t token) { printer.token(token); },
      [&](std::span<const float> rows) {
        if (logits) logits->write({reinterpret_cast<const char*>(rows.data()), rows.size_bytes()});
      }};
  const auto go_on = [&](const Tokens& prompt) {
    printer.begin(a.prompt);
    const generate::End end = generator.generate(prompt, options, listener);
    printer.end();
    ++options.stream;
    if (end == generate::End::full)
      console.print_error(
          fmt::format("the context of {} tokens is full {}\n", r.generator.capacity, r.capacity_from));
  };
  for (const Tokens& prompt : r.prompts) go_on(prompt);
  for (Tokens prompt; a.follow && !(prompt = next_prompt(session, r)).empty();) go_on(prompt);
  session.agree("writing the logits", [&] {
    if (logits) logits->close();
  });
  console.print_error(fmt::format("prefill {}; decode {}\n", speed_text(generator.prefilled()),
                                  speed_text(generator.decoded())));
}

void add_sampling(Parser& parser, generate::GenerateOptions& o) {
  parser.option("--tokens", o.tokens, "tokens to add").not_negative().shows_default();
  parser.option("--temperature", o.sampling.temperature, "0: the likeliest token")
      .not_negative()
      .shows_default();
  parser.option("--top-k", o.sampling.top_k, "draw from the k likeliest tokens; 0: from all")
      .not_negative()
      .shows_default();
  parser.option("--top-p", o.sampling.top_p, "draw from the likeliest tokens of this probability")
      .range(1e-9, 1.0)
      .shows_default();
  parser.option("--seed", o.seed, "of the draws").shows_default();
}

}  // namespace

int generate(const Invocation& call) {
  Parser parser("Continues prompts with the model of a checkpoint or of a Hugging Face folder",
                "ztrain generate");
  GenerateArguments a;
  parser.option("model", a.model, "a folder step_N, or one with config.json and safetensors files")
      .required()
      .local_path();
  parser.option("--base", a.base, "folder of the weights beside which a checkpoint was trained, if moved")
      .local_path();
  parser.option("--prompt", a.prompt, "text to continue (models of bytes)");
  parser.option("--prompt-ids", a.prompt_ids, "token ids to continue, comma-separated");
  parser.option("--prompt-file", a.prompt_file, "file of token ids: a prompt per line, a line out for each")
      .local_path();
  add_sampling(parser, a.options);
  parser.option("--eos", a.eos,
                "token ids that end a text; else those of the model's folder or data; -1: none");
  parser
      .option("--max-length", a.max_length,
              "tokens of prompt and continuation; else what the model was made for or trained on")
      .range(1, std::numeric_limits<std::int32_t>::max());
  parser.option("--chunk", a.chunk, "tokens of a prompt that run at once").positive().shows_default();
  parser
      .option("--tensor", a.tensor,
              "ranks over which heads and feed-forwards are cut: no weight is sent for a token then; sums "
              "are of parts, so the last bits are those of this number")
      .positive()
      .shows_default();
  parser
      .option("--pipeline", a.pipeline,
              "groups of ranks that have some of the layers each: no weight is sent for a token, and a group "
              "has the cache of its own layers; groups work one after the other")
      .positive()
      .shows_default();
  parser.option("--dtype", a.dtype, "to compute in; else the checkpoint's, and bf16 for a folder")
      .one_of({"bf16", "fp16", "fp32", "fp64"});
  parser
      .option("--communicator", a.communicator,
              "what ranks on GPUs exchange weights by; else as the run did (device.communicator)")
      .one_of({"auto", "nccl", "mpi"});
  parser.flag("--ids", a.ids, "print token ids for a text too");
  parser.flag("--follow", a.follow,
              "go on with prompts from standard input, a line of token ids each, until it ends");
  parser
      .option("--logits", a.logits,
              "file for the logits of every token of the prompts: fp32, little-endian, [tokens, vocabulary]")
      .local_path();
  if (const auto code = parser.parse(call)) return *code;
  run(call, a);
  return 0;
}

}  // namespace ztrain::app
