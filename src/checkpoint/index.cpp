#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.hpp"
#include "checkpoint/format.hpp"
#include "checkpoint/hdf5_file.hpp"

namespace ztrain::checkpoint {
namespace {

constexpr DType all_dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                DType::i64, DType::i32, DType::u8};

std::string tables_of(const Index& index) {
  nlohmann::json parameters = nlohmann::json::array(), files = nlohmann::json::array(), dtypes;
  for (const auto& p : index.catalog.parameters) parameters.push_back({{"name", p.name}, {"shape", p.shape}});
  for (const auto& f : index.files) files.push_back({{"name", f.name}, {"bytes", f.bytes}});
  for (DType dtype : all_dtypes) dtypes.push_back(std::string(name_of(dtype)));
  return nlohmann::json{{"states", index.catalog.states},
                        {"parameters", parameters},
                        {"dtypes", dtypes},
                        {"files", files},
                        {"block_bytes", checksum_block}}
      .dump();
}

/// Fills the tables and gives the meaning of the dtype column.
std::vector<DType> parse_tables(const std::string& text, Index& index) {
  const auto tables = nlohmann::json::parse(text);
  REQUIRE(tables.at("block_bytes").get<std::int64_t>() == checksum_block,
          "its checksum blocks are not of {} bytes", checksum_block);
  index.catalog.states = tables.at("states").get<std::vector<std::string>>();
  for (const auto& p : tables.at("parameters"))
    index.catalog.parameters.push_back({p.at("name").get<std::string>(), p.at("shape").get<Shape>()});
  for (const auto& f : tables.at("files"))
    index.files.push_back({f.at("name").get<std::string>(), f.at("bytes").get<std::int64_t>()});
  std::vector<DType> dtypes;
  for (const auto& name : tables.at("dtypes")) dtypes.push_back(dtype_from(name.get<std::string>()));
  return dtypes;
}

auto dataset_key(const PieceRow& piece) {
  return std::tuple(piece.file, piece.state, piece.unit, piece.part);
}

using Extents = std::map<decltype(dataset_key(PieceRow{})), std::int64_t>;

/// Elements of every dataset of every shard file.
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

/// One mapping per run that is contiguous in the slice and in its dataset: usually one per shard file.
std::vector<Mapping> mappings_of(const Index& index, std::size_t begin, std::size_t end,
                                 const Extents& extents) {
  std::vector<Mapping> mappings;
  for (std::size_t first = begin; first < end;) {
    std::size_t next = first + 1;
    while (next < end && continues(index.pieces[next - 1], index.pieces[next])) ++next;
    const PieceRow& p = index.pieces[first];
    const PieceRow& last = index.pieces[next - 1];
    const std::int64_t stop = last.slice_begin + last.count;
    mappings.push_back({index.files[static_cast<std::size_t>(p.file)].name,
                        dataset_name(index.catalog.states[static_cast<std::size_t>(p.state)], p),
                        extents.at(dataset_key(p)), p.dataset_begin, stop - p.slice_begin,
                        boxes_of_slice(index.catalog.parameters[static_cast<std::size_t>(p.parameter)].shape,
                                       p.slice(), static_cast<int>(p.tensor_index), p.slice_begin, stop)});
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
  const auto& parameter = index.catalog.parameters[static_cast<std::size_t>(first.parameter)];
  const auto& state = index.catalog.states[static_cast<std::size_t>(first.state)];
  const std::int64_t slice = elements(parameter.shape) / first.tensor_parts;
  std::int64_t covered = 0;  // over all slices, one after the other
  for (std::size_t i = begin; i < end; ++i) {
    const PieceRow& p = index.pieces[i];
    REQUIRE(p.dtype == first.dtype, "{} of {} is {} on one rank and {} on another", state, parameter.name,
            name_of(first.type()), name_of(p.type()));
    REQUIRE(p.slice() == first.slice(), "ranks disagree on how {} is cut over the tensor axis",
            parameter.name);
    const std::int64_t at = p.tensor_index * slice + p.slice_begin;
    REQUIRE(at >= covered, "{} of {}: {} elements from {} on have more than one owner", state, parameter.name,
            covered - at, at);
    REQUIRE(at == covered, "{} of {}: {} elements from {} on have no owner", state, parameter.name,
            at - covered, covered);
    covered += p.count;
  }
  const std::int64_t all = slice * first.tensor_parts;
  REQUIRE(covered == all, "{} of {}: {} of {} elements have no owner", state, parameter.name, all - covered,
          all);
}

/// A failure while reading, with what to do about it.
template <class Work>
auto reading(const std::filesystem::path& path, Work work) {
  std::string reason;
  try {
    return work();
  } catch (const nlohmann::json::exception& e) {
    reason = fmt::format("{}: its tables are damaged: {}", path.string(), e.what());
  } catch (const Error& e) {
    reason = e.what();
    if (reason.find(path.string()) == std::string::npos) reason = path.string() + ": " + reason;
  }
  fail("{}; set checkpoint.resume to the path of an older checkpoint, or to \"none\"", reason);
}

Hdf5File open_index(const std::filesystem::path& path) {
  REQUIRE(std::filesystem::exists(path), "{}: there is no such file, so its folder is no checkpoint",
          path.string());
  Hdf5File file = Hdf5File::open_to_read(path);
  const std::string version = file.attribute("format_version");
  REQUIRE(version == std::to_string(format_version),
          "{}: is of format version {}, this program reads version {}", path.string(), version,
          format_version);
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

bool piece_before(const PieceRow& a, const PieceRow& b) {
  const auto key = [](const PieceRow& p) {
    return std::tuple(p.state, p.parameter, p.tensor_dim, p.tensor_parts, p.tensor_index, p.slice_begin);
  };
  return key(a) < key(b);
}

void require_complete(const Index& index) {
  std::vector<bool> seen(index.catalog.states.size() * index.catalog.parameters.size());
  const auto place = [&](std::int64_t state, std::int64_t parameter) {
    return static_cast<std::size_t>(state) * index.catalog.parameters.size() +
           static_cast<std::size_t>(parameter);
  };
  for_each_tensor(index.pieces, [&](std::size_t begin, std::size_t end) {
    seen[place(index.pieces[begin].state, index.pieces[begin].parameter)] = true;
    require_tensor_complete(index, begin, end);
  });
  for (std::size_t s = 0; s < index.catalog.states.size(); ++s)
    for (std::size_t p = 0; p < index.catalog.parameters.size(); ++p)
      REQUIRE(seen[place(static_cast<std::int64_t>(s), static_cast<std::int64_t>(p))] ||
                  elements(index.catalog.parameters[p].shape) == 0,
              "no rank has {} of {} to save", index.catalog.states[s], index.catalog.parameters[p].name);
}

void write_index(const std::filesystem::path& path, const Index& index, const std::string& metadata) {
  Hdf5File file = Hdf5File::create(path);
  file.set_attribute("format_version", std::to_string(format_version));
  file.set_attribute("metadata", metadata);
  file.set_attribute("tables", tables_of(index));
  std::vector<std::int64_t> cells(index.pieces.size() * piece_columns);
  std::memcpy(cells.data(), index.pieces.data(), cells.size() * sizeof(std::int64_t));
  file.write("ztrain/pieces", {static_cast<std::int64_t>(index.pieces.size()), piece_columns}, cells);
  file.write("ztrain/checksums", {static_cast<std::int64_t>(index.checksums.size())}, index.checksums);
  const Extents extents = dataset_extents(index.pieces);
  for_each_tensor(index.pieces, [&](std::size_t begin, std::size_t end) {
    const PieceRow& p = index.pieces[begin];
    const auto& parameter = index.catalog.parameters[static_cast<std::size_t>(p.parameter)];
    file.add_virtual(index.catalog.states[static_cast<std::size_t>(p.state)] + "/" + parameter.name, p.type(),
                     parameter.shape, mappings_of(index, begin, end, extents));
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
      REQUIRE(p.dtype >= 0 && p.dtype < std::ssize(dtypes) && p.file >= 0 &&
                  p.file < std::ssize(index.files) && p.first_checksum >= 0,
              "its table of pieces is damaged");
      p.dtype = static_cast<std::int64_t>(dtypes[static_cast<std::size_t>(p.dtype)]);
      REQUIRE(p.first_checksum + ceil_div(p.bytes(), checksum_block) <= std::ssize(index.checksums),
              "its table of checksums is too short");
    }
    return index;
  });
}

std::string read_metadata_text(const std::filesystem::path& path) {
  return reading(path, [&] { return open_index(path).attribute("metadata"); });
}

}  // namespace ztrain::checkpoint
