#pragma once
// From the graph of a pickle to values: containers as they are, tensors by reference, the rest as Objects.

#include <memory>

#include "format/pickle.h"
#include "format/pickle_graph.h"
#include "format/value.h"

namespace sherd::format {

/// What may be made of a pickle of so many bytes. A text that it holds once and names a million times would be copied
/// as often.
class MemoryBudget {
 public:
  MemoryBudget(const UnpickleOptions& options, size_t input_size);
  /// Throws std::invalid_argument where all of it is spent.
  void spend(size_t bytes) {
    if (bytes > left_) refuse();
    left_ -= bytes;
  }

 private:
  [[noreturn]] void refuse() const;

  const UnpickleOptions& options_;
  size_t left_;
};

/// The values of one graph: a container is made once, whoever asks for it.
class Values {
 public:
  /// They stay as long as this.
  Values(const PickleGraph& graph, const UnpickleOptions& options, MemoryBudget& budget);
  ~Values();
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  /// Throws std::invalid_argument.
  Value of(const Node& node);

 private:
  class Maker;
  std::unique_ptr<Maker> maker_;
};

}  // namespace sherd::format
