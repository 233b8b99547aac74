#include "checkpoint/verify.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "checkpoint/format/damaged.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "checkpoint/reader.hpp"
#include "config/hf/starting_point.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

bool has_frames(const Index& index) {
  return std::ranges::none_of(index.files, [](const FileEntry& file) { return file.frame.empty(); });
}

void require_sound_metadata(const fs::path& folder, const Index& index) {
  // it says more about a file that somebody has edited
  const nlohmann::json metadata = read_metadata(folder);
  const std::int64_t name = checkpoint::step_of(folder);
  const auto step = metadata.find("step");
  if (name >= 0 && step != metadata.end() && step->is_number_integer() && *step != name)
    fail_damaged("{}: was saved at step {}, and is named for another: rename it to step_{}", folder.string(),
                 step->get<std::int64_t>(), step->get<std::int64_t>());
  const bool sealed = require_intact_metadata(folder);
  if (!sealed && has_frames(index))
    fail_damaged("{}: was changed: it has no checksum of itself; {}",
                 (folder / config::checkpoint_metadata_file).string(), advice);
}

std::vector<PieceRow> pieces_in(const Index& index, std::int64_t file) {
  std::vector<PieceRow> rows;
  std::ranges::copy_if(index.pieces, std::back_inserter(rows),
                       [&](const PieceRow& row) { return row.file == file; });
  return rows;
}

void require_sound_frame(const fs::path& folder, const Index& index, std::int64_t number) {
  const FileEntry& entry = index.files[static_cast<std::size_t>(number)];
  const PosixFile file = open_shard_file(folder, entry);
  const auto frame = [&] { return hex(frame_checksum(file, pieces_in(index, number))); };
  if (!entry.frame.empty() && read_or_damaged(file.path(), frame) != entry.frame)
    fail_damaged("{}: is damaged: the bytes around its tensors do not have their checksum; {}",
                 file.path().string(), advice);
}

/// Blocks of one shard file's tensors.
class Blocks {
 public:
  Blocks(const fs::path& folder, const Index& index, const VerifyOptions& options, Verified& verified)
      : folder_(folder), index_(index), options_(options), verified_(verified) {}

  void look(std::int64_t number) {
    const PosixFile file = open_shard_file(folder_, index_.files[static_cast<std::size_t>(number)]);
    for (const PieceRow& row : pieces_in(index_, number)) {
      const std::int64_t blocks = ceil_div(row.bytes(), checksum_block);
      std::vector<std::int64_t> wrong;
      for (std::int64_t b = 0; b < blocks; ++b)
        if ((row.first_checksum + b) % options_.parts == options_.part && !is_sound(file, row, b))
          wrong.push_back(b);
      if (!wrong.empty()) tell(file, row, blocks, wrong);
    }
  }

 private:
  bool is_sound(const PosixFile& file, const PieceRow& row, std::int64_t b) {
    const std::int64_t begin = b * checksum_block, length = std::min(checksum_block, row.bytes() - begin);
    const std::uint64_t sum = checksum_of(file, row.byte_offset + begin, length);
    verified_.bytes += length;
    if (options_.progress) options_.progress(verified_.bytes, total_);
    return static_cast<std::int64_t>(sum) ==
           index_.checksums[static_cast<std::size_t>(row.first_checksum + b)];
  }

  void tell(const PosixFile& file, const PieceRow& row, std::int64_t blocks,
            const std::vector<std::int64_t>& wrong) {
    const auto& catalog = index_.catalog;
    verified_.faults.push_back(fmt::format(
        "{}: is damaged: {} of {} blocks of {} ({}) do not have their checksum, the first at offset {}",
        file.path().string(), wrong.size(), blocks,
        catalog.parameters[static_cast<std::size_t>(row.parameter)].name,
        catalog.states[static_cast<std::size_t>(row.state)].name,
        row.byte_offset + wrong.front() * checksum_block));
  }

  std::int64_t all_bytes() const {
    std::int64_t bytes = 0;
    for (const PieceRow& row : index_.pieces) bytes += row.bytes();
    return bytes / options_.parts;
  }

  const fs::path& folder_;
  const Index& index_;
  const VerifyOptions& options_;
  Verified& verified_;
  std::int64_t total_ = all_bytes();
};

std::vector<std::string> strangers_in(const fs::path& folder, const Index& index) {
  std::set<std::string> known{index_name, config::checkpoint_metadata_file};
  for (const FileEntry& file : index.files) known.insert(file.name);
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); !known.contains(name))
      found.push_back(name);
  std::ranges::sort(found);
  return found;
}

}  // namespace

void tell_once(std::vector<std::string>& texts) {
  std::ranges::sort(texts);
  texts.erase(std::ranges::unique(texts).begin(), texts.end());
}

Verified verify(const fs::path& folder, const VerifyOptions& options) {
  Verified verified;
  const auto wanted = [&](const std::string& name) { return options.only.empty() || options.only == name; };
  const auto look = [&](const std::function<void()>& work) {
    try {
      work();
    } catch (const Damaged& e) {
      verified.faults.push_back(without_advice(e.what()));
    } catch (const Error& e) {
      verified.unread.push_back(without_advice(e.what()));
    }
  };
  std::optional<Index> index;
  look([&] { index = read_intact_index(folder); });
  if (!index) return verified;
  verified.covers_all = has_frames(*index);
  verified.files = 2;
  std::set<std::pair<std::int64_t, std::int64_t>> tensors;
  for (const PieceRow& row : index->pieces) tensors.emplace(row.state, row.parameter);
  verified.tensors = std::ssize(tensors);
  const bool first = options.part == 0;
  if (first && wanted(config::checkpoint_metadata_file))
    look([&] { require_sound_metadata(folder, *index); });
  Blocks blocks(folder, *index, options, verified);
  for (std::int64_t f = 0; f < std::ssize(index->files); ++f) {
    if (!wanted(index->files[static_cast<std::size_t>(f)].name)) continue;
    ++verified.files;
    look([&] {
      if (first) require_sound_frame(folder, *index, f);
    });
    look([&] { blocks.look(f); });
  }
  tell_once(verified.faults);  // a missing file was noted twice
  tell_once(verified.unread);
  if (first) verified.others = strangers_in(folder, *index);
  return verified;
}

void require_sound(const fs::path& folder) {
  const Index index = read_intact_index(folder);
  require_sound_metadata(folder, index);
  for (std::int64_t f = 0; f < std::ssize(index.files); ++f) require_sound_frame(folder, index, f);
}

}  // namespace ztrain::checkpoint
