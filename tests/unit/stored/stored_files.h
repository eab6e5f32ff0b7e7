#pragma once
// Files of checkpoints in memory, and what is in a checkpoint of any format.

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "sherd/storage.h"
#include "stored/copy_elements.h"
#include "stored/stored_checkpoint.h"

namespace sherd::stored::test {

/// One file, or a folder of files by their names.
inline void put(Storage& storage, const std::string& path, const std::map<std::string, std::string>& files) {
  const auto draft = storage.draft(path, "test");
  for (const auto& [name, bytes] : files) {
    const auto writer = draft->create(name, static_cast<int64_t>(bytes.size()));
    writer->write(0, std::as_bytes(std::span(bytes)));
    writer->finish();
  }
  draft->commit(files.begin()->first);
}
inline void put(Storage& storage, const std::string& path, const std::string& bytes) {
  put(storage, path, {{Draft::kItself, bytes}});
}

/// The elements of a tensor in row-major order, from all of its chunks.
template <class T>
std::vector<T> elements_of(StoredCheckpoint& checkpoint, const std::string& name) {
  const auto& entry = std::get<format::TensorEntry>(checkpoint.metadata().find(name)->content);
  if (size_of(entry.dtype) != sizeof(T)) throw std::invalid_argument(name + " has another dtype");
  std::vector<T> elements(static_cast<size_t>(numel(entry.size)));
  const Dims strides = row_major(entry.size);
  for (size_t i = 0; i < entry.chunk_count(); ++i) {
    checkpoint.check_file(entry.places[i], name);
    const Box box = entry.box(i);
    int64_t first = 0;
    for (size_t d = 0; d < strides.size(); ++d) first += box.offset[d] * strides[d];
    read_box(checkpoint.locate(entry, i, name), {Dims(box.size.size(), 0), box.size},
             reinterpret_cast<std::byte*>(elements.data() + first), strides, name);
  }
  return elements;
}

inline std::string object_of(StoredCheckpoint& checkpoint, const std::string& name) {
  return checkpoint.object(std::get<format::BytesEntry>(checkpoint.metadata().find(name)->content).place, name);
}

/// What() of what `call` throws; "nothing" where it throws nothing.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace sherd::stored::test
