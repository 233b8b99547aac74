#include "files/lustre.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <vector>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "files/posix_file.hpp"

namespace ztrain {
namespace {

/// Files below 64 MiB have one stripe, so that small ones cost one object. Each next part has more stripes.
constexpr std::array layout{"-E", "64M", "-c", "1", "-E", "4G", "-c", "4", "-E", "-1", "-c", "8"};

/// Reads all that a pipe gives, and keeps its first bytes.
std::string first_of(int pipe) {
  constexpr std::size_t most = 4096;
  std::string text;
  std::array<char, 512> some{};
  for (ssize_t got; (got = ::read(pipe, some.data(), some.size())) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    text.append(some.data(), std::min(static_cast<std::size_t>(got), most - std::min(most, text.size())));
  }
  return text;
}

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return printable(text, 300);
}

/// Returns the room that the kernel's record of a quota leaves: its hard limit less what is used.
std::optional<std::int64_t> left_of_kernel(int folder, int kind, id_t id) {
  struct dqblk record {};
  const auto failed = ::syscall(SYS_quotactl_fd, folder, QCMD(Q_GETQUOTA, kind), id, &record);
  if (failed != 0 || (record.dqb_valid & QIF_BLIMITS) == 0 || record.dqb_bhardlimit == 0) return std::nullopt;
  const auto limit = static_cast<std::int64_t>(record.dqb_bhardlimit) * 1024;  // counted in KiB
  return std::max<std::int64_t>(0, limit - static_cast<std::int64_t>(record.dqb_curspace));
}

/// The text that a program printed on both streams, and whether it was found and ended with status 0.
struct Answer {
  bool found = false, ok = false;
  std::string text;
};

/// Runs a program of PATH, without a shell, and waits for its end.
Answer answer_of(std::vector<std::string> words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const Descriptor out(ends[0]);
  Descriptor in(ends[1]);
  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  posix_spawn_file_actions_addopen(&streams, 0, "/dev/null", O_RDONLY, 0);
  for (const int stream : {1, 2}) posix_spawn_file_actions_adddup2(&streams, in, stream);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::pid_t child = 0;
  const bool found = ::posix_spawnp(&child, argv.front(), &streams, nullptr, argv.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&streams);
  in.close();
  if (!found) return {};
  Answer answer{.found = true, .text = first_of(out)};
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  answer.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return answer;
}

}  // namespace

bool is_lustre(const std::filesystem::path& path) {
  constexpr auto number = 0x0BD00BD0;
  struct statfs system {};
  return ::statfs(path.c_str(), &system) == 0 && system.f_type == number;
}

std::string spread_files_of(const std::filesystem::path& folder, bool on_lustre) {
  if (!on_lustre) return "";
  std::vector<std::string> words{"lfs", "setstripe"};
  words.insert(words.end(), layout.begin(), layout.end());
  words.push_back(folder.string());
  const Answer answer = answer_of(words);
  if (!answer.found)
    return fmt::format(
        "{} is on Lustre, and `lfs` is not in PATH: its files have the stripes of the folder above",
        folder.string());
  if (!answer.ok)
    return fmt::format(
        "{} is on Lustre, and its files have the stripes of the folder above: `lfs setstripe`: {}",
        folder.string(), one_line(answer.text));
  return fmt::format("{} is on Lustre: a file in it has 1 stripe up to 64 MiB, 4 up to 4 GiB, and 8 beyond",
                     folder.string());
}

std::optional<std::int64_t> left_of_lfs_quota(const std::string& text) {
  std::istringstream words(text);
  std::string path, used, soft, hard;
  if (!(words >> path >> used >> soft >> hard)) return std::nullopt;
  const auto kibibytes = [](std::string word) -> std::optional<std::int64_t> {
    // A star marks a limit that is passed. Brackets mark a number that some server did not confirm.
    std::erase_if(word, [](char c) { return c == '*' || c == '[' || c == ']'; });
    if (word.empty() || word.size() > 15 || word.find_first_not_of("0123456789") != std::string::npos)
      return std::nullopt;
    return std::stoll(word);
  };
  const auto now = kibibytes(used), limit = kibibytes(hard);
  if (!now || !limit || *limit == 0) return std::nullopt;
  return std::max<std::int64_t>(0, *limit - *now) * 1024;
}

std::optional<QuotaLeft> quota_left(const std::filesystem::path& folder, bool on_lustre) {
  const Descriptor there(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::optional<QuotaLeft> least;
  const auto note = [&](std::optional<std::int64_t> left, const char* kind, const std::string& name) {
    if (left && (!least || *left < least->bytes)) least = QuotaLeft{*left, fmt::format("{} {}", kind, name)};
  };
  const auto ask = [&](const char* kind, const char* option, int number, id_t id) {
    const std::string name = std::to_string(id);
    if (!on_lustre) return note(left_of_kernel(there, number, id), kind, name);
    const Answer answer = answer_of({"lfs", "quota", "-q", option, name, folder.string()});
    if (answer.ok) note(left_of_lfs_quota(answer.text), kind, name);
  };
  ask("user", "-u", USRQUOTA, ::geteuid());
  ask("group", "-g", GRPQUOTA, ::getegid());
  return least;
}

void require_quota(const std::filesystem::path& folder, std::int64_t bytes,
                   const std::optional<QuotaLeft>& left, std::string_view what, std::string_view otherwise) {
  REQUIRE(
      !left || bytes <= left->bytes,
      "{}: Disk quota exceeded: {} takes {} and the quota of {} leaves {}: remove files, ask for more, or {}",
      folder.string(), what, format_bytes(static_cast<double>(bytes)), left->whose,
      format_bytes(static_cast<double>(left->bytes)), otherwise);
}

}  // namespace ztrain
