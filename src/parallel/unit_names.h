#pragma once

#include "sherd/module_outline.h"

namespace sherd::detail {

/// The names of the units whose parameters are gathered together, one for each parameter. `patterns`: see
/// FullyShardOptions::units. Throws c10::ValueError where one names no module.
std::vector<std::string> unit_names(const ModuleOutline& module, const std::vector<std::string>& patterns);

}  // namespace sherd::detail
