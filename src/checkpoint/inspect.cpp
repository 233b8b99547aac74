#include "checkpoint/inspect.hpp"

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "config/hf/starting_point.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

Inspected inspect(const std::filesystem::path& folder) {
  Inspected found{.metadata = read_metadata(folder), .tensors = {}, .files = {}};
  const Index index = read_index(folder / index_name);  // read_metadata has checked it
  for (const PieceRow& row : index.pieces) {
    const StateEntry& state = index.catalog.states[static_cast<std::size_t>(row.state)];
    const ParameterEntry& parameter = index.catalog.parameters[static_cast<std::size_t>(row.parameter)];
    const bool same = !found.tensors.empty() && found.tensors.back().state == state.name &&
                      found.tensors.back().name == parameter.name;
    if (!same)
      found.tensors.push_back({.state = state.name,
                               .name = parameter.name,
                               .dtype = row.type(),
                               .shape = parameter.shape,
                               .granule = state.granule,
                               .frozen = parameter.frozen});
    found.tensors.back().bytes += row.bytes();
    ++found.tensors.back().pieces;
  }
  for (const FileEntry& file : index.files) found.files.push_back({file.name, file.bytes});
  for (const char* name : {index_name, config::checkpoint_metadata_file})
    found.files.push_back({name, PosixFile::open_to_read(folder / name).size()});
  return found;
}

}  // namespace ztrain::checkpoint
