#include "program/schedules/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/shape.hpp"
#include "program/schedules/messages.hpp"

namespace ztrain::program {
namespace {

constexpr int most_number = 1 << 20;  ///< of a stage or a micro-batch

/// As written: of a stage, not of a chunk.
struct Written {
  char letter = 'F';
  int stage = 0, micro = 0;
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\"";
  const std::size_t first = text.find_first_not_of(blank);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(blank) - first + 1);
}

std::vector<std::string_view> parts_between(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

/// Digits at the beginning of the text, which they are taken from.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > most_number || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool is_communication(std::string_view word) {
  constexpr std::array words{"UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  while (!word.empty() && word.back() >= '0' && word.back() <= '9') word.remove_suffix(1);
  return std::ranges::find(words, word) != words.end();
}

/// Throws Error where the ranks would wait for each other.
void require_no_circle(const PipelineOrder& order) {
  const MessageMap messages(order.map);
  std::set<MessageId> sent;
  follow_turns(order, [&](int rank, const Turn& turn) {
    if (const auto id = messages.needed_by(rank, turn); id && !sent.contains(*id)) return false;
    if (const auto id = messages.sent_by(rank, turn)) sent.insert(*id);
    return true;
  });
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {
    // Spreadsheets write a mark that the text is UTF-8.
    if (constexpr std::string_view mark = "\xEF\xBB\xBF"; text_.starts_with(mark))
      text_.remove_prefix(mark.size());
  }

  Schedule read() {
    read_lines();
    ranks_ = static_cast<int>(lines_.size());
    REQUIRE(ranks_ > 0, "{}: has no actions: each line is those of a rank of the pipeline, as 0F0,0B0",
            name_);
    find_map();
    PipelineOrder order{map_, {}};
    for (int rank = 0; rank < ranks_; ++rank) order.turns.push_back(turns_of(rank));
    try {
      require_no_circle(order);
    } catch (const Error& e) {
      fail("{}: {}", name_, e.what());
    }
    return schedule_of(std::move(order.turns));
  }

 private:
  void read_lines() {
    for (const std::string_view line : parts_between(text_, '\n')) {
      ++number_;
      std::vector<Written> actions;
      for (const std::string_view cell : parts_between(line, ',')) read_cell(cell, actions);
      if (!actions.empty()) {
        lines_.push_back(std::move(actions));
        numbers_.push_back(number_);
      }
    }
  }

  void read_cell(std::string_view cell, std::vector<Written>& actions) {
    if (cell.starts_with('(')) {
      const std::size_t end = cell.find(')');
      if (end == cell.npos || cell.substr(end + 1) != "OVERLAP_F_B") refuse(cell);
      for (const std::string_view part : parts_between(cell.substr(1, end - 1), ';'))
        read_cell(part, actions);
      return;
    }
    if (cell.empty()) return;
    std::string_view rest = cell;
    const auto stage = take_number(rest);
    if (!stage) refuse(cell);
    if (is_communication(rest)) return;
    if (rest.empty() || std::string_view("FBIW").find(rest.front()) == rest.npos) refuse(cell);
    const char letter = rest.front();
    rest.remove_prefix(1);
    const auto micro = take_number(rest);
    if (!micro || !rest.empty()) refuse(cell);
    actions.push_back({letter, *stage, *micro});
    stages_ = std::max(stages_, *stage + 1);
    micros_ = std::max(micros_, *micro + 1);
    if (letter == 'W') halved_.insert({*stage, *micro});
  }

  [[noreturn]] void refuse(std::string_view cell) const {
    fail(
        "{}: line {}: '{}' is no action of a schedule, such as 0F3 (stage 0, forward, micro-batch 3) with B, "
        "I "
        "or W for backwards",
        name_, number_, printable(cell, most_quoted));
  }

  /// Which of the two ways round the ranks the stages go.
  void find_map() {
    REQUIRE(stages_ % ranks_ == 0, "{}: has {} stages on {} ranks (lines): every rank has equally many",
            name_, stages_, ranks_);
    std::string fault;
    for (const bool vee : {false, true}) {
      map_ = {ranks_, stages_ / ranks_, vee};
      fault = fault_of_map();
      if (fault.empty()) return;
    }
    fail("{}: {}: stages go round the ranks (stage s on rank s mod {}), or back and forth", name_, fault,
         ranks_);
  }

  std::string fault_of_map() const {
    for (int rank = 0; rank < ranks_; ++rank)
      for (const Written& action : lines_[at(rank)])
        if (map_.rank_of(action.stage) != rank)
          return fmt::format("line {}: stage {} is on rank {}", numbers_[at(rank)], action.stage, rank);
    return "";
  }

  std::vector<Turn> turns_of(int rank) const {
    std::vector<Turn> turns;
    for (const Written& action : lines_[at(rank)])
      turns.push_back({kind_of(action), map_.chunk_of(action.stage), action.micro});
    const std::string fault = program::fault_of(turns, map_.chunks, micros_, {map_, rank});
    REQUIRE(fault.empty(), "{}: line {}: {}", name_, numbers_[at(rank)], fault);
    return turns;
  }

  TurnKind kind_of(const Written& action) const {
    if (action.letter == 'F') return TurnKind::forward;
    if (action.letter == 'W') return TurnKind::backward_weights;
    const bool half = action.letter == 'I' || halved_.contains({action.stage, action.micro});
    return half ? TurnKind::backward_inputs : TurnKind::backward;
  }

  Schedule schedule_of(std::vector<std::vector<Turn>> turns) const {
    const auto shared = std::make_shared<const std::vector<std::vector<Turn>>>(std::move(turns));
    const auto of_rank = [shared, name = name_, micros = micros_](const ScheduleInput& input) {
      ASSERT(input.ranks == std::ssize(*shared) && input.micro_batches == micros,
             "{} is a schedule of {} micro-batches on {} ranks, not of {} on {}", name, micros,
             shared->size(), input.micro_batches, input.ranks);
      return (*shared)[at(input.rank)];
    };
    return {name_, of_rank, map_.chunks, map_.vee, ranks_, micros_};
  }

  std::string_view text_;
  const std::string& name_;
  int number_ = 0;                           ///< of the line at hand
  std::vector<std::vector<Written>> lines_;  ///< by rank
  std::vector<int> numbers_;                 ///< by rank: of its line
  std::set<std::pair<int, int>> halved_;     ///< {stage, micro-batch} that have a half for weights
  int ranks_ = 0, stages_ = 0, micros_ = 0;
  StageMap map_;
};

}  // namespace

Schedule schedule_from_csv(std::string_view text, const std::string& name) {
  return Reader(text, name).read();
}

}  // namespace ztrain::program
