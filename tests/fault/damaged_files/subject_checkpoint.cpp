// Checkpoints, of all weights with plain moments and of adapters with moments in 8 bits: damaged ones are
// refused, or change nothing.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "bytes.hpp"
#include "case.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "hdf5_mutation.hpp"
#include "json_mutation.hpp"

namespace ztrain::damaged_files {
namespace {

namespace fs = std::filesystem;

const Words export_words{"export", "", "--to", "hf", "--dtype", "fp32"};
const Words generate_words{"generate", "", "--prompt-ids", "1,2,3", "--tokens", "4", "--dtype", "fp32"};

Words of(Words words, const std::string& checkpoint) {
  words[1] = checkpoint;
  return words;
}

std::string last_loss(const fs::path& run) {
  const std::string text = read_bytes(run / "metrics.jsonl");
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "no metrics";
  const std::size_t begin = text.rfind('\n', end) + 1;
  const auto line = parse_json(text.substr(begin, end + 1 - begin));
  return fmt::format("step {} loss {}", json_text(line.value("step", nlohmann::json())),
                     json_text(line.value("loss", nlohmann::json())));
}

/// What a sound checkpoint gives is kept beside it.
fs::path kept(const std::string& name) {
  return fs::path("sound") / name;
}

/// A FIFO or a device, which a change before may have put there, would be read for ever.
bool is_file(const fs::path& path) {
  std::error_code loop;
  return fs::is_regular_file(path, loop);
}

/// The tables of index.h5 are to be looked at where the checksum is right.
void reseal(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "metadata.json";
  const auto metadata = nlohmann::json::parse(is_file(path) ? read_bytes(path) : "", nullptr, false);
  if (metadata.is_object()) checkpoint::write_metadata_file(checkpoint, metadata);  // else damaged before
}

void change(Case& c, const fs::path& checkpoint) {
  if (c.random.one_in(4) && is_file(checkpoint / "index.h5")) {
    c.changed(damage_numbers(checkpoint / "index.h5", "ztrain/pieces", c.random));
    return reseal(checkpoint);
  }
  const auto files = files_below(checkpoint);
  const fs::path& file = c.random.pick(files);
  if (c.random.one_in(8)) return c.changed(replace_file(file, files, c.random));
  if (file.extension() == ".json") {
    std::string text = read_bytes(file);
    const std::string what = damage_json(text, c.random);
    write_bytes(file, text);
    return c.changed(fmt::format("{}: {}", file.filename().string(), what));
  }
  if (!c.random.one_in(2)) return c.changed(damage_file(file, c.random));
  c.changed(damage_hdf5(file, c.random));
  if (file.filename() == "index.h5" && c.random.one_in(2)) reseal(checkpoint);
}

void resume(Case& c, const std::string& deck) {
  if (!c.run({deck, "--run.steps=3"}).accepted) return;
  const std::string loss = last_loss("run");
  if (loss != read_bytes(kept(deck + ".loss")))
    c.require_same("loss of a resumed run", loss, read_bytes(kept(deck + ".loss")));
}

void export_it(Case& c, const std::string& checkpoint, const std::string& kind) {
  if (!c.run(of(export_words, checkpoint)).accepted) return;
  for (const char* name : {"model.safetensors", "config.json"})
    c.require_same(std::string("exported ") + name, read_bytes(fs::path("hf") / name),
                   read_bytes(kept(kind + "." + name)));
}

}  // namespace

void make_checkpoint(Case& c) {
  write_bytes(c.folder / "text.txt", sound_text());
  DeckKeys plain = small_deck();
  write_bytes("plain.toml", toml_of(plain));
  DeckKeys adapted = plain;
  adapted.insert(adapted.end(), {{"lora.rank", "2"},
                                 {"lora.alpha", "4"},
                                 {"optimizer.name", R"("adamw_8bit")"},
                                 {"optimizer.lr", "0.1"},
                                 {"model.from", R"("base")"},
                                 {"run.output", R"("run")"}});
  c.run({"plain.toml"});
  c.run({"export", "run/checkpoints/step_2", "--to", "base", "--dtype", "fp32"});
  fs::rename("run", "plain");
  std::erase_if(adapted,
                [](const auto& key) { return key.first.starts_with("model.") && key.first != "model.from"; });
  write_bytes("adapted.toml", toml_of(adapted));
  c.run({"adapted.toml"});
  fs::rename("run", "adapted");
  fs::create_directory("sound");
  for (const std::string kind : {"plain", "adapted"}) {
    fs::copy(kind, "run", fs::copy_options::recursive);
    c.run(of(export_words, "run/checkpoints/step_2"));
    for (const char* name : {"model.safetensors", "config.json"})
      fs::copy(fs::path("hf") / name, kept(kind + "." + name));
    fs::remove_all("hf");
    write_bytes(kept(kind + ".text"), c.run(of(generate_words, "run/checkpoints/step_2")).out);
    c.run({kind + ".toml", "--run.steps=3"});
    write_bytes(kept(kind + ".toml.loss"), last_loss("run"));
    fs::remove_all("run");
  }
}

void attack_checkpoint(Case& c) {
  c.copy("checkpoint");
  const std::string kind = c.random.one_in(2) ? "plain" : "adapted";
  fs::rename(kind, "run");
  const std::string checkpoint = "run/checkpoints/step_2";
  change(c, checkpoint);
  if (c.random.one_in(8)) change(c, checkpoint);
  switch (c.random.below(5)) {
    case 0:
    case 1:
      return export_it(c, checkpoint, kind);
    case 2:
    case 3:
      return resume(c, kind + ".toml");
    default: {
      const Outcome outcome = c.run(of(generate_words, checkpoint));
      if (outcome.accepted) c.require_same("generated text", outcome.out, read_bytes(kept(kind + ".text")));
    }
  }
}

}  // namespace ztrain::damaged_files
