#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/plain_text.hpp"
#include "checkpoint/format/damaged.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "files/file.hpp"
#include "files/hdf5_file.hpp"

namespace ztrain::checkpoint {
namespace {

constexpr std::size_t most_slices = 1 << 30;
constexpr std::int64_t largest_tables = 1 << 30;  ///< bytes; about a hundred for each parameter

constexpr DType all_dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                DType::i64, DType::i32, DType::u8};

std::string tables_of(const Index& index) {
  nlohmann::json states = nlohmann::json::array(), granules = states, parameters = states, files = states,
                 dtypes;
  for (const auto& s : index.catalog.states) {
    states.push_back(s.name);
    granules.push_back(s.granule);
  }
  for (const auto& p : index.catalog.parameters) {
    parameters.push_back({{"name", p.name}, {"shape", p.shape}});
    if (p.frozen) parameters.back()["frozen"] = true;
    if (p.elsewhere) parameters.back()["elsewhere"] = true;
    if (p.by_matrix) parameters.back()["by_matrix"] = true;
    if (p.copies > 0) parameters.back()["copies"] = p.copies;
    if (!p.begins.empty()) parameters.back()["begins"] = p.begins;
  }
  for (const auto& f : index.files)
    files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"frame", f.frame}});
  for (DType dtype : all_dtypes) dtypes.push_back(std::string(name_of(dtype)));
  return json_text(nlohmann::json{{"states", states},
                                  {"granules", granules},
                                  {"parameters", parameters},
                                  {"dtypes", dtypes},
                                  {"files", files},
                                  {"block_bytes", checksum_block}});
}

/// Throws Error if a name would be written as another, or would command a terminal. Tools print and export
/// these names.
const std::string& require_plain(const std::string& name) {
  REQUIRE(is_plain_text(name), "its tables are damaged: '{}' is no name (control characters are written out)",
          printable(name, most_quoted));
  return name;
}

/// Fills the tables and returns the meaning of the dtype column.
std::vector<DType> parse_tables(const std::string& text, Index& index) {
  const auto tables = parse_json(text, "its tables", {.bytes = largest_tables});
  REQUIRE(tables.at("block_bytes").get<std::int64_t>() == checksum_block,
          "its checksum blocks are not of {} bytes", checksum_block);
  const auto states = tables.at("states").get<std::vector<std::string>>();
  const auto granules = tables.at("granules").get<std::vector<std::int64_t>>();
  REQUIRE(granules.size() == states.size(), "it has {} granules for {} states", granules.size(),
          states.size());
  for (std::size_t s = 0; s < granules.size(); ++s) {
    require_granule(require_plain(states[s]), granules[s]);
    index.catalog.states.push_back({states[s], granules[s]});
  }
  for (const auto& p : tables.at("parameters"))
    index.catalog.parameters.push_back(
        {require_plain(p.at("name").get<std::string>()), p.at("shape").get<Shape>(), p.value("frozen", false),
         p.value("begins", std::vector<std::int64_t>()), p.value("elsewhere", false),
         p.value("by_matrix", false), p.value("copies", std::int64_t{0})});
  for (const auto& f : tables.at("files")) {
    index.files.push_back({f.at("name").get<std::string>(), f.at("bytes").get<std::int64_t>(),
                           f.value("frame", std::string())});
    const std::string& name = require_plain(index.files.back().name);
    REQUIRE(!name.empty() && name != "." && name != ".." &&
                name.find_first_of(std::string("/\0", 2)) == name.npos,
            "its table of files is damaged: '{}' is no name of a file beside it", name);
  }
  std::vector<DType> dtypes;
  for (const auto& name : tables.at("dtypes")) dtypes.push_back(dtype_from(name.get<std::string>()));
  return dtypes;
}

const StateEntry& state_of(const Index& index, const PieceRow& piece) {
  return index.catalog.states[static_cast<std::size_t>(piece.state)];
}

const ParameterEntry& parameter_of(const Index& index, const PieceRow& piece) {
  return index.catalog.parameters[static_cast<std::size_t>(piece.parameter)];
}

StoredForm form_of(const Index& index, const PieceRow& piece) {
  const ParameterEntry& parameter = parameter_of(index, piece);
  return stored_form(parameter, state_of(index, piece).granule, slices_of(parameter, piece));
}

auto dataset_key(const PieceRow& piece) {
  return std::tuple(piece.file, piece.state, piece.unit, piece.part);
}

using Extents = std::map<decltype(dataset_key(PieceRow{})), std::int64_t>;

/// Returns the items of every dataset of every shard file.
Extents dataset_extents(const std::vector<PieceRow>& pieces) {
  Extents extents;
  for (const PieceRow& p : pieces) {
    auto& extent = extents[dataset_key(p)];
    extent = std::max(extent, p.dataset_begin + p.count);
  }
  return extents;
}

bool continues(const PieceRow& last, const PieceRow& next) {
  return last.tensor_index == next.tensor_index && dataset_key(last) == dataset_key(next) &&
         last.slice_begin + last.count == next.slice_begin &&
         last.dataset_begin + last.count == next.dataset_begin;
}

/// Returns one mapping per run that is contiguous in the slice and in its dataset: usually one per shard
/// file.
std::vector<Mapping> mappings_of(const Index& index, std::size_t begin, std::size_t end,
                                 const Extents& extents) {
  std::vector<Mapping> mappings;
  for (std::size_t first = begin; first < end;) {
    std::size_t next = first + 1;
    while (next < end && continues(index.pieces[next - 1], index.pieces[next])) ++next;
    const PieceRow& p = index.pieces[first];
    const PieceRow& last = index.pieces[next - 1];
    const std::int64_t stop = last.slice_begin + last.count;
    const StoredForm form = form_of(index, p);
    mappings.push_back(
        {index.files[static_cast<std::size_t>(p.file)].name, dataset_name(state_of(index, p).name, p),
         extents.at(dataset_key(p)), p.dataset_begin, stop - p.slice_begin,
         boxes_of_slice(form.shape, form.slice, static_cast<int>(p.tensor_index), p.slice_begin, stop)});
    first = next;
  }
  return mappings;
}

/// Calls visit(begin, end) for each (state, parameter) of the sorted pieces.
template <class Visit>
void for_each_tensor(const std::vector<PieceRow>& pieces, Visit visit) {
  for (std::size_t begin = 0; begin < pieces.size();) {
    std::size_t end = begin + 1;
    while (end < pieces.size() && pieces[end].state == pieces[begin].state &&
           pieces[end].parameter == pieces[begin].parameter)
      ++end;
    visit(begin, end);
    begin = end;
  }
}

void require_tensor_complete(const Index& index, std::size_t begin, std::size_t end) {
  const PieceRow& first = index.pieces[begin];
  const auto& parameter = parameter_of(index, first);
  const auto& state = state_of(index, first).name;
  const StoredForm form = form_of(index, first);
  std::int64_t covered = 0;  // items over all slices, one after the other
  for (std::size_t i = begin; i < end; ++i) {
    const PieceRow& p = index.pieces[i];
    REQUIRE(p.dtype == first.dtype, "{} of {} is {} on one rank and {} on another", state, parameter.name,
            name_of(first.type()), name_of(p.type()));
    REQUIRE(p.tensor_dim == first.tensor_dim && p.tensor_parts == first.tensor_parts,
            "ranks disagree on how {} is cut over the tensor axis", parameter.name);
    const std::int64_t at = form.items_before(static_cast<int>(p.tensor_index)) + p.slice_begin;
    REQUIRE(at >= covered, "{} of {}: {} items from {} on have more than one owner", state, parameter.name,
            covered - at, at);
    REQUIRE(at == covered, "{} of {}: {} items from {} on have no owner", state, parameter.name, at - covered,
            covered);
    covered += p.count;
  }
  const std::int64_t all = form.items_before(form.slice.parts);
  REQUIRE(covered == all, "{} of {}: {} of {} items have no owner", state, parameter.name, all - covered,
          all);
}

/// Runs work that reads, and adds to a failure what to do about it.
template <class Work>
auto reading(const std::filesystem::path& path, Work work) {
  std::string reason;
  try {
    return work();
  } catch (const nlohmann::json::exception& e) {
    reason = fmt::format("{}: its tables are damaged: {}", path.string(), reason_of(e));
  } catch (const Damaged& e) {
    fail_damaged("{}; {}", e.what(), advice);
  } catch (const Error& e) {
    reason = e.what();
    if (reason.find(path.string()) == std::string::npos) reason = path.string() + ": " + reason;
  }
  fail("{}; {}", reason, advice);
}

bool within(std::int64_t number, std::size_t end) {
  return number >= 0 && number < static_cast<std::int64_t>(end);
}

/// Returns whether a parameter can have the slices of which the row is one.
bool can_be_cut(const ParameterEntry& parameter, const PieceRow& p) {
  const std::vector<std::int64_t>& begins = parameter.begins;
  if (p.tensor_dim == -1) return p.tensor_parts == 1 && begins.empty();
  if (!within(p.tensor_dim, parameter.shape.size()) || !within(p.tensor_parts - 1, most_slices)) return false;
  const std::int64_t size = parameter.shape[static_cast<std::size_t>(p.tensor_dim)];
  if (begins.empty()) return size % p.tensor_parts == 0;
  return std::ssize(begins) == p.tensor_parts + 1 && std::ranges::is_sorted(begins) && begins.front() == 0 &&
         begins.back() == size;
}

/// Requires that the numbers of a row name things that exist, so that sums of them cannot overflow.
void require_meaning(const Index& index, const std::vector<DType>& dtypes, const PieceRow& p) {
  REQUIRE(within(p.state, index.catalog.states.size()) &&
              within(p.parameter, index.catalog.parameters.size()) && within(p.dtype, dtypes.size()) &&
              within(p.file, index.files.size()),
          "its table of pieces is damaged: a piece is of state {}, parameter {}, dtype {}, file {}", p.state,
          p.parameter, p.dtype, p.file);
  const ParameterEntry& parameter = parameter_of(index, p);
  const auto damaged = [&](const std::string& what) {
    fail("its table of pieces is damaged: {} of {}: {}", state_of(index, p).name, parameter.name, what);
  };
  if (!can_be_cut(parameter, p))
    damaged(fmt::format("dim {} of {} is cut into {} slices{}", p.tensor_dim, to_string(parameter.shape),
                        p.tensor_parts, parameter.begins.empty() ? "" : " of several sizes"));
  if (!within(p.tensor_index, static_cast<std::size_t>(p.tensor_parts)))
    damaged(fmt::format("a piece is of slice {} of {}", p.tensor_index, p.tensor_parts));
  const std::int64_t items = form_of(index, p).items(static_cast<int>(p.tensor_index));
  if (p.slice_begin < 0 || p.count < 1 || p.count > items || p.slice_begin > items - p.count)
    damaged(fmt::format("a piece has {} items from {} on of slice {} of {}, which has {}", p.count,
                        p.slice_begin, p.tensor_index, p.tensor_parts, items));
}

/// Requires that a row's bytes are in its file, and their checksums in the table.
void require_bytes(const Index& index, const PieceRow& p) {
  const FileEntry& file = index.files[static_cast<std::size_t>(p.file)];
  REQUIRE(p.byte_offset >= 0 && p.byte_offset <= file.bytes - p.bytes(),
          "its table of pieces is damaged: {} of {} has {} bytes at offset {} of {}, which has {}",
          state_of(index, p).name, parameter_of(index, p).name, p.bytes(), p.byte_offset, file.name,
          file.bytes);
  const std::int64_t blocks = ceil_div(p.bytes(), checksum_block);
  REQUIRE(p.first_checksum >= 0 && p.first_checksum <= std::ssize(index.checksums) - blocks,
          "its table of checksums is too short: {} of {} has {} from number {} on, and there are {}",
          state_of(index, p).name, parameter_of(index, p).name, blocks, p.first_checksum,
          index.checksums.size());
}

/// Requires that each checksum is of one block of one piece, so its number tells which.
void require_own_checksums(const Index& index) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;  // first checksum, number of blocks
  for (const PieceRow& p : index.pieces)
    ranges.emplace_back(p.first_checksum, ceil_div(p.bytes(), checksum_block));
  std::ranges::sort(ranges);
  std::int64_t next = 0;
  for (const auto& [first, blocks] : ranges) {
    REQUIRE(first == next, "its table of pieces is damaged: checksum {} is of {} pieces",
            std::min(first, next), first < next ? "two" : "no");
    next += blocks;
  }
}

Hdf5File open_index(const std::filesystem::path& path) {
  if (!read_or_damaged(path, [&] { return file_exists(path); }))
    fail_damaged("{}: there is no such file, so its folder is no checkpoint", path.string());
  Hdf5File file = Hdf5File::open_to_read(path);
  const std::string version = file.attribute("format_version");
  const bool known = version.size() == 1 && version[0] >= '1' && version[0] <= '0' + newest_version;
  REQUIRE(known, "{}: is of format version {}, this program reads versions 1 to {}", path.string(),
          printable(version, 20), newest_version);
  return file;
}

}  // namespace

std::string file_name(std::int64_t file) {
  return fmt::format("shard_{:04}.h5", file);
}

std::string dataset_name(const std::string& state, const PieceRow& piece) {
  return piece.part == 0 ? fmt::format("{}/unit_{:04}", state, piece.unit)
                         : fmt::format("{}/unit_{:04}.{}", state, piece.unit, piece.part);
}

void require_granule(const std::string& state, std::int64_t granule) {
  REQUIRE(granule >= 1 && quantum % granule == 0,
          "{}: its granule is {} elements; legal are the divisors of {}", state, granule, quantum);
}

bool piece_before(const PieceRow& a, const PieceRow& b) {
  const auto key = [](const PieceRow& p) {
    return std::tuple(p.state, p.parameter, p.tensor_dim, p.tensor_parts, p.tensor_index, p.slice_begin);
  };
  return key(a) < key(b);
}

void require_complete(const Index& index) {
  std::vector<bool> seen(index.catalog.states.size() * index.catalog.parameters.size());
  // By state: whether trained parameters have it, first those stepped by elements, then those by matrices.
  std::vector<std::array<bool, 2>> had(index.catalog.states.size());
  const auto place = [&](std::int64_t state, std::int64_t parameter) {
    return static_cast<std::size_t>(state) * index.catalog.parameters.size() +
           static_cast<std::size_t>(parameter);
  };
  for_each_tensor(index.pieces, [&](std::size_t begin, std::size_t end) {
    const PieceRow& piece = index.pieces[begin];
    seen[place(piece.state, piece.parameter)] = true;
    if (const ParameterEntry& p = parameter_of(index, piece); !p.frozen)
      had[static_cast<std::size_t>(piece.state)][p.by_matrix] = true;
    require_tensor_complete(index, begin, end);
  });
  for (std::size_t s = 0; s < index.catalog.states.size(); ++s) {
    const StateEntry& state = index.catalog.states[s];
    const std::int64_t copy = copy_in(state.name);
    for (std::size_t p = 0; p < index.catalog.parameters.size(); ++p) {
      const ParameterEntry& parameter = index.catalog.parameters[p];
      const bool is_there = seen[place(static_cast<std::int64_t>(s), static_cast<std::int64_t>(p))];
      const bool of_other_kind =
          !parameter.frozen && !had[s][parameter.by_matrix] && had[s][!parameter.by_matrix];
      const bool is_beyond = copy >= parameter.copies && !parameter.frozen;
      REQUIRE(!is_beyond || !is_there, "{} has {} and {} copies with values of their own", parameter.name,
              state.name, parameter.copies);
      const bool none = of_other_kind || is_beyond ||
                        (parameter.frozen && (state.name != weights_state || parameter.elsewhere));
      REQUIRE(!none || !is_there, "{} is frozen{} and has {}", parameter.name,
              parameter.elsewhere ? ", with its weights elsewhere," : "", state.name);
      REQUIRE(none || is_there || elements(parameter.shape) == 0, "no rank has {} of {} to save", state.name,
              parameter.name);
    }
  }
}

void write_index(const std::filesystem::path& path, const Index& index, const std::string& metadata,
                 const char* key) {
  Hdf5File file = Hdf5File::create(path, key);
  const bool partial = std::ranges::any_of(index.catalog.parameters, &ParameterEntry::elsewhere);
  const bool by_matrix = std::ranges::any_of(index.catalog.parameters, &ParameterEntry::by_matrix);
  const bool copies = std::ranges::any_of(index.catalog.parameters, &ParameterEntry::copies);
  const int older = copies ? 0 : by_matrix ? 1 : partial ? 2 : 3;
  file.set_attribute("format_version", std::to_string(newest_version - older));
  file.set_attribute("metadata", metadata);
  file.set_attribute("tables", tables_of(index));
  std::vector<std::int64_t> cells(index.pieces.size() * piece_columns);
  std::memcpy(cells.data(), index.pieces.data(), cells.size() * sizeof(std::int64_t));
  file.write("ztrain/pieces", {static_cast<std::int64_t>(index.pieces.size()), piece_columns}, cells);
  file.write("ztrain/checksums", {static_cast<std::int64_t>(index.checksums.size())}, index.checksums);
  const Extents extents = dataset_extents(index.pieces);
  for_each_tensor(index.pieces, [&](std::size_t begin, std::size_t end) {
    const PieceRow& p = index.pieces[begin];
    file.add_virtual(state_of(index, p).name + "/" + parameter_of(index, p).name, p.type(),
                     form_of(index, p).shape, mappings_of(index, begin, end, extents));
  });
  file.close();
}

Index read_index(const std::filesystem::path& path) {
  return reading(path, [&] {
    const Hdf5File file = open_index(path);
    Index index;
    const std::vector<DType> dtypes = parse_tables(file.attribute("tables"), index);
    Shape shape;
    const auto cells = file.read("ztrain/pieces", shape);
    REQUIRE(shape.size() == 2 && shape[1] == piece_columns,
            "its table of pieces has shape {}, not [pieces, {}]", to_string(shape), piece_columns);
    index.pieces.resize(static_cast<std::size_t>(shape[0]));
    std::memcpy(static_cast<void*>(index.pieces.data()), cells.data(), cells.size() * sizeof(std::int64_t));
    index.checksums = file.read("ztrain/checksums", shape);
    for (PieceRow& p : index.pieces) {
      require_meaning(index, dtypes, p);
      p.dtype = static_cast<std::int64_t>(dtypes[static_cast<std::size_t>(p.dtype)]);
      require_bytes(index, p);
    }
    require_own_checksums(index);
    REQUIRE(std::ranges::is_sorted(index.pieces, piece_before), "its table of pieces is not in order");
    try {
      require_complete(index);
    } catch (const Error& e) {
      fail("its table of pieces is damaged: {}", e.what());
    }
    return index;
  });
}

std::string read_metadata_text(const std::filesystem::path& path) {
  return reading(path, [&] { return open_index(path).attribute("metadata"); });
}

}  // namespace ztrain::checkpoint
