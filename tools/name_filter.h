#pragma once
// Names on the command line that stand for many: "model.layers.*.weight".

#include <string>
#include <vector>

namespace sherd::tools {

/// Shell patterns (*, ?, [...]); `*` takes dots, too. None: everything matches.
class NameFilter {
 public:
  explicit NameFilter(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}
  bool operator()(const std::string& name) const;
  bool empty() const { return patterns_.empty(); }
  /// Throws std::invalid_argument "<verb>: no name matches".
  [[noreturn]] void refuse(const std::string& verb, const std::string& checkpoint) const;

 private:
  std::vector<std::string> patterns_;
};

/// "1,234,567".
std::string count_text(int64_t count);
/// "1 tensor", "2 tensors".
std::string counted(int64_t count, const std::string& noun);

}  // namespace sherd::tools
