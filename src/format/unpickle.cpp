#include "format/pickle.h"
#include "format/pickle_graph.h"
#include "format/value_of.h"

namespace sherd::format {

Value unpickle(std::span<const std::byte> bytes, const UnpickleOptions& options) {
  const PickleGraph graph = read_pickle(bytes, options);
  return value_of(graph, graph.root, options, bytes.size());
}

}  // namespace sherd::format
