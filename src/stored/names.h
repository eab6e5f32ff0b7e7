#pragma once
// Patterns for names, and what becomes of names.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sherd/convert.h"

namespace sherd::stored {

/// What each star of a pattern stands for in a name, the shortest texts that do; nothing where it does not match.
std::optional<std::vector<std::string>> match(std::string_view name, std::string_view pattern);

class NameChanges {
 public:
  /// Throws std::invalid_argument for a renaming with more stars on the right than on the left.
  explicit NameChanges(const RewriteOptions& options);
  /// The new name; nothing where the entry is left out. Throws std::invalid_argument where a name becomes empty.
  std::optional<std::string> operator()(const std::string& name);
  /// Throws std::invalid_argument where a pattern has matched nothing so far.
  void check_all_used() const;

 private:
  bool matches(const std::string& name, const std::string& pattern);

  const RewriteOptions& options_;
  std::vector<std::string> unused_;
};

}  // namespace sherd::stored
