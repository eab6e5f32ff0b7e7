#pragma once
// A checkpoint written anew, from file to file, without libtorch and without ranks: in another format, for another
// number of ranks, with other names, out of several. Tensors go by in pieces of a few MiB; nothing is loaded whole.
//
//   sherd::rewrite_checkpoint({"runs/gpt/step-4000"}, "gpt.safetensors",
//                             {.only = {"model.*"}, .rename = {{"model.*", "*"}}});

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sherd/checkpoint_format.h"
#include "sherd/layout.h"
#include "sherd/progress.h"
#include "sherd/storage.h"

namespace sherd {

/// How the tensors of a checkpoint are to lie on ranks.
struct RankLayouts {
  Mesh mesh;
  /// The placements of a tensor, without Partials.
  std::function<Placements(const std::string& name, const Dims& size)> placements;
};
/// Every tensor cut along its first dim over so many ranks, as fully sharded training has them; scalars are whole.
RankLayouts sharded_over(int64_t ranks);
/// The placements of the first pattern (`*` is any text) that matches a name, others replicated; a dim that a tensor
/// does not have is not cut.
RankLayouts laid_out(const Mesh& mesh, std::vector<std::pair<std::string, Placements>> placements);

struct Renaming {
  std::string pattern;
  std::string replacement;
};

struct RewriteOptions {
  CheckpointFormat format = CheckpointFormat::automatic;
  /// Which entries: patterns in which `*` stands for any text, dots too. One that matches no entry is an error.
  std::vector<std::string> only = {};
  std::vector<std::string> drop = {};
  /// {"model.*", "net.*"}: names that the first matches become the second, whose stars stand for what those of the
  /// first matched. One renaming after the other.
  std::vector<Renaming> rename = {};
  /// For format dcp: which rank's file has which part. Nothing: the parts of the source, in as many files.
  std::optional<RankLayouts> layouts = {};
  /// For format safetensors: a folder of files of at most so many bytes and an index. 0: one file where `to` ends in
  /// .safetensors, 5 GB otherwise, as others cut them.
  int64_t file_bytes = 0;
  /// Whether something that is there may be replaced. It stays until the new one is complete.
  bool overwrite = false;
  /// Compare digests and CRCs of what is read.
  bool verify = true;
  /// Leave out what is damaged or missing, and tell, instead of throwing.
  bool skip_damaged = false;
  /// Where the paths are: nothing: the disk.
  std::shared_ptr<Storage> from_storage = {};
  std::shared_ptr<Storage> to_storage = {};
  /// Called now and then, by one thread at a time. What it throws ends the work, and nothing is left of it.
  Progress progress = {};
  std::string operation = "convert";  // begins errors
};

struct RewriteResult {
  CheckpointFormat format = CheckpointFormat::dcp;
  int64_t tensors = 0;
  int64_t objects = 0;
  int64_t files = 0;
  int64_t bytes = 0;                         // of all files
  std::vector<std::string> objects_as_json;  // kept as texts, since the format holds tensors alone
  std::vector<std::string> of_each_rank;     // names that ranks had of their own; the first rank's is kept
  struct LeftOut {
    std::string name;
    std::string why;
  };
  std::vector<LeftOut> damaged;  // with skip_damaged
};

/// Writes what is in the checkpoints `from` (any format that load reads; names in two of them are an error) to `to`, in
/// one step at the end: when it throws, `to` is what it was. Throws std::invalid_argument for options that make no
/// sense and std::runtime_error for files that cannot be read or written.
RewriteResult rewrite_checkpoint(const std::vector<std::string>& from, const std::string& to,
                                 const RewriteOptions& options = {});

/// Whether a pattern, in which `*` stands for any text, matches a name.
bool matches(std::string_view name, std::string_view pattern);

}  // namespace sherd
