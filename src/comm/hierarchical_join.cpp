// How the parts of a transport over several hosts are made. Every member comes to the same answer.

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/exchange.h"
#include "comm/hierarchical.h"
#include "comm/local.h"
#include "comm/transports.h"

namespace sherd::detail {

c10::intrusive_ptr<c10d::Backend> make_hierarchical(const Meeting& meeting, const Hosts& hosts) {
  const std::vector<int>& here = hosts.beside(meeting.rank);
  Meeting inside = meeting;
  inside.store = c10::make_intrusive<c10d::PrefixStore>("beside/" + std::to_string(here.front()), meeting.store);
  inside.rank = hosts.place_of[static_cast<size_t>(meeting.rank)];
  inside.size = static_cast<int>(here.size());
  inside.ranks.clear();
  for (const int member : here) inside.ranks.push_back(meeting.ranks[static_cast<size_t>(member)]);
  c10::intrusive_ptr<c10d::Backend> own;
  if (here.size() == 1) {
    own = c10::make_intrusive<LocalBackend>(0, 1);
  } else {
    own = make_shm(inside);
  }
  // Gloo, which stands in where memory cannot be shared, knows neither every dtype nor every reduction.
  const bool ready = dynamic_cast<SyncBackend*>(own.get()) != nullptr;
  const std::vector<std::string> all = exchange(meeting, "inside", ready ? "ready" : "not ready");
  auto between = make_gloo(meeting);
  if (std::any_of(all.begin(), all.end(), [](const std::string& text) { return text != "ready"; })) return between;
  return c10::make_intrusive<HierarchicalBackend>(
      meeting.rank, HierarchicalParts{.hosts = hosts, .ranks = meeting.ranks, .inside = own, .between = between});
}

}  // namespace sherd::detail
