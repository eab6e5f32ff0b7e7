#include "format/pickle.h"
#include "format/pickle_graph.h"
#include "format/value_of.h"

namespace sherd::format {

Value unpickle(std::span<const std::byte> bytes, const UnpickleOptions& options) {
  const PickleGraph graph = read_pickle(bytes, options);
  MemoryBudget budget(options, bytes.size());
  return Values(graph, options, budget).of(graph.root);
}

}  // namespace sherd::format
