#pragma once
// A verb of the `sherd` command: one line in main.cpp's table, one file with its function.

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sherd::tools {

/// What follows the verb on the command line.
using Arguments = std::vector<std::string>;
/// Keys in the order in which they are set.
using Json = nlohmann::ordered_json;

// Exit codes, the same for every verb: 0 for success, 1 where checkpoints differ or one is damaged, 2 for bad usage and
// for what could not be done, 130 after Ctrl-C. `run` returns its ranks' code.
constexpr int kOk = 0;
constexpr int kDifference = 1;
constexpr int kBadUsage = 2;

struct Verb {
  const char* name;
  const char* arguments;
  const char* summary;
  int (*run)(const Verb& verb, const Arguments& arguments);
  /// Where it is set, parse() shows the parser and its examples to it and does nothing else: for completions and the
  /// man page.
  const std::function<void(const CLI::App& parser)>* look = nullptr;
};

/// Gives a parser the verb's usage line, its examples (whole lines, each indented by two) and --help.
void make_parser(CLI::App& parser, const Verb& verb, const char* examples);

/// Parses `arguments`. Returns an exit code where that is all there is to do: after --help, and for bad usage, which
/// is printed in the project's error form.
std::optional<int> parse(CLI::App& parser, const Verb& verb, Arguments arguments);

/// The words that options take, for their help and for completion: `->type_name(kCheckpointWord)`. Files are completed
/// for CKPT, FILE, DIR and PATH, tensors' names for NAME, the words themselves for "a|b|c".
constexpr const char* kCheckpointWord = "CKPT";
constexpr const char* kFileWord = "FILE";
constexpr const char* kFolderWord = "DIR";
constexpr const char* kPathWord = "PATH";
constexpr const char* kNameWord = "NAME";

/// On standard output, indented; bytes that are no UTF-8 are replaced.
void print_json(const Json& json);

/// All verbs, in the order of the help text.
struct VerbGroup {
  const char* title;
  std::vector<Verb> verbs;
};
const std::vector<VerbGroup>& verb_groups();

int inspect(const Verb& verb, const Arguments& arguments);
int cat(const Verb& verb, const Arguments& arguments);
int verify(const Verb& verb, const Arguments& arguments);
int diff(const Verb& verb, const Arguments& arguments);
int extract(const Verb& verb, const Arguments& arguments);
int view(const Verb& verb, const Arguments& arguments);
int ls(const Verb& verb, const Arguments& arguments);
int gc(const Verb& verb, const Arguments& arguments);
int run(const Verb& verb, const Arguments& arguments);
int layout(const Verb& verb, const Arguments& arguments);
int calibrate(const Verb& verb, const Arguments& arguments);
int explain(const Verb& verb, const Arguments& arguments);
int xla(const Verb& verb, const Arguments& arguments);
int convert(const Verb& verb, const Arguments& arguments);
int reshard(const Verb& verb, const Arguments& arguments);
int merge(const Verb& verb, const Arguments& arguments);
int rename(const Verb& verb, const Arguments& arguments);
int repair(const Verb& verb, const Arguments& arguments);
int completion(const Verb& verb, const Arguments& arguments);
int man(const Verb& verb, const Arguments& arguments);

}  // namespace sherd::tools
