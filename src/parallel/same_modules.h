#pragma once

#include <string>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/module_outline.h"

namespace sherd::detail {

/// Makes sure that every rank of the mesh has the same parameters and buffers, by name, shape and dtype, and the same
/// further `lines`. Throws c10::ValueError on every rank, naming two that differ and where they do. Costs one small
/// all_gather.
void compare_modules(const char* operation, const ModuleOutline& module, const DeviceMesh& mesh,
                     const std::vector<std::string>& lines = {});

}  // namespace sherd::detail
