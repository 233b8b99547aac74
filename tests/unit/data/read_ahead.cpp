// What the file system is asked for ahead of reading, in bytes of files.
#include <fcntl.h>

#include <iterator>

#include "tests/unit/data/data_files.hpp"

namespace {

struct Asked {
  off_t begin, end;
  int advice;
};
std::vector<Asked> asked;

}  // namespace

/// In place of the C library's in this executable.
extern "C" int posix_fadvise(int, off_t begin, off_t bytes, int advice) noexcept {
  asked.push_back({begin, begin + bytes, advice});
  return 0;
}

namespace ztrain::data::read_ahead_test {
namespace {

class ReadAhead : public Data {
 protected:
  /// Where the file has these ids, as 16 bits each, one behind the other.
  static off_t place_of(const std::string& path, const Ids& ids) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    const std::vector<std::uint16_t> sought(ids.begin(), ids.end());
    return static_cast<off_t>(
        bytes.find(std::string(reinterpret_cast<const char*>(sought.data()), 2 * sought.size())));
  }
  /// chunk: tokens; 0: in one piece.
  std::string write_h5(const char* name, hsize_t chunk, const Ids& ids) const {
    const hsize_t count = ids.size();
    const hid_t file = H5Fcreate(at(name).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &count, nullptr), how = H5Pcreate(H5P_DATASET_CREATE);
    if (chunk > 0) H5Pset_chunk(how, 1, &chunk);
    const hid_t set = H5Dcreate2(file, "tokens", H5T_STD_U16LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids.data());
    H5Dclose(set), H5Pclose(how), H5Sclose(space), H5Fclose(file);
    return at(name);
  }
};

TEST_F(ReadAhead, OfFilesIsTheBytesOfTheirTokens) {
  const auto source =
      open_tokens({write_ids<std::uint16_t>("a.bin", count_up(1, 101))}, "auto", "data.train");
  asked.clear();
  source->read_ahead(10, 20);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].begin, 20);
  EXPECT_EQ(asked[0].end, 60);
  EXPECT_EQ(asked[0].advice, POSIX_FADV_WILLNEED);
}

TEST_F(ReadAhead, OfHdf5IsAllThatIsRead) {
  const std::string path = write_h5("a.h5", 0, count_up(1, 49));
  const auto source = open_tokens({path}, "auto", "data.train");
  asked.clear();
  source->read_ahead(10, 8);
  const off_t begin = place_of(path, count_up(11, 19));
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].begin, begin);
  EXPECT_EQ(asked[0].end, begin + 16);
  EXPECT_EQ(asked[0].advice, POSIX_FADV_WILLNEED);
}

/// Where chunks lie takes HDF5 longer to tell than a read takes.
TEST_F(ReadAhead, OfHdf5InChunksIsNothing) {
  const auto source = open_tokens({write_h5("a.h5", 16, count_up(1, 49))}, "auto", "data.train");
  asked.clear();
  source->read_ahead(10, 8);
  EXPECT_TRUE(asked.empty());
}

TEST_F(ReadAhead, OfHdf5IsOfTheMaskToo) {
  write_hdf5("a.h5", "tokens", count_up(1, 9));
  add_dataset("a.h5", "loss_mask", H5T_NATIVE_UINT8, std::vector<std::uint8_t>(8, 1));
  const auto source = open_tokens({at("a.h5")}, "auto", "data.train");
  asked.clear();
  source->read_ahead(2, 3);
  EXPECT_EQ(asked.size(), 2u);
}

}  // namespace
}  // namespace ztrain::data::read_ahead_test
