#include "app/generate_request.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "config/architectures.hpp"
#include "config/block_layout.hpp"
#include "data/tokens/token_source.hpp"
#include "files/file.hpp"
#include "job/progress.hpp"
#include "kernel_interface/target.hpp"
#include "model/tensor_plan.hpp"

namespace ztrain::generate {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GeneratorOptions, dtype, capacity, chunk, every_logit, tensor, pipeline);
}

namespace ztrain::app {
namespace {

constexpr std::int64_t largest_prompts = 1 << 28;  ///< bytes; 40 million tokens
/// Most tokens that the cache has room for if prompts follow and --max-length does not say how many.
constexpr std::int64_t following = 8192;

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

/// Throws Error for a token outside the vocabulary. `where` names the prompt, as "file:line: ", or is "" if
/// there is only one.
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

/// Returns one prompt or more, each of tokens in [0, vocabulary): from a text byte by byte, from ids, or from
/// a file of ids.
std::vector<Tokens> prompts_of(const GenerateArguments& a, std::int64_t vocabulary) {
  const int given = !a.prompt.empty() + !a.prompt_ids.empty() + !a.prompt_file.empty();
  REQUIRE(
      given == 1,
      "give one of: a text with --prompt, token ids with --prompt-ids, or a file of them with --prompt-file");
  REQUIRE(!a.follow || a.prompt.empty(),
          "--follow reads token ids: give the first as ids too, with --prompt-ids");
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

/// Throws Error for an end token outside the vocabulary: it never comes, so the text would not end where the
/// user wants.
void require_eos(const Tokens& eos, std::int64_t vocabulary) {
  for (const std::int32_t t : eos)
    REQUIRE(t < vocabulary && (t >= 0 || (t == -1 && eos.size() == 1)),
            "--eos: {} is no token of the model's vocabulary of {} (-1 alone: none ends a text)", t,
            vocabulary);
}

/// Makes the cache large enough for what is asked for, up to the model's context.
void set_capacity(const GenerateArguments& a, GenerateRequest& r) {
  job::Context context =
      a.max_length > 0 ? job::Context{a.max_length, "--max-length"} : job::context_of(r.source);
  const config::Model& m = r.source.deck.model;
  bool ends = false;  // whether the model itself allows for no more
  const auto end_at = [&](std::int64_t positions, const char* from) {
    ends = ends || positions <= context.positions;
    if (positions < context.positions) context = {positions, from};
  };
  if (config::find_architecture(m.family).style.learned_positions)
    end_at(m.max_position_embeddings, "the rows of its table of positions");
  if (const config::SparseAttention& sparse = r.source.deck.sparse_attention; sparse.is_on()) {
    job::require_same_blocks(r.source.attention_blocks, r.source.deck, r.source.folder);
    end_at(config::longest_sequence(sparse), "the rows of its sparse_attention");
  }
  REQUIRE(context.positions > 0, "{} does not say how many tokens the model was made for: give --max-length",
          r.source.folder);
  const auto longer = [](const Tokens& x, const Tokens& y) { return x.size() < y.size(); };
  const auto longest = std::ssize(*std::max_element(r.prompts.begin(), r.prompts.end(), longer));
  REQUIRE(!ends || longest <= context.positions,
          "a prompt has {} tokens, more than the {} of the model's context ({}): shorten it", longest,
          context.positions, context.from);
  REQUIRE(longest <= context.positions,
          "a prompt has {} tokens, more than the {} of the model's context ({}): shorten it, or give "
          "--max-length {} (a model may do poorly beyond what it was trained on)",
          longest, context.positions, context.from, longest + a.options.tokens);
  r.generator.capacity = longest + std::min(a.options.tokens, context.positions - longest);
  if (a.follow)  // prompts that follow may be longer
    r.generator.capacity = std::max(
        r.generator.capacity, a.max_length > 0 ? context.positions : std::min(following, context.positions));
  r.capacity_from = fmt::format("({}){}", context.from, ends ? "" : ": --max-length allows for more");
}

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

void require_tensor(std::int64_t tensor, const config::Model& model, int ranks) {
  const std::int64_t most = model::most_tensor_ranks(model);
  REQUIRE(tensor >= 1 && tensor <= most && ranks % tensor == 0,
          "--tensor {}: it has to divide {}, and each rank needs a head of attention, of which the model has "
          "{}: legal here: {}",
          tensor, count_text(ranks, "rank"), most, fmt::join(divisors(ranks, most), ", "));
}

void require_pipeline(const GenerateArguments& a, const config::Model& model, int ranks) {
  const std::int64_t layers = model.num_hidden_layers;
  REQUIRE(a.pipeline >= 1 && a.pipeline <= layers && ranks % (a.pipeline * a.tensor) == 0,
          "--pipeline {}: times --tensor {} it has to divide {}, and each group of ranks needs a layer, of "
          "which the model has {}: legal here: {}",
          a.pipeline, a.tensor, count_text(ranks, "rank"), layers,
          fmt::join(divisors(ranks / a.tensor, layers), ", "));
}

/// Makes the request, at rank 0. The folder's files count only for what the command line leaves open.
GenerateRequest decide(const GenerateArguments& a, job::ModelSource source, int ranks) {
  GenerateRequest r{std::move(source), {}, {}, a.options, {}};
  r.prompts = prompts_of(a, r.source.deck.model.vocab_size);
  r.generator.dtype = a.dtype.empty() ? r.source.dtype : dtype_from(a.dtype);
  r.generator.every_logit = !a.logits.empty();
  set_capacity(a, r);
  r.generator.chunk = std::min(a.chunk, r.generator.capacity);
  require_tensor(a.tensor, r.source.deck.model, ranks);
  require_pipeline(a, r.source.deck.model, ranks);
  r.generator.tensor = static_cast<int>(a.tensor);
  r.generator.pipeline = static_cast<int>(a.pipeline);
  if (a.eos) require_eos(*a.eos, r.source.deck.model.vocab_size);
  r.options.eos = a.eos ? *a.eos : job::eos_of(r.source);
  return r;
}

/// Returns what all ranks must have in common to meet in every collective. Rank 0 alone draws and prints, so
/// the rest stays there.
std::string to_text(const GenerateRequest& r) {
  return json_text(nlohmann::json{{"prompts", r.prompts},
                                  {"generator", r.generator},
                                  {"tokens", r.options.tokens},
                                  {"eos", r.options.eos}});
}

GenerateRequest from_text(const std::string& text, job::ModelSource source) {
  const auto said = parse_json(text);
  GenerateRequest r{std::move(source), said.at("prompts"), said.at("generator"), {}, {}};
  said.at("tokens").get_to(r.options.tokens);
  said.at("eos").get_to(r.options.eos);
  return r;
}

}  // namespace

GenerateRequest make_request(const runtime::Session& session, const GenerateArguments& arguments) {
  job::ModelSource source = job::open_model(session, arguments.model, arguments.base);
  if (!arguments.communicator.empty()) source.deck.device.communicator = arguments.communicator;
  std::optional<GenerateRequest> decided;
  const std::string text = session.from_rank_0(session.agree("reading the prompts", [&] {
    REQUIRE(arguments.communicator != "nccl" || build_target() == Target::cuda,
            "--communicator nccl: this ztrain is built for CPUs, whose ranks exchange weights by MPI: leave "
            "it out");
    REQUIRE(!source.gives_rewards(),
            "{}: it is a reward model (preference.loss_type = \"reward\"), which continues no text: `ztrain "
            "evaluate` gives its loss and accuracy on pairs of answers",
            arguments.model);
    if (session.rank() == 0) decided = decide(arguments, source, session.size());
    return decided ? to_text(*decided) : std::string{};
  }));
  if (decided) return *std::move(decided);
  return from_text(text, std::move(source));
}

Tokens next_prompt(const runtime::Session& session, const GenerateRequest& r) {
  const std::string where = "standard input";
  const std::string text = session.from_rank_0(session.agree("reading the next prompt", [&]() -> std::string {
    std::string line;
    if (session.rank() != 0 || !std::getline(std::cin, line)) return "";
    const Tokens ids = ids_of_line(line, where);
    REQUIRE(!ids.empty(), "{}: a prompt of no tokens", where);
    require_in_vocabulary(ids, r.source.deck.model.vocab_size, where + ": ");
    REQUIRE(std::ssize(ids) <= r.generator.capacity,
            "{}: a prompt has {} tokens, more than the {} that there is room for: give --max-length", where,
            ids.size(), r.generator.capacity);
    return line;
  }));
  return ids_of_line(text, where);
}

}  // namespace ztrain::app
