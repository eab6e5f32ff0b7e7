#pragma once
// The forms that a checkpoint's files can have (docs/format.md).

#include <cstdint>
#include <string>

namespace sherd {

enum class CheckpointFormat : uint8_t {
  automatic,    // by the path: `.safetensors`, `.pt`, `.pth` or `.bin`, else a folder of PyTorch's distributed
                // checkpoints
  dcp,          // a folder that torch.distributed.checkpoint reads
  safetensors,  // one file, or a folder of several with their index
  torch_save,   // one file, as torch.save writes it
};

/// "dcp", "safetensors", "torch.save".
std::string to_string(CheckpointFormat format);
/// The inverse, and "automatic". Throws std::invalid_argument naming what there is.
CheckpointFormat parse_checkpoint_format(const std::string& text);
/// What `automatic` means for a path; others as they are.
CheckpointFormat format_for(const std::string& path, CheckpointFormat format);

}  // namespace sherd
