// sherd calibrate: what communication costs on this machine, for the planner.

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "launch/launch.h"
#include "sherd/error.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd calibrate -n 4\n"
    "  export $(sherd calibrate -n 4)   (then every program of this shell plans by it)\n";

// The ranks need libtorch, which this command does without: they are a program of their own beside it.
std::filesystem::path ranks_program() {
  auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "sherd-calibrate";
  if (access(program.c_str(), X_OK) == 0) return program;
  throw std::invalid_argument(ErrorText("calibrate", "the program that measures is not there")
                                  .fact("program", program.string())
                                  .help("in Python: sherd.measure_costs() on every rank"));
}

}  // namespace

int calibrate(const Verb& verb, const Arguments& arguments) {
  LaunchOptions options;
  options.prefix = false;
  std::string backend;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("-n,--nproc", options.ranks, "ranks on this host")->required();
  parser.add_option("--backend", backend, "instead of the one that sherd would use");
  if (const auto code = parse(parser, verb, arguments)) return *code;
  options.program = {ranks_program().string()};
  if (!backend.empty()) options.program.push_back(backend);
  return launch(options);
}

}  // namespace sherd::tools
