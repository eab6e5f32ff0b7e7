#pragma once
// A verb of the `sherd` command: one line in main.cpp's table, one file with its function.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sherd::tools {

/// What follows the verb on the command line.
using Arguments = std::vector<std::string>;

// Exit codes, the same for every verb: 0 for success, 1 for a difference found, 2 for bad usage and for what could not
// be done. `run` returns its ranks' code.
constexpr int kOk = 0;
constexpr int kBadUsage = 2;

struct Verb {
  const char* name;
  const char* arguments;
  const char* summary;
  int (*run)(const Verb& verb, const Arguments& arguments);
};

/// Gives a parser the verb's usage line, its examples (whole lines, each indented by two) and --help.
void make_parser(CLI::App& parser, const Verb& verb, const char* examples);

/// Parses `arguments`. Returns an exit code where that is all there is to do: after --help, and for bad usage, which
/// is printed in the project's error form.
std::optional<int> parse(CLI::App& parser, const Verb& verb, Arguments arguments);

int run(const Verb& verb, const Arguments& arguments);
int layout(const Verb& verb, const Arguments& arguments);
int calibrate(const Verb& verb, const Arguments& arguments);
int explain(const Verb& verb, const Arguments& arguments);

}  // namespace sherd::tools
