#pragma once
// What the containers of a state are, where its parts come from others: names do not tell a list from a dict that has
// ints for keys, nor an OrderedDict from a dict.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "format/dcp.h"
#include "stored/chosen.h"

namespace sherd::stored {

class ContainerKinds {
 public:
  explicit ContainerKinds(std::string operation) : operation_(std::move(operation)) {}

  /// Entries that are added from now on are those of this checkpoint, which stays until the next one is entered.
  void enter(const format::Metadata& metadata, const std::string& path);
  /// An entry that stands at `from` in it stands at `to` in the result; the last keys of both are in the same
  /// containers. Throws std::invalid_argument where a list and a dict would become one container.
  void add(const std::vector<format::PathPart>& from, const std::vector<format::PathPart>& to);
  /// Outer containers first.
  void give(Chosen& chosen) &&;

 private:
  using Path = std::vector<format::PathPart>;
  struct Origin {
    std::string source;
    Path path;
    bool is_list = false;
  };

  void add_container(const Path& old_path, const Path& new_path, bool has_number);

  std::string operation_;
  // Of the checkpoint that is entered.
  std::string source_;
  std::set<Path> numbered_;
  std::set<Path> dicts_;  // with texts for keys
  std::map<Path, const format::OrderedPlace*> ordered_;
  Path last_from_;
  Path last_to_;
  size_t last_shift_ = 0;
  // Of the result.
  std::map<Path, Origin> origins_;
  std::set<Path> chosen_numbered_;
  std::map<Path, format::OrderedPlace> chosen_ordered_;
};

}  // namespace sherd::stored
