#pragma once
// One file of torch.save (Python), or of torch::save (C++): an archive and the value in it.

#include <functional>
#include <string>
#include <string_view>

#include "format/archive.h"
#include "format/value.h"

namespace sherd::format {

struct Saved {
  Archive archive;
  Value value;  // tensors by reference: the bytes of storage "0" are the record "data/0"
};

/// Throws std::invalid_argument as read_archive and unpickle do, and for a tensor whose storage is missing in the
/// archive or shorter than the pickle says, and for numbers of a big-endian machine. Nothing is called: an object of a
/// class that is not known is an Object.
Saved read_saved(const ByteSource& source, std::string_view name);
/// The same, of an archive whose directory was read before.
Saved read_saved(const ByteSource& source, Archive archive, std::string_view name);

/// What torch::save wrote of modules, optimizers and tensors, and TorchScript: objects of classes that the archive
/// itself defines ("__torch__.Module"). They become dicts of their attributes, TorchScript's lists become lists.
/// read_saved does it.
Value without_script_classes(const Value& value);

/// Calls `visit` with the key of every storage that a value needs, each once: those of its tensors, and those that an
/// object of an unknown class is made of (a quantized or conjugate tensor, a bare storage), which has them by their
/// persistent ids. `bytes` is what a tensor says that its storage has, -1 where it is all of the record.
void for_each_storage(const Value& value, const std::function<void(const std::string& key, int64_t bytes)>& visit);
/// Whether it calls `visit` at all.
bool needs_storages(const Value& value);
/// The value with the storages under other keys.
Value with_storages(const Value& value, const std::function<std::string(const std::string& key)>& new_key);
/// The bytes of a storage, its CRC checked; `bytes` as above. Throws std::invalid_argument where it is not there.
std::string read_storage(const ByteSource& source, const Archive& archive, const std::string& key, int64_t bytes,
                         std::string_view name);

}  // namespace sherd::format
