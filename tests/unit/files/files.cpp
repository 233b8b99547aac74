// Opening, reading and writing files that others may have put there; JSON and names that come from them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "base/json.hpp"
#include "files/file.hpp"
#include "files/hdf5_file.hpp"
#include "files/hdf5_guard.hpp"
#include "files/posix_file.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::files_test {
namespace {

namespace fs = std::filesystem;

using test::error_of;

class Files : public ::testing::Test {
 protected:
  Files() {
    fs::create_directories(folder_);
    fs::permissions(folder_, fs::perms::all);
  }
  ~Files() override { fs::remove_all(folder_); }

  std::string at(const char* name) const { return folder_ / name; }
  std::string write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return at(name);
  }

 private:
  fs::path folder_ = fs::temp_directory_path() / fmt::format("ztrain-files-{}", ::getpid());
};

/// Another user while it lives, where the tests run as root, whom no permission stops.
class AnotherUser {
 public:
  AnotherUser() : before_(::geteuid()) {
    if (before_ == 0) changed_ = ::seteuid(65534) == 0;
  }
  ~AnotherUser() {
    if (changed_) static_cast<void>(!::seteuid(before_));
  }
  AnotherUser(const AnotherUser&) = delete;
  AnotherUser& operator=(const AnotherUser&) = delete;

 private:
  uid_t before_;
  bool changed_ = false;
};

TEST_F(Files, WhatIsNoRegularFileIsRefusedAtOnce) {
  const std::string fifo = at("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read_file(fifo, 10, "data.train"); }),
            "data.train: cannot read '" + fifo + "': it is a FIFO, and a regular file is needed");
  EXPECT_EQ(error_of([&] { OutputFile::create(fifo, "--logits"); }),
            "--logits: cannot write '" + fifo + "': it is a FIFO, and a regular file is needed");
  EXPECT_NE(error_of([&] { open_file(fifo, O_RDWR | O_CREAT); }).find("it is a FIFO"), std::string::npos);
  EXPECT_NE(error_of([&] { read_file("/dev/zero", 10); }).find("'/dev/zero': it is a device"),
            std::string::npos);
  EXPECT_NE(error_of([&] { OutputFile::create("/dev/full"); }).find("it is a device"), std::string::npos);
  EXPECT_NE(error_of([&] { read_file(at("."), 10); }).find("it is a folder"), std::string::npos);
  EXPECT_NE(error_of([&] { OutputFile::append(at(".")); }).find("it is a folder"), std::string::npos);
}

TEST_F(Files, AreReadAndWrittenAsUsual) {
  const int file = open_file(at("a"), O_RDWR | O_CREAT | O_APPEND);
  const int flags = ::fcntl(file, F_GETFL);
  ::close(file);
  EXPECT_EQ(flags & O_NONBLOCK, 0) << "reads and writes wait where they must";
  EXPECT_NE(flags & O_APPEND, 0);
}

TEST_F(Files, ThatAUserTypesMayBeStreams) {
  const std::string fifo = at("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&] {
    OutputFile file = OutputFile::create_or_stream(fifo);
    file.write("some text");
    file.close();
  });
  EXPECT_EQ(read_file_or_stream(fifo, 9), "some text");
  writer.join();
  EXPECT_EQ(error_of([] { read_file_or_stream("/dev/zero", 99, "--prompt-file"); }),
            "--prompt-file: '/dev/zero' has more than 99 bytes, and no such file has");
  EXPECT_NE(error_of([&] { read_file_or_stream(at("."), 9); }).find("Is a directory"), std::string::npos);
  OutputFile::create_or_stream("/dev/null").write("x");
}

TEST_F(Files, TooManyAtOnceAreAnErrorThatSaysWhatToDo) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string path = write("a", "x");
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string message = error_of([&] { require_readable(path); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_NO_THROW(require_readable(path));
  EXPECT_NE(message.find("Too many open files; this process may have 0 open: allow for more (ulimit -n)"),
            std::string::npos)
      << message;
}

TEST_F(Files, AreReadWholeUpToALimit) {
  const std::string path = write("a", "some text");
  EXPECT_EQ(read_file(path, 9), "some text");
  EXPECT_EQ(error_of([&] { read_file(path, 8, "the deck"); }),
            "the deck: '" + path + "' has 9 bytes, and no such file has more than 8");
  ASSERT_EQ(::truncate(path.c_str(), std::int64_t{1} << 42), 0);
  EXPECT_NE(error_of([&] { read_file(path, 1 << 20); }).find("has 4398046511104 bytes"), std::string::npos);
  EXPECT_NE(error_of([&] { read_file(at("none"), 1); }).find("No such file"), std::string::npos);
}

TEST_F(Files, WhatMayNotBeLookedAtIsNotMissing) {
  fs::create_directory(at("closed"));
  const std::string inside = write("closed/file", "x"), own = write("own", "x");
  fs::permissions(at("closed"), fs::perms::none);
  fs::permissions(own, fs::perms::none);
  const AnotherUser user;
  EXPECT_FALSE(file_exists(at("none")));
  EXPECT_FALSE(file_exists(own + "/below"));
  EXPECT_TRUE(file_exists(own));
  const std::string reason = fmt::format(
      "Permission denied; it, and the folders above it, must be open to this user (number {})", ::geteuid());
  EXPECT_EQ(error_of([&] { file_exists(inside, "model.from"); }),
            "model.from: cannot read '" + inside + "': " + reason);
  EXPECT_EQ(error_of([&] { require_readable(own); }), "cannot read '" + own + "': " + reason);
  EXPECT_EQ(error_of([&] { OutputFile::create(own); }), "cannot write '" + own + "': " + reason);
}

TEST_F(Files, NamesThatAreTakenAreNumbered) {
  for (const char* expected : {"a.txt", "a-2.txt", "a-3.txt"}) {
    EXPECT_EQ(unused_name(at("a"), ".txt"), at(expected));
    std::ofstream(at(expected)).close();
  }
  EXPECT_EQ(unused_name(at("b")), at("b"));
}

TEST_F(Files, APathThatIsTooLongIsNotToldWhole) {
  const std::string told = error_of([&] { read_file(std::string(100'000, 'n'), 10); });
  EXPECT_LT(told.size(), 1200u);
  EXPECT_TRUE(told.ends_with("nnn...': File name too long")) << told;
}

TEST_F(Files, ALinkToItselfCannotBeRead) {
  fs::create_symlink("loop", at("loop"));
  EXPECT_EQ(error_of([&] { read_file(at("loop"), 1); }),
            "cannot read '" + at("loop") + "': Too many levels of symbolic links");
  EXPECT_NE(error_of([&] { open_file(at("loop"), O_WRONLY | O_NOFOLLOW); }).find("is not written through"),
            std::string::npos);
}

TEST_F(Files, AFullDiskIsAnError) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string path = at("out");
  const std::string message = error_of([&] {
    OutputFile file = OutputFile::create(path, "--logits");
    file.write(std::string(900, 'x'));
    file.write(std::string(900, 'x'));
    file.close();
  });
  const std::string by_offset =
      error_of([&] { PosixFile::create(path, "run.output").write_at(message.data(), 10, 995); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(
      message,
      "--logits: cannot write '" + path +
          "': File too large; the limit on file sizes is 1000 bytes for this process: raise it (ulimit -f)");
  EXPECT_EQ(by_offset,
            path +
                ": cannot write at byte 1000: File too large; it comes to 1005 bytes at most, "
                "and this process may write files of at most 1000: raise that limit (`ulimit -f 1`)");
}

TEST_F(Files, WhatToDoAboutAWriteDependsOnWhyItFailed) {
  const auto told = [](int error) { return text_of_failed_write(error, 5000, "set KEY elsewhere"); };
  for (const int full : {ENOSPC, EDQUOT})
    EXPECT_TRUE(told(full).ends_with("; make room, or set KEY elsewhere")) << told(full);
  EXPECT_TRUE(told(EIO).starts_with("Input/output error; the disk, or the way to it, fails: ") &&
              told(EIO).ends_with("; set KEY elsewhere"))
      << told(EIO);
  EXPECT_EQ(told(EFBIG), "File too large; this file system takes no file of 5000 bytes: set KEY elsewhere");
  EXPECT_EQ(told(EROFS), "Read-only file system");
  EXPECT_NE(told(EACCES).find("must be open to this user"), std::string::npos) << told(EACCES);
}

TEST_F(Files, DirectWritesGoToTheFileThatIsOpen) {
  const std::string path = write("a", "the one");
  const PosixFile file = PosixFile::open_to_write(path);
  if (!PosixFile::open_direct(file)) GTEST_SKIP() << "the temporary folder has no direct I/O: NOT tested";
  fs::rename(write("b", "another"), path);
  EXPECT_FALSE(PosixFile::open_direct(file).has_value()) << "another file has its name";
  EXPECT_FALSE(file.has_its_name());
  EXPECT_TRUE(PosixFile::open_direct(PosixFile::open_to_write(path)).has_value());
}

TEST(Paths, AreNoAddresses) {
  for (const char* address :
       {"s3://bucket/a.bin", "gs://b", "hf://datasets/x", "https://host/a", "file:///tmp/a"})
    EXPECT_TRUE(
        why_not_local(address).starts_with(std::string("'") + address + "' is an address, and ztrain"))
        << address;
  for (const char* path : {"", "a", "/a/b", "a:b", "://a", "./s3://a", "a b://c"})
    EXPECT_EQ(why_not_local(path), "");
}

TEST(Json, LimitsComeBeforeTheParser) {
  const auto error = [](const std::string& text, const JsonLimits& limits) {
    return error_of([&] { parse_json(text, "a.json", limits); });
  };
  EXPECT_EQ(parse_json(R"({"a": [1, {"b": null}]})", "a.json").at("a").size(), 2u);
  const std::string deep(50'000, '[');
  for (const std::string& bomb : {deep, "{\"a\":" + deep + std::string(50'000, ']') + "}"})
    EXPECT_EQ(error(bomb, {}), "a.json: its JSON is nested more than 16 deep, which no such file is");
  EXPECT_EQ(error("[[]]", {.depth = 2}), "no error");
  EXPECT_NE(error("[[[]]]", {.depth = 2}), "no error");
  EXPECT_EQ(error("[1, 2]", {.bytes = 5}), "a.json: has 6 bytes, and no such file has more than 5");
  EXPECT_EQ(error(R"({"a": {"b": 1, "b": 2}})", {}), "a.json: names 'b' twice");
  EXPECT_EQ(error(R"([{"b": 1}, {"b": 2}])", {}), "no error");
  EXPECT_EQ(error(std::string("{}\0x", 4), {}), "a.json: is not valid JSON: it holds a byte that is zero");
}

TEST(Json, WhatIsNoJsonIsToldWithoutNamesOfClasses) {
  for (const std::string text : {"{", "", "{\"a\": \"\xff\x1b[31m\"}", "[1e999]", "\"\\ud800\"", "{}x"}) {
    const std::string message = error_of([&] { parse_json(text, "a.json"); });
    EXPECT_TRUE(message.starts_with("a.json: is not valid JSON: ")) << message;
    EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
    EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
  }
}

TEST(Json, IsUtf8WithOrWithoutItsMark) {
  EXPECT_EQ(parse_json("\xef\xbb\xbf{\"a\": 1}", "a.json", {}).at("a"), 1);
  const std::string_view wide("\xff\xfe{\0}\0", 6);
  EXPECT_TRUE(error_of([&] {
                parse_json(wide, "a.json", {});
              }).starts_with("a.json: is text in UTF-16, and must be"));
}

TEST(Json, TakesTimeInProportionToItsMembers) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i)
    text +=
        fmt::format(R"({}"model.layers.{}.x": {{"shape": [1], "data_offsets": [0, 4]}})", i ? "," : "", i);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_json(text + "}", "a.json", {.bytes = 1 << 28}).size(), 100'000u);
  // In time that grows with the square it takes minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

[[gnu::noinline]] int call_without_end(int depth) {
  std::array<volatile char, 4096> room;
  room[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : call_without_end(depth + 1) + room[0];
}

/// A file that says that its dataset is in another, which may be anything.
TEST_F(Files, OfHdf5LeadNowhereElse) {
  const std::string path = at("index.h5");
  Hdf5File made = Hdf5File::create(path);
  made.write("ztrain/ids", {2}, std::vector<std::int64_t>{1, 2});
  made.close();
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Lcreate_external("other.h5", "/pieces", file, "ztrain/pieces", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  const Hdf5File index = Hdf5File::open_to_read(path);
  Shape shape;
  EXPECT_EQ(index.read("ztrain/ids", shape), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(error_of([&] { index.read("ztrain/pieces", shape); }),
            path + ": ztrain/pieces is a link into another file, 'other.h5'");
}

/// Some damaged files bring the library down; another thread, and what comes after, are none of its business.
TEST(Hdf5Guard, NamesTheFileThatTheLibraryDiesOf) {
  const auto dies_in = [](const std::string& path, int signal) {
    const hdf5::Guard outer("other.h5");
    const hdf5::Guard guard(path);
    std::raise(signal);
  };
  EXPECT_EXIT(dies_in("tokens.h5", SIGSEGV), testing::ExitedWithCode(1),
              "^ztrain: 'tokens.h5': .* is damaged");
  EXPECT_EXIT(dies_in("tokens.h5", SIGABRT), testing::ExitedWithCode(1), "is damaged");
  EXPECT_EXIT(dies_in("a\x1b[2J.h5", SIGBUS), testing::ExitedWithCode(1), "^ztrain: 'a[^\x1b]*h5': ");
  const auto goes_round = [] {
    const hdf5::Guard guard("tokens.h5", 1);
    const std::atomic<bool> over = false;
    while (!over) {
    }
  };
  EXPECT_EXIT(goes_round(), testing::ExitedWithCode(1), "'tokens.h5': .* is damaged");
  const auto after_it = [] {
    { const hdf5::Guard guard("tokens.h5"); }
    std::raise(SIGSEGV);
  };
  EXPECT_EXIT(after_it(), testing::KilledBySignal(SIGSEGV), "");
  const auto uses_up_the_stack = [] {
    const hdf5::Guard guard("tokens.h5");
    call_without_end(1);
  };
  EXPECT_EXIT(uses_up_the_stack(), testing::ExitedWithCode(1), "'tokens.h5': .* is damaged");
  const auto in_another_thread = [] {
    const hdf5::Guard guard("tokens.h5");
    std::jthread([] { std::raise(SIGSEGV); }).join();
  };
  EXPECT_EXIT(in_another_thread(), testing::KilledBySignal(SIGSEGV), "");
}

/// The guard of the other thread is the younger one.
TEST(Hdf5Guard, TellsItsOwnThreadThatTheTimeIsUp) {
  const auto goes_round_beside_another = [] {
    std::atomic<bool> guarded = false;
    std::jthread round([&] {
      const hdf5::Guard guard("tokens.h5", 1);
      guarded = true, guarded.notify_one();
      const std::atomic<bool> over = false;
      while (!over) {
      }
    });
    guarded.wait(false);
    const hdf5::Guard younger("other.h5");
    round.join();
  };
  EXPECT_EXIT(goes_round_beside_another(), testing::ExitedWithCode(1), "'tokens.h5': .* is damaged");
}

TEST(Reason, OfAnyExceptionIsASentence) {
  EXPECT_EQ(reason_of(Error("model.from: as it is")), "model.from: as it is");
  EXPECT_EQ(reason_of(std::bad_alloc()), "it takes more memory than there is");
  EXPECT_EQ(reason_of(std::length_error("vector::_M_default_append")), "it takes more memory than there is");
  const auto denied = std::make_error_code(std::errc::permission_denied);
  EXPECT_EQ(reason_of(fs::filesystem_error("status", "/a/b", denied)), "'/a/b': Permission denied");
  try {
    nlohmann::json::object().at("deck");
    FAIL();
  } catch (const std::exception& e) {
    EXPECT_EQ(reason_of(e), "key 'deck' not found");
  }
}

}  // namespace
}  // namespace ztrain::files_test
