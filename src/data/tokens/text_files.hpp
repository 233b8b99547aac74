#pragma once
// Says which files are text that a model of bytes can read, and what to do with the others.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::data {

/// Reader of the data, for messages and for whether the data may be text.
struct Reader {
  std::int64_t vocab_size = 0;  ///< model.vocab_size; 0: taken from the data
  std::string model;            ///< folder of the model's tokenizer; "": none is known
  std::string stage = {};       ///< folder that may hold copies of the files (staged_files.hpp); "": none
};

/// If a file's name is that of a packed file, throws Error that names key, file and the command that unpacks
/// it, whatever is in it. Files of records are not refused: tools/prepare_data.py takes them.
void require_unpacked(const std::vector<std::string>& files, const std::string& key);

/// Throws Error unless the files are text that the model can read. Refuses files of records, weights or
/// packed bytes, by their names or first bytes, and any file for a model that is not one of bytes. The
/// message names key and file, and how tokens are made of it. `sure` means that the deck says it is text
/// (data.format), so that only the model counts.
void require_text(const std::vector<std::string>& files, bool sure, const Reader& reader,
                  const std::string& key);

/// Returns a note for a deck that gives format "text" to a file of records; "" if no file is one.
std::string note_on_records(const std::vector<std::string>& files, const Reader& reader);

}  // namespace ztrain::data
