#pragma once
// One file of torch.save (Python), or of torch::save (C++): an archive and the value in it.

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

}  // namespace sherd::format
