#pragma once
// One case: a copy of sound files, what was changed in it, and what the commands made of it.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "command.hpp"
#include "random.hpp"

namespace ztrain::damaged_files {

/// A command, or the files that it accepted, in which something is wrong.
struct Finding {
  std::string cause;  ///< the same for findings that are likely one
  std::string text;   ///< what was printed
};

class Case {
 public:
  /// own: the case's folder, empty. seeds: sound files, by subject.
  Case(const runtime::Session& session, const Capture& capture, std::uint64_t seed, std::filesystem::path own,
       std::filesystem::path seeds)
      : random(seed),
        folder(std::move(own)),
        session_(session),
        capture_(capture),
        seeds_(std::move(seeds)) {}

  /// Copies the subject's sound files into the folder.
  void copy(const std::string& subject);
  void changed(std::string what) { changes.push_back(std::move(what)); }

  /// Runs a command and judges what it printed.
  Outcome run(const Words& words);
  void found(std::string cause, std::string text = "") {
    findings.push_back({std::move(cause), std::move(text)});
  }
  /// Runs a command whose result is known where all is sound: refused, or the same.
  void require_same(const std::string& what, const std::string& now, const std::string& sound);

  /// Called before each command: it may be the last.
  std::function<void()> before_command;
  Random random;
  const std::filesystem::path folder;
  std::vector<std::string> changes;
  std::vector<Outcome> outcomes;
  std::vector<Finding> findings;

 private:
  const runtime::Session& session_;
  const Capture& capture_;
  std::filesystem::path seeds_;
};

/// What cases are made of.
struct Subject {
  const char* name;
  std::size_t weight;
  /// Writes sound files into an empty folder, which is the working folder. Commands may be run.
  void (*make)(Case& c);
  void (*attack)(Case& c);
};
const std::vector<Subject>& subjects();

/// The deck that all decks of cases come from, by key.
using DeckKeys = std::vector<std::pair<std::string, std::string>>;
DeckKeys small_deck();
/// As TOML. Later values win.
std::string toml_of(const DeckKeys& keys);
/// Some text to train on.
std::string sound_text();

void make_deck(Case& c);
void attack_deck(Case& c);
void make_model(Case& c);
void attack_model(Case& c);
void make_tokens(Case& c);
void attack_tokens(Case& c);
void make_checkpoint(Case& c);
void attack_checkpoint(Case& c);

}  // namespace ztrain::damaged_files
