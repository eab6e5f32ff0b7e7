// sherd run: the ranks of a program as processes of this host.

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "launch/launch.h"
#include "sherd/error.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd run -n 4 -- ./train --config gpt.json\n"
    "  sherd run -n 8 --nnodes 2 --node-rank 0 --master node1:29500 -- ./train   (on node1)\n"
    "  sherd run -n 8 --nnodes 2 --node-rank 1 --master node1:29500 -- ./train   (on node2)\n";

/// "HOST", "HOST:PORT" or "[IPV6]:PORT".
void read_master(const std::string& text, LaunchOptions& options) {
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  const bool bare_ipv6 = bracket == text.npos && text.find(':') != colon;
  const bool has_port = colon != text.npos && !bare_ipv6 && (bracket == text.npos || colon > bracket);
  std::string host = has_port ? text.substr(0, colon) : text;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  options.master_addr = host;
  const std::string port = has_port ? text.substr(colon + 1) : "";
  const bool bad_port = has_port && !CLI::detail::lexical_cast(port, options.master_port);
  if (host.empty() || bad_port || (has_port && (options.master_port < 1 || options.master_port > 65535)))
    throw std::invalid_argument(
        ErrorText("run", "--master is not HOST or HOST:PORT").fact("--master", text).help("--master node1:29500"));
}

}  // namespace

int run(const Verb& verb, const Arguments& arguments) {
  LaunchOptions options;
  std::string master;
  bool no_prefix = false;
  double grace = 5;

  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("-n,--nproc", options.ranks, "ranks on this host")->required();
  parser.add_option("--nnodes", options.nodes, "hosts that run this command (1)");
  parser.add_option("--node-rank", options.node_rank, "which of the hosts this is, from 0");
  parser.add_option("--master", master, "HOST[:PORT] where rank 0 listens; needed with several hosts");
  parser.add_option("--grace", grace, "seconds between SIGTERM and SIGKILL when ranks are ended (5)");
  parser.add_flag("--no-prefix", no_prefix, "do not put the rank before each line");

  // The program's own words are none of ours: they start after `--`, or at the first word that is no option.
  parser.prefix_command();
  const auto separator = std::ranges::find(arguments, "--");
  if (const auto code = parse(parser, verb, {arguments.begin(), separator})) return *code;
  options.program = parser.remaining();
  if (!options.program.empty() && options.program.front().starts_with('-'))
    throw std::invalid_argument(
        ErrorText("run", "no such option").fact("option", options.program.front()).help("sherd run --help"));
  const bool program_follows = options.program.empty() && separator != arguments.end();
  options.program.insert(options.program.end(), separator + (program_follows ? 1 : 0), arguments.end());

  if (!master.empty()) read_master(master, options);
  options.prefix = !no_prefix;
  options.grace = std::chrono::milliseconds(static_cast<int64_t>(grace * 1000));
  return launch(options);
}

}  // namespace sherd::tools
