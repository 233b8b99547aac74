// HDF5 token files that are damaged, unfinished, or lead into other files: HDF5 gives zeros for what is not
// there, and says nothing.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::hdf5_tokens_test {
namespace {

/// HDF5 gives fill values for what is not there, and says nothing.
TEST_F(Data, Hdf5TokensThatAreNotThereAreRefused) {
  const hsize_t count = 40, chunk = 16, begin = 0;
  const auto make = [&](const char* name, hid_t how, hsize_t some = 20) {
    const hid_t file = H5Fcreate(at(name).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t set = H5Dcreate2(file, "tokens", H5T_STD_U16LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    if (H5Pget_layout(how) == H5D_CHUNKED) {
      const Ids ids(static_cast<std::size_t>(some), 7);
      const hid_t part = H5Screate_simple(1, &some, nullptr);
      H5Sselect_hyperslab(space, H5S_SELECT_SET, &begin, nullptr, &some, nullptr);
      H5Dwrite(set, H5T_NATIVE_INT32, part, space, H5P_DEFAULT, ids.data());
      H5Sclose(part);
    }
    H5Dclose(set), H5Sclose(space), H5Fclose(file), H5Pclose(how);
    return open_error(at(name));
  };
  const hid_t chunked = H5Pcreate(H5P_DATASET_CREATE), linked = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(chunked, 1, &chunk);
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  H5Pset_virtual(linked, space, "gone.h5", "tokens", space);
  H5Sclose(space);
  EXPECT_NE(make("part.h5", chunked).find("part.h5' was not written to its end"), std::string::npos);
  const hid_t whole = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(whole, 1, &chunk), H5Pset_deflate(whole, 9);
  EXPECT_EQ(make("whole.h5", whole, count), "no error");
  EXPECT_NE(make("none.h5", H5Pcreate(H5P_DATASET_CREATE)).find("was not written to its end"),
            std::string::npos);
  EXPECT_NE(make("linked.h5", linked).find("is a virtual dataset"), std::string::npos);
  const hid_t apart = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(apart, at("short.raw").c_str(), 0, H5F_UNLIMITED);
  EXPECT_NE(make("apart.h5", apart).find("has its bytes in other files"), std::string::npos);
}

/// A lock that cannot be had stands for a file system that refuses all locks.
TEST_F(Data, Hdf5TokensAreReadWithoutALock) {
  const std::string path = write_hdf5("locked.h5", "tokens", count_up(0, 12));
  const int other = ::open(path.c_str(), O_RDWR);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  EXPECT_LT(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), 0);
  EXPECT_EQ(open_error(path), "no error");
  ::close(other);
}

TEST_F(Data, AGroupOfTheNameIsNoDataset) {
  const hid_t file = H5Fcreate(at("group.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(H5Gcreate2(file, "tokens", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)), H5Fclose(file);
  EXPECT_NE(open_error(at("group.h5")).find("is a group or a type, and no dataset"), std::string::npos)
      << open_error(at("group.h5"));
}

/// A mask that cannot be opened is not the same as none: all would be trained.
TEST_F(Data, Hdf5DatasetsThatCannotBeOpenedAreNotTakenForAbsent) {
  for (const char* name : {"loss_mask", "document_offsets"}) {
    const std::string path = write_hdf5("dangling.h5", "tokens", count_up(0, 12));
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Lcreate_soft("/gone", file, name, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    EXPECT_NE(open_error(path).find(std::string(name) + "\" of '" + path + "' cannot be opened as a dataset"),
              std::string::npos)
        << open_error(path);
  }
}

/// Contiguous, so that nothing in the file says what was there.
TEST_F(Data, AnHdf5FileThatBecomesShorterIsAnErrorThatNamesIt) {
  const std::string path = write_hdf5("a.h5", "tokens", count_up(1, 50001));
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path));
  const auto source = open_tokens({path}, "auto", "data.train");
  Ids read(1000);
  source->read(48000, 1000, read.data());
  EXPECT_EQ(read, count_up(48001, 49001));
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size) - 10000);
  EXPECT_EQ(error_of([&] { source->read(49000, 1000, read.data()); }),
            fmt::format("'{}' was changed while it was in use: it had {} bytes and ends at byte {} now", path,
                        size, size - 10000));
}

/// A file of three chunks of 16 tokens, whose B-tree has `second` and not 16 for where the second begins.
class ChunkIndex : public Data {
 protected:
  std::string write(std::uint64_t second) const {
    const std::string path = at("chunks.h5");
    const hsize_t count = 48, chunk = 16;
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &count, nullptr), how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(how, 1, &chunk);
    const hid_t set = H5Dcreate2(file, "tokens", H5T_STD_U16LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    const Ids ids = count_up(1, 49);
    H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids.data());
    H5Dclose(set), H5Pclose(how), H5Sclose(space), H5Fclose(file);
    std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(bytes), {});
    const std::size_t node =
        text.find("TREE\x01");  // header 24, then per chunk: bytes 4, filters 4, offsets 16, address 8
    EXPECT_NE(node, text.npos);
    bytes.seekp(static_cast<std::streamoff>(node) + 24 + 32 + 8);
    bytes.write(reinterpret_cast<const char*>(&second), sizeof second);
    return path;
  }
};

TEST_F(ChunkIndex, IsThatOfAllTokens) {
  EXPECT_EQ(read_all(*open_tokens({write(16)}, "auto", "data.train")), count_up(1, 49));
  EXPECT_NE(open_error(write(32)).find("chunks.h5' was not written to its end, or is damaged"),
            std::string::npos)
      << "as many chunks, one of them at the place of another";
}

/// A FIFO behind a link would be waited for until the watchdog ends the run.
TEST_F(Data, LinksIntoOtherFilesAreNotFollowed) {
  const std::string other = write_hdf5("other.h5", "tokens", count_up(0, 12));
  for (const char* name : {"tokens", "loss_mask", "document_offsets"}) {
    const std::string path =
        write_hdf5("linked.h5", std::string(name) == "tokens" ? "ids" : "tokens", count_up(0, 12));
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Lcreate_external(other.c_str(), "/tokens", file, name, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    EXPECT_NE(open_error(path).find(
                  fmt::format("\"{}\" of '{}' is a link into another file, '{}'", name, path, other)
                      .substr(0, 150)),
              std::string::npos)
        << open_error(path);
  }
  // Nor by a way through a link within the file.
  const std::string path = write_hdf5("through.h5", "ids", count_up(0, 12));
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Lcreate_external(other.c_str(), "/", file, "far", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/far/tokens", file, "tokens", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/ids", file, "document_offsets", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  EXPECT_NE(open_error(path).find("is a link into another file"), std::string::npos) << open_error(path);
}

}  // namespace
}  // namespace ztrain::data::hdf5_tokens_test
