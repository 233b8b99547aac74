#pragma once
// Which files are text that a model of bytes can read, and what else is to be made of the others.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::data {

/// What is to read the data, for messages and for whether it may be text.
struct Reader {
  std::int64_t vocab_size = 0;  ///< model.vocab_size; 0: as the data say
  std::string model;            ///< the folder of the model's tokenizer; "": none is known
};

/// Throws Error that names key and file, and the command that unpacks it, where its name is that of a packed
/// file, whatever is in it. One of records is not meant, which tools/prepare_data.py takes.
void require_unpacked(const std::vector<std::string>& files, const std::string& key);

/// Throws Error that names key and file, and says how tokens are made of it, where the file is of a kind that
/// holds records, weights or packed bytes instead of text (by its name or its first bytes), or where the
/// model is not one of bytes. `sure`: the deck says that it is text (data.format), so that only the model
/// counts.
void require_text(const std::vector<std::string>& files, bool sure, const Reader& reader,
                  const std::string& key);

/// What a deck that says "text" of a file of records should be told; "" where no file is one.
std::string note_on_records(const std::vector<std::string>& files, const Reader& reader);

}  // namespace ztrain::data
