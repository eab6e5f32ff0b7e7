#pragma once
// Which machine a rank is on.

#include <string>
#include <vector>

namespace sherd::detail {

/// What a small file of /proc holds; "" where it cannot be read.
std::string read_text(const std::string& path);

/// Equal on two ranks when and only when they can share memory and see each other's processes: one boot of one machine,
/// one network namespace, one process namespace. Two containers, or two network namespaces, of a machine are two hosts.
/// SHERD_HOST, where it is set, is believed instead.
std::string host_key();

/// How the members of a group are spread over hosts: the same value on each of them. Hosts are in the order of their
/// first members, the members of a host in their order in the group.
struct Hosts {
  std::vector<std::vector<int>> members;  // of each host
  std::vector<int> host_of;               // of each member
  std::vector<int> place_of;              // of each member, among those of its host

  /// `keys`: the host key of each member.
  static Hosts of(const std::vector<std::string>& keys);

  size_t size() const { return members.size(); }
  /// The members that share the host of `member`, itself among them.
  const std::vector<int>& beside(int member) const {
    return members[static_cast<size_t>(host_of[static_cast<size_t>(member)])];
  }
};

}  // namespace sherd::detail
