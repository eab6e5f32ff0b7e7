#pragma once
// Which machine a rank is on.

#include <string>

namespace sherd::detail {

/// Equal on two ranks when and only when they can share memory and see each other's processes: one boot of one machine,
/// one network namespace, one process namespace. Two containers, or two network namespaces, of a machine are two hosts.
std::string host_key();

}  // namespace sherd::detail
