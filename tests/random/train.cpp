#include "tests/random/train.hpp"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "config/text/load.hpp"
#include "telemetry/watchdog.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/mpi_main.hpp"
#include "train/trainer.hpp"

namespace ztrain::random_decks {
namespace {

std::string text_of(std::size_t bytes, std::uint32_t state) {
  std::string text;
  for (; text.size() < bytes; state = state * 1103515245 + 12345)
    text += (state >> 16) % 7 == 0 ? ' ' : static_cast<char>('a' + (state >> 20) % 9);
  return text;
}

template <class T>
void add(hid_t file, const char* name, hid_t type, const std::vector<T>& values) {
  const hsize_t count = values.size();
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(set), H5Sclose(space);
}

/// Documents of 2 to 60 tokens, about half of whose tokens are trained.
void write_masked(const std::string& path, int documents, std::uint32_t state) {
  std::vector<std::uint16_t> ids;
  std::vector<std::int64_t> offsets{0};
  std::vector<std::uint8_t> mask;
  const auto next = [&](std::uint32_t below) {
    state = state * 1103515245 + 12345;
    return (state >> 16) % below;
  };
  for (int document = 0; document < documents; ++document) {
    for (std::uint32_t left = 2 + next(59); left > 0; --left) {
      ids.push_back(static_cast<std::uint16_t>(next(250)));
      mask.push_back(static_cast<std::uint8_t>(next(2)));
    }
    mask.back() = 1;
    offsets.push_back(static_cast<std::int64_t>(ids.size()));
  }
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  add(file, "tokens", H5T_NATIVE_UINT16, ids);
  add(file, "document_offsets", H5T_NATIVE_INT64, offsets);
  add(file, "loss_mask", H5T_NATIVE_UINT8, mask);
  H5Fclose(file);
}

/// What rank 0 sent in each step is what its Program says.
void expect_planned_traffic(const job::Worker& worker, const std::string& output) {
  std::ifstream file(output + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json record = parse_json(line, "metrics");
    if (!record.contains("bytes_sent")) continue;
    test::BytesByAxes sent;
    for (const auto& [axes, bytes] : record.at("bytes_sent").items())
      if (bytes.get<std::int64_t>() > 0) sent[axes] = bytes.get<std::int64_t>();
    SCOPED_TRACE(testing::Message() << "step " << record.at("step"));
    test::expect_as_planned(worker, std::move(sent));
  }
}

}  // namespace

void write_data(const std::string& folder) {
  for (const char* name : {"/documents", "/memory", "/drive"})
    std::filesystem::create_directories(folder + name);
  std::ofstream(folder + "/text.txt") << text_of(6000, 1);
  std::ofstream(folder + "/some.txt") << text_of(2500, 2);
  std::ofstream(folder + "/held_out.txt") << text_of(300, 3);
  std::ofstream(folder + "/layout.txt") << "100\n010\n101\n";
  for (std::uint32_t d = 0; d < 60; ++d)
    std::ofstream(folder + "/documents/" + std::to_string(d) + ".txt") << text_of(5 + d * 37 % 80, d);
  write_masked(folder + "/masked.h5", 120, 5);
  write_masked(folder + "/masked_held_out.h5", 9, 6);
}

std::string train(const Words& words, std::int64_t steps, const std::string& data,
                  const std::string& output) {
  Words all = words;
  all.push_back("--run.output=" + output);
  all.push_back("--run.steps=" + std::to_string(steps));
  if (test::session().rank() == 0) std::filesystem::remove_all(output);
  test::session().barrier();
  try {
    telemetry::Console silent;
    telemetry::Watchdog watchdog(0);
    train::Trainer trainer(test::session(), silent, watchdog,
                           config::parse_deck(base_deck(data), data + "/deck.toml", all), "0");
    trainer.run();
    test::expect_planned_tiers(trainer.worker());
    if (std::ranges::find(words, "--debug.poison=true") != words.end())
      test::expect_planned_memory(trainer.worker());
    if (test::session().rank() == 0) expect_planned_traffic(trainer.worker(), output);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace ztrain::random_decks
