#include "sherd/checkpoint_format.h"

#include <stdexcept>

#include "sherd/error.h"

namespace sherd {

std::string to_string(CheckpointFormat format) {
  switch (format) {
    case CheckpointFormat::dcp:
      return "dcp";
    case CheckpointFormat::safetensors:
      return "safetensors";
    case CheckpointFormat::torch_save:
      return "torch.save";
    default:
      return "automatic";
  }
}

CheckpointFormat parse_checkpoint_format(const std::string& text) {
  using enum CheckpointFormat;
  for (const CheckpointFormat format : {automatic, dcp, safetensors, torch_save}) {
    if (to_string(format) == text) return format;
  }
  throw std::invalid_argument(ErrorText("parse_checkpoint_format", "there is no such format")
                                  .fact("format", text)
                                  .fact("there are", "automatic, dcp, safetensors, torch.save")
                                  .help("\"automatic\" goes by the path's ending"));
}

CheckpointFormat format_for(const std::string& path, CheckpointFormat format) {
  if (format != CheckpointFormat::automatic) return format;
  if (path.ends_with(".safetensors")) return CheckpointFormat::safetensors;
  for (const char* ending : {".pt", ".pth", ".bin"}) {
    if (path.ends_with(ending)) return CheckpointFormat::torch_save;
  }
  return CheckpointFormat::dcp;
}

}  // namespace sherd
