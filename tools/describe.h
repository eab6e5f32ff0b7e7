#pragma once
// What a verb's own parser says of it: for completions and the man page.

#include <string>
#include <vector>

#include "verb.h"

namespace sherd::tools {

struct OptionDescription {
  std::vector<std::string> names;  // "-o", "--output"; empty for one without a name, which goes by its place
  std::string word;                // what it takes: "CKPT"; empty for a flag
  std::string help;
  bool required = false;
  /// The words it takes, where these are known: "f32", "f64".
  std::vector<std::string> choices() const;
};

struct VerbDescription {
  Verb verb;
  std::vector<OptionDescription> options;  // those with names
  std::vector<OptionDescription> places;   // those without
  std::string footer;                      // notes and examples
};

VerbDescription describe(const Verb& verb);
std::vector<VerbDescription> describe_all();

}  // namespace sherd::tools
