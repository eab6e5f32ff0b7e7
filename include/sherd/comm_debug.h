#pragma once
// What a piece of a program communicates, and why: every collective with the operator, the module and the mesh axis
// that it is for. docs/seeing.md shows it.
//
//   sherd::CommDebugMode debug(*model);
//   loss(model->forward(x)).backward();
//   std::puts(to_string(debug).c_str());

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/group.h"

namespace at {
class RecordFunction;
}
namespace torch::nn {
class Module;
}

namespace sherd {

namespace detail {
struct DebugLog;
}

enum class CommPass : uint8_t { forward, backward };  // forward: all that is not backward
std::string to_string(CommPass pass);

/// One collective of this rank.
struct CommRecord {
  std::string collective;  // "all_gather"
  std::string axis;        // of the mesh: "tp"; "dp_tp" for two. The group ("ranks 0-3") where no mesh is behind it
  std::string group;
  std::string dtype;  // empty for a barrier
  int64_t numel = 0;  // of this rank's input
  int64_t bytes = 0;  // that this rank receives from others; an all_reduce counts as a ring does it

  /// What it is for: an operator ("aten::addmm"), or "redistribute", "gather on use", "gradient", "gradient bucket",
  /// "tensor parallel", ... Empty where the program called the collective itself.
  std::string operation;
  std::string called_by;                // the operator that `operation` is a part of, where it is: "aten::linear"
  std::vector<std::string> parameters;  // that it uses or is about, by name
  std::string module;                   // that has them; of several, what their names have in common
  std::string scope;                    // NamedScopes, joined by dots
  CommPass pass = CommPass::forward;
  bool background = false;   // beside what the rank computes
  int64_t operand = -1;      // of the operator, where it is one that had to be moved
  std::string operand_from;  // "f32[64, 32@tp]"
  std::string operand_to;    // "f32[64, 32]"
  int64_t start_ns = 0;      // since the mode began
  int64_t duration_ns = 0;   // until its result could be used
};

/// One operator of this rank. Operators lie within others: an operator on DTensors and the one on their parts.
struct OperatorRecord {
  std::string name;
  std::string module;
  std::string scope;
  CommPass pass = CommPass::forward;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
};

struct CommDebugOptions {
  bool operators = false;  // keep operators and their times, for traces
};

/// While it lives, keeps every collective of this thread, and of the threads that communicate for it in the background.
/// Modes nest: an outer one sees what an inner one sees. Names of parameters are those of the module that it is given,
/// and a parameter is known by its memory, so that its views are known too; parameters that are placed anew later
/// (data_parallel, fully_shard, set_data) lose their names. Meanwhile backward passes run in this thread.
/// Programs without a mode pay nothing.
class CommDebugMode {
 public:
  explicit CommDebugMode(const CommDebugOptions& options = {});
  explicit CommDebugMode(const torch::nn::Module& module, const CommDebugOptions& options = {});
  explicit CommDebugMode(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                         const CommDebugOptions& options = {});
  ~CommDebugMode();
  CommDebugMode(const CommDebugMode&) = delete;
  CommDebugMode& operator=(const CommDebugMode&) = delete;

  /// Ends it before its time; what it has stays.
  void stop();

  /// In the order in which they began.
  std::vector<CommRecord> records() const;
  std::vector<OperatorRecord> operators() const;

  /// How many of each: {"all_reduce": 2}.
  std::map<std::string, int64_t> counts() const;
  std::map<std::string, int64_t> counts(CommPass pass) const;
  int64_t bytes() const;
  int64_t bytes(CommPass pass) const;

  const detail::DebugLog& log() const { return *log_; }

 private:
  std::shared_ptr<detail::DebugLog> log_;
};

/// A table, one line for all collectives of one kind, operator, module, axis and pass; "no communication\n" where there
/// is none.
std::string to_string(const CommDebugMode& debug);
/// {"rank": 0, "total": {...}, "records": [...]}, times in nanoseconds.
std::string to_json(const CommDebugMode& debug);

/// This rank's part of a step as a trace that chrome://tracing and https://ui.perfetto.dev show: one process per rank
/// with a lane for compute (with CommDebugOptions::operators) and one for communication; what is communicated in the
/// background has another one beside it. A trace of nothing is a valid trace.
std::string trace_json(const CommDebugMode& debug);
/// One trace of all ranks of a group, on each of them; every rank calls it. Clocks of several hosts may differ.
std::string gather_traces(const CommDebugMode& debug, const Group& group);
std::string gather_traces(const CommDebugMode& debug, const DeviceMesh& mesh);
/// Writes a trace to a file. Throws c10::ValueError where that is not possible.
void save_trace(const CommDebugMode& debug, const std::string& path);
/// The same for all ranks together: the first one writes, and where it cannot, all of them throw.
void save_trace(const CommDebugMode& debug, const std::string& path, const Group& group);
void save_trace(const CommDebugMode& debug, const std::string& path, const DeviceMesh& mesh);

/// Names what this thread does while it lives, and its backward pass: for what has no parameters. Profilers see it as a
/// range. Scopes nest: "encoder.attention".
class NamedScope {
 public:
  explicit NamedScope(const std::string& name);
  ~NamedScope();
  NamedScope(const NamedScope&) = delete;
  NamedScope& operator=(const NamedScope&) = delete;

 private:
  size_t outer_;  // length of the name around it
  std::unique_ptr<at::RecordFunction> range_;
};

}  // namespace sherd
