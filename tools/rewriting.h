#pragma once
// What the verbs that write checkpoints have in common: choosing and renaming entries, the target, the report.

#include <string>
#include <vector>

#include "sherd/convert.h"
#include "verb.h"

namespace sherd::tools {

struct Rewriting {
  std::vector<std::string> from;
  std::string to;
  std::string format;
  std::vector<std::string> only;
  std::vector<std::string> drop;
  std::vector<std::string> rename;
  std::string file_size;
  bool force = false;
  bool no_verify = false;
  bool json = false;
};

/// from: a checkpoint.
void add_source(CLI::App& parser, Rewriting& rewriting);
/// from, and to: a checkpoint of any format.
void add_source_and_target(CLI::App& parser, Rewriting& rewriting);
/// --only, --drop, --rename.
void add_name_options(CLI::App& parser, Rewriting& rewriting);
/// --force, --no-verify, --json.
void add_target_options(CLI::App& parser, Rewriting& rewriting);

/// Writes the target with a progress bar and tells what was done. `options` has what is the verb's own.
int rewrite(const Verb& verb, const Rewriting& rewriting, RewriteOptions options = {});

/// 5000000000 of "5GB", "5e9" and "5000000000"; "GiB" and their kin are powers of two.
int64_t parse_bytes(const std::string& verb, const std::string& text);

}  // namespace sherd::tools
