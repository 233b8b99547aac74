#include "data/tokens/hdf5_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "files/file.hpp"
#include "files/hdf5_guard.hpp"
#include "files/input_file.hpp"

namespace ztrain::data {

using namespace hdf5;

namespace {

constexpr std::int64_t known_format = 1;
constexpr std::int64_t most_ids = std::int64_t{1} << 30;  ///< limit of model.vocab_size

/// Returns whether each chunk of a dataset is in the index, at its place. The index of a damaged file may
/// have as many, and one of them twice.
bool has_all_chunks(hid_t dataset, hid_t how, std::int64_t items) {
  hsize_t chunk = 0;
  H5Pget_chunk(how, 1, &chunk);
  for (hsize_t at = 0; at < static_cast<hsize_t>(items); at += chunk) {
    hsize_t bytes = 0;
    if (chunk == 0 || H5Dget_chunk_storage_size(dataset, &at, &bytes) < 0 || bytes == 0) return false;
  }
  return true;
}

/// Returns whether all data are there. For missing data HDF5 returns its fill value without an error.
bool is_whole(hid_t dataset) {
  const Handle how(H5Dget_create_plist(dataset), H5Pclose);
  if (H5Pget_layout(how) == H5D_CHUNKED) return has_all_chunks(dataset, how, integers_in(dataset));
  H5D_space_status_t status = H5D_SPACE_STATUS_NOT_ALLOCATED;
  H5Dget_space_status(dataset, &status);
  return status == H5D_SPACE_STATUS_ALLOCATED;
}

}  // namespace

/// Opens a dataset. Returns an empty handle if there is none. A dataset that exists and cannot be opened must
/// not count as missing.
Handle Hdf5Tokens::open_dataset(const Part& part, const char* name) const {
  Opened opened = hdf5::open_dataset(part.file, name);
  REQUIRE(opened.fault.empty(), "{}: \"{}\" of '{}' {}; make the file anew, with all of it inside", key_,
          name, part.path, opened.fault);
  return std::move(opened.dataset);
}

void Hdf5Tokens::require_whole(const Part& part, const Handle& dataset, const char* name) const {
  REQUIRE(is_whole(dataset),
          "{}: the dataset \"{}\" of '{}' was not written to its end, or is damaged: make the file anew",
          key_, name, part.path);
}

Hdf5Tokens::Hdf5Tokens(const std::vector<std::string>& files, const std::string& key) : key_(key) {
  const Quiet quiet;
  for (const auto& path : files) open(path);
  const auto with = std::find_if(parts_.begin(), parts_.end(), [](const Part& p) { return p.offsets > 0; });
  const auto without =
      std::find_if(parts_.begin(), parts_.end(), [](const Part& p) { return p.offsets == 0; });
  REQUIRE(with == parts_.end() || without == parts_.end(),
          "{}: '{}' says where its documents begin (document_offsets) and '{}' does not; do not mix them, or "
          "make them entries of their own with data.weights",
          key_, with->path, without->path);
  has_documents_ = with != parts_.end();
  for (const Part& part : parts_) has_mask_ = has_mask_ || part.mask;
  for (const Part& part : parts_)
    REQUIRE(part.preference == preference(), "{}: '{}' and '{}' have different attributes preference", key_,
            parts_.front().path, part.path);
  tokenizer();
}

Hdf5Tokens::~Hdf5Tokens() {
  const Quiet quiet;
  while (!parts_.empty()) {
    const Guard guard(parts_.back().path);
    parts_.pop_back();
  }
}

void Hdf5Tokens::open(const std::string& path) {
  require_readable(path, key_);
  const Guard guard(path, Guard::for_opening);
  Part part;  // closed under the guard if something is wrong with it
  part.path = path;
  part.begin = size_;
  part.file = Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access_without_locks()), H5Fclose);
  REQUIRE(part.file, "{}: '{}' cannot be opened as an HDF5 file", key_, path);
  part.state = state_on_disk(part.file);
  part.ids = open_dataset(part, "tokens");
  REQUIRE(part.ids, "{}: '{}' has no dataset \"tokens\"", key_, path);
  part.tokens = integers_in(part.ids);
  REQUIRE(part.tokens >= 0, "{}: the dataset \"tokens\" of '{}' is not a one-dimensional array of integers",
          key_, path);
  REQUIRE(part.tokens > 0, "{}: the dataset \"tokens\" of '{}' is empty", key_, path);
  require_whole(part, part.ids, "tokens");
  part.ids_at = stretch_of(part.file, part.ids);
  open_documents(part);
  read_attributes(part);
  size_ += part.tokens;
  parts_.push_back(std::move(part));
}

void Hdf5Tokens::open_documents(Part& part) const {
  part.documents = open_dataset(part, "document_offsets");
  if (part.documents) {
    part.offsets = integers_in(part.documents);
    REQUIRE(
        part.offsets >= 2,
        "{}: the dataset \"document_offsets\" of '{}' is not a one-dimensional array of two integers or more",
        key_, part.path);
    REQUIRE(part.offsets - 1 <= part.tokens,
            "{}: the dataset \"document_offsets\" of '{}' has {} items, and its {} tokens are not so many "
            "documents",
            key_, part.path, part.offsets, part.tokens);
    require_whole(part, part.documents, "document_offsets");
  }
  part.mask = open_dataset(part, "loss_mask");
  if (!part.mask) return;
  const std::int64_t items = integers_in(part.mask);
  REQUIRE(items == part.tokens,
          "{}: the dataset \"loss_mask\" of '{}' must be one integer for each of its {} tokens, but is {}",
          key_, part.path, part.tokens,
          items < 0 ? "no one-dimensional array of integers (of NumPy's booleans: mask.astype(\"uint8\"))"
                    : fmt::format("{} integers", items));
  require_whole(part, part.mask, "loss_mask");
  part.mask_at = stretch_of(part.file, part.mask);
}

namespace {

/// Reads eos_id, which ends texts, and turn_end_ids, at which the trained turns of chats end.
void read_ends(const Root& root, Tokenizer& t) {
  const std::int64_t ids = t.vocab_size > 0 ? t.vocab_size : most_ids;
  const std::string limit = t.vocab_size > 0 ? fmt::format("its vocab_size ({})", ids) : fmt::to_string(ids);
  const std::int64_t end = integer_attribute(root, "eos_id").value_or(-1);
  REQUIRE(end >= -1 && end < ids,
          "{}: the attribute eos_id of '{}' is {}, and neither -1 (none) nor an id below {}", root.key,
          root.path, end, limit);
  std::set<std::int32_t> ends;
  if (end >= 0) ends.insert(static_cast<std::int32_t>(end));
  for (const std::int64_t turn_end : integer_list_attribute(root, "turn_end_ids")) {
    REQUIRE(turn_end >= 0 && turn_end < ids,
            "{}: the attribute turn_end_ids of '{}' holds {}, which is no id below {}", root.key, root.path,
            turn_end, limit);
    ends.insert(static_cast<std::int32_t>(turn_end));
  }
  t.ends.assign(ends.begin(), ends.end());
}

}  // namespace

void Hdf5Tokens::read_attributes(Part& part) const {
  const Root root{part.file, key_, part.path};
  const std::int64_t format = integer_attribute(root, "ztrain_format").value_or(0);
  REQUIRE(format <= known_format, "{}: '{}' has format {}; this version reads up to {}", key_, part.path,
          format, known_format);
  Tokenizer& t = part.tokenizer;
  t.name = string_attribute(root, "tokenizer");
  t.hash = string_attribute(root, "tokenizer_hash");
  t.chat_template_hash = string_attribute(root, "chat_template_hash");
  t.vocab_size = integer_attribute(root, "vocab_size").value_or(0);
  REQUIRE(t.vocab_size >= 0 && t.vocab_size <= most_ids,
          "{}: the attribute vocab_size of '{}' is {}, and not 0 to {}", key_, part.path, t.vocab_size,
          most_ids);
  t.folder = string_attribute(root, "tokenizer_folder");
  part.preference = string_attribute(root, "preference");
  const std::string& kind = part.preference;
  REQUIRE(kind.empty() || kind == "pairs" || kind == "labels",
          "{}: the attribute preference of '{}' is \"{}\"; legal: pairs, labels", key_, part.path, kind);
  REQUIRE(kind.empty() || part.offsets % 2 == 1,
          "{}: '{}' holds {} of answers, and its number of documents ({}) is not even", key_, part.path, kind,
          part.offsets - 1);
  read_ends(root, t);
  t.file = t.chat_template_file = t.vocab_file = part.path;
}

std::vector<Hdf5Tokens::Slice> Hdf5Tokens::slices(std::int64_t begin, std::int64_t count) const {
  require_inside(begin, count);
  std::vector<Slice> found;
  for (std::size_t p = count > 0 ? part_of(parts_, begin) : 0; count > 0; ++p) {
    const std::int64_t inside = begin - parts_[p].begin, here = std::min(count, parts_[p].tokens - inside);
    found.push_back({parts_[p], inside, here});
    begin += here, count -= here;
  }
  return found;
}

void Hdf5Tokens::read(const Slice& slice, const Column& column, void* out) {
  const Part& part = slice.part;
  const Guard guard(part.path);
  const bool ok = read_items(column.dataset, slice.begin, slice.count, column.type, out);
  // Checks the file after reading: beyond the end of a file that has become shorter, HDF5 returns zeros.
  require_unchanged(part.path, part.state, state_on_disk(part.file));
  if (ok) return;
  const std::string filter = missing_filter(column.dataset);
  fail("{} [{}, {}) of '{}' cannot be read{}", column.name, slice.begin, slice.begin + slice.count, part.path,
       filter.empty()
           ? ""
           : fmt::format(": they are compressed by the filter {}, which this HDF5 library does not "
                         "have; write them with gzip, or without",
                         filter));
}

void Hdf5Tokens::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  const Quiet quiet;
  for (const Slice& s : slices(begin, count)) {
    read(s, {s.part.ids, "tokens", H5T_NATIVE_INT32}, out);
    out += s.count;
  }
}

void Hdf5Tokens::read_ahead(std::int64_t begin, std::int64_t count) const {
  for (const Slice& s : slices(begin, count)) {
    s.part.ids_at.read_ahead(s.begin, s.count);
    s.part.mask_at.read_ahead(s.begin, s.count);
  }
}

void Hdf5Tokens::read_mask(std::int64_t begin, std::int64_t count, std::uint8_t* out) const {
  const Quiet quiet;
  for (const Slice& s : slices(begin, count)) {
    // HDF5 clamps numbers that the type cannot hold. The type is signed, so that neither -1 nor 256 becomes 0
    // or 1.
    if (s.part.mask)
      read(s, {s.part.mask, "loss_mask", H5T_NATIVE_SCHAR}, out);
    else
      std::fill_n(out, s.count, std::uint8_t{1});
    out += s.count;
  }
}

std::vector<std::int64_t> Hdf5Tokens::document_offsets() const {
  if (!has_documents_) return TokenSource::document_offsets();
  const Quiet quiet;
  std::vector<std::int64_t> all, own;
  for (const Part& part : parts_) {
    own.resize(static_cast<std::size_t>(part.offsets));
    read({part, 0, part.offsets}, {part.documents, "document_offsets", H5T_NATIVE_INT64}, own.data());
    REQUIRE(own.front() == 0 && own.back() == part.tokens,
            "{}: document_offsets of '{}' go from {} to {}; they must go from 0 to its {} tokens", key_,
            part.path, own.front(), own.back(), part.tokens);
    const auto down = std::adjacent_find(own.begin(), own.end(), std::greater_equal<>());
    REQUIRE(down == own.end(), "{}: document_offsets of '{}' do not increase: [{}] is {} and [{}] is {}",
            key_, part.path, down - own.begin(), *down, down - own.begin() + 1, *(down + 1));
    for (auto& offset : own) offset += part.begin;
    if (!all.empty()) all.pop_back();  // this file begins where the last one ends
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<std::uint8_t> Hdf5Tokens::labels() const {
  const Quiet quiet;
  std::vector<std::uint8_t> all, own;
  for (const Part& part : parts_) {
    if (part.preference != "labels") continue;
    const Handle dataset = open_dataset(part, "labels");
    const std::int64_t wanted = (part.offsets - 1) / 2, items = dataset ? integers_in(dataset) : -1;
    REQUIRE(
        items == wanted,
        "{}: the dataset \"labels\" of '{}' must be one integer for each of its {} answers with labels, but "
        "is {}",
        key_, part.path, wanted,
        items < 0 ? "not there, or no list of integers" : fmt::format("{} integers", items));
    require_whole(part, dataset, "labels");
    own.resize(static_cast<std::size_t>(items));
    read({part, 0, items}, {dataset, "labels", H5T_NATIVE_UCHAR}, own.data());
    const auto odd = std::ranges::find_if(own, [](std::uint8_t label) { return label > 1; });
    REQUIRE(odd == own.end(), "{}: labels[{}] of '{}' is neither 0 nor 1", key_, odd - own.begin(),
            part.path);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::uint64_t Hdf5Tokens::identity() const {
  constexpr std::int64_t samples = 16, length = 1024;
  std::uint64_t hash = 0;
  std::vector<std::int32_t> sample(static_cast<std::size_t>(length));
  for (const auto& part : parts_) {
    std::uint64_t content = 0;
    const std::int64_t count = std::min(length, part.tokens);
    for (std::int64_t i = 0; i < samples; ++i) {
      read(part.begin + (part.tokens - count) / (samples - 1) * i, count, sample.data());
      content = hash_bytes(sample.data(), static_cast<std::size_t>(count) * sizeof(std::int32_t), content);
    }
    hash = identity_of(hash, part.path, part.tokens, content);
  }
  return hash;
}

std::int64_t Hdf5Tokens::known_vocab() const {
  for (const Part& part : parts_)
    if (part.tokenizer.vocab_size == 0) return 0;
  return tokenizer().vocab_size;
}

NarrowIds Hdf5Tokens::narrow_ids() const {
  const Quiet quiet;
  NarrowIds narrow;
  for (const Part& part : parts_) {
    const Guard guard(part.path);
    const Handle type(H5Dget_type(part.ids), H5Tclose);
    const std::size_t bits = 8 * H5Tget_size(type) - (H5Tget_sign(type) == H5T_SGN_NONE ? 0 : 1);
    if (bits > 16) continue;
    const std::int64_t limit = std::int64_t{1} << bits;
    if (narrow.limit == 0 || limit < narrow.limit) narrow = {part.path, limit};
  }
  return narrow;
}

Place Hdf5Tokens::locate(std::int64_t position) const {
  const Part& part = parts_[part_of(parts_, position)];
  return {part.path, position - part.begin};
}

std::string Hdf5Tokens::id_text(std::int64_t position) const {
  const Quiet quiet;
  const Slice s = slices(position, 1).front();
  const Guard guard(s.part.path);
  const Handle type(H5Dget_type(s.part.ids), H5Tclose);
  if (H5Tget_sign(type) == H5T_SGN_NONE) {
    std::uint64_t id = 0;
    read(s, {s.part.ids, "tokens", H5T_NATIVE_UINT64}, &id);
    return fmt::to_string(id);
  }
  std::int64_t id = 0;
  read(s, {s.part.ids, "tokens", H5T_NATIVE_INT64}, &id);
  return fmt::to_string(id);
}

Tokenizer Hdf5Tokens::tokenizer() const {
  Tokenizer all;
  for (const Part& part : parts_) all = joined(all, part.tokenizer, key_);
  return all;
}

}  // namespace ztrain::data
