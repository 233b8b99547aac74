// Headers of safetensors files, sound and hostile.
#include "files/safetensors.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/format/convert.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::checkpoint::safetensors_test {
namespace {

using test::error_of;

std::string header_error(const std::string& header, std::int64_t data_bytes) {
  return error_of([&] { parse_safetensors(header, 100, data_bytes, "a.safetensors"); });
}

/// A header with one tensor "w" of these members.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"w": {{"dtype": {}, "shape": {}, "data_offsets": {}}}}})", dtype, shape, offsets);
}

TEST(Safetensors, TensorsComeInTheOrderOfTheirBytes) {
  const auto tensors = parse_safetensors(
      R"({"__metadata__": {"format": "pt"},
          "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [8, 20]},
          "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
          "empty": {"dtype": "F8_E4M3", "shape": [0, 5], "data_offsets": [20, 20]},
          "scalar": {"dtype": "F64", "shape": [], "data_offsets": [20, 28]}}   )",
      100, 28, "a.safetensors");
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "b");
  EXPECT_EQ(tensors[0].begin, 100);
  EXPECT_EQ(tensors[1].name, "a");
  EXPECT_EQ(tensors[1].begin, 108);
  EXPECT_EQ(tensors[1].bytes, 12);
  EXPECT_EQ(tensors[1].shape, (Shape{2, 3}));
  EXPECT_EQ(tensors[1].dtype, DType::bf16);
  EXPECT_EQ(tensors[2].name, "empty");
  EXPECT_FALSE(tensors[2].dtype);
  EXPECT_EQ(tensors[3].dtype, DType::f64);
}

TEST(Safetensors, HostileHeadersAreRefused) {
  struct Row {
    std::string header;
    std::int64_t data_bytes;
    const char* expected;
  };
  const std::string w = R"("dtype": "F32", "shape": [2], "data_offsets": )";
  const Row rows[] = {
      {"", 0, "not a JSON object"},
      {"[1]", 0, "not a JSON object"},
      {"  {}", 0, "not a JSON object"},
      {"{", 0, "not valid JSON"},
      {"{}x", 0, "not valid JSON"},
      {"{\"\xff\": 1}", 0, "not valid JSON"},
      {"{\"a\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}", 0,
       "nested more than 3 deep"},
      {"{\"w\": {" + w + "[0, 8]}, \"w\": {" + w + "[8, 16]}}", 16, "'w' twice"},
      {R"({"w": 3})", 0, "no dtype"},
      {R"({"w": {"shape": [2], "data_offsets": [0, 8]}})", 8, "no dtype"},
      {one("7", "[2]", "[0, 8]"), 8, "no dtype"},
      {one("\"F31\"", "[2]", "[0, 8]"), 8, "unknown dtype 'F31'"},
      {one("\"F32\"", "2", "[0, 8]"), 8, "no list shape"},
      {one("\"F32\"", "[-2]", "[0, 8]"), 8, "shape holds -2"},
      {one("\"F32\"", "[2.0]", "[0, 8]"), 8, "shape holds 2.0"},
      {one("\"F32\"", "[1e99]", "[0, 8]"), 8, "shape holds 1e+99"},
      {one("\"F32\"", "[18446744073709551615]", "[0, 8]"), 8, "no size"},
      {one("\"F32\"", "[4294967296, 4294967296]", "[0, 8]"), 8, "too large"},
      {one("\"F32\"", "[288230376151711744, 16]", "[0, 0]"), 0, "too large"},
      {one("\"F64\"", "[288230376151711744]", "[0, 8]"), 8, "does not take 8 bytes"},
      {one("\"F32\"", "[2]", "[0]"), 8, "no range"},
      {one("\"F32\"", "[2]", "[8, 0]"), 8, "no range"},
      {one("\"F32\"", "[2]", "[0, 8, 9]"), 8, "no range"},
      {one("\"F32\"", "[3]", "[0, 8]"), 8, "does not take 8 bytes"},
      {one("\"F32\"", "[2]", "[0, 8]"), 7, "truncated or damaged"},
      {one("\"F32\"", "[2]", "[0, 8]"), 9, "9 bytes of data and its tensors take 8"},
      {one("\"F32\"", "[2]", "[4, 12]"), 12, "bytes 0 to 4"},
      {"{\"v\": {" + w + "[0, 8]}, \"w\": {" + w + "[4, 12]}}", 12, "overlap"},
      {"{\"v\": {" + w + "[0, 8]}, \"w\": {" + w + "[12, 20]}}", 20, "bytes 8 to 12"},
      {R"({"__metadata__": {"a": 1}})", 0, "not of strings"},
      {R"({"__metadata__": []})", 0, "no object"},
  };
  for (const Row& row : rows) {
    const std::string message = header_error(row.header, row.data_bytes);
    EXPECT_EQ(message.rfind("a.safetensors: ", 0), 0u) << message;
    EXPECT_NE(message.find(row.expected), std::string::npos)
        << row.header.substr(0, 100) << "\n  " << message << "\n  expected: " << row.expected;
    EXPECT_LT(message.size(), 500u) << message;
  }
}

/// A file of 8 bytes of header length and what follows.
class Files : public ::testing::Test {
 protected:
  Files() { std::filesystem::create_directories(folder_); }
  ~Files() override { std::filesystem::remove_all(folder_); }
  std::string error(std::uint64_t length, const std::string& rest) const {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return error_of_file(bytes + rest);
  }
  std::string error_of_file(const std::string& bytes) const {
    const auto path = folder_ / "x.safetensors";
    std::ofstream(path, std::ios::binary) << bytes;
    return error_of([&] { read_safetensors(PosixFile::open_to_read(path)); });
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("ztrain-safetensors-{}", ::getpid());
};

TEST_F(Files, LengthsAreComparedWithTheFile) {
  const std::string header = one("\"F32\"", "[2]", "[0, 8]");
  EXPECT_EQ(error(header.size(), header + "12345678"), "no error");
  EXPECT_NE(error(header.size(), header + "1234567").find("truncated"), std::string::npos);
  EXPECT_NE(error(header.size() + 1, header).find("is truncated"), std::string::npos);
  EXPECT_NE(error(~std::uint64_t{0}, header).find("above the format's"), std::string::npos);
  EXPECT_NE(error(100'000'001, header).find("above the format's"), std::string::npos);
  EXPECT_NE(error(99'999'999, header).find("is truncated"), std::string::npos);
  EXPECT_NE(error_of_file("").find("0 bytes"), std::string::npos);
  EXPECT_NE(error_of_file("version https://git-lfs.github.com/spec/v1").find("`git lfs pull`"),
            std::string::npos);
}

TEST(Safetensors, WrittenHeadersAreRead) {
  const SafeTensor tensors[] = {{"b", "BF16", DType::bf16, {3, 5}, 0, 30},
                                {"a", "F32", DType::f32, {2}, 0, 8}};
  const std::string start = safetensors_header(tensors);
  EXPECT_EQ(start.size() % 8, 0u);
  std::uint64_t length = 0;
  std::memcpy(&length, start.data(), 8);
  EXPECT_EQ(length + 8, start.size());
  const auto read = parse_safetensors(start.substr(8), std::ssize(start), 38, "a.safetensors");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].name, "b");
  EXPECT_EQ(read[1].begin, std::ssize(start) + 30);
  EXPECT_EQ(safetensors_dtype(DType::f16), "F16");
}

TEST(Safetensors, AnIndexStaysInItsFolder) {
  const auto parse = [](const std::string& text) { return parse_safetensors_index(text, "i.json"); };
  const auto file_of = parse(R"({"metadata": {}, "weight_map": {"w": "model-1.safetensors"}})");
  EXPECT_EQ(file_of.at("w"), "model-1.safetensors");
  EXPECT_EQ(parse(safetensors_index(file_of, 4)), file_of);
  for (const char* file : {"../m.safetensors", "/m.safetensors", "pytorch_model.bin", ""})
    EXPECT_NE(error_of([&] {
                parse(fmt::format(R"({{"weight_map": {{"w": "{}"}}}})", file));
              }).find("no safetensors file beside it"),
              std::string::npos);
  EXPECT_NE(error_of([&] { parse("{}"); }).find("no weight_map"), std::string::npos);
  EXPECT_NE(error_of([&] { parse(R"({"weight_map": {"w": 1}})"); }).find("no file name"), std::string::npos);
  EXPECT_NE(error_of([&] { parse("[]"); }).find("not a JSON object"), std::string::npos);
}

template <class T>
void expect_finite(bool expected, std::vector<T> values) {
  EXPECT_EQ(all_finite(reinterpret_cast<const std::byte*>(values.data()), dtype_of<T>(), std::ssize(values)),
            expected);
}

TEST(Convert, NanAndInfinityAreSeen) {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  expect_finite<float>(true, {0, -1, std::numeric_limits<float>::max(), 1e-45f});
  expect_finite<float>(false, {0, -1, -infinity});
  expect_finite<float>(false, {nan, 0, 0});
  expect_finite<bf16>(true, {bf16(3e38f)});
  expect_finite<bf16>(false, {bf16(1), bf16(nan)});
  expect_finite<f16>(true, {f16(65504)});
  expect_finite<f16>(false, {f16(65520)});
  expect_finite<double>(true, {1e308});
  expect_finite<double>(false, {HUGE_VAL});
}

}  // namespace
}  // namespace ztrain::checkpoint::safetensors_test
