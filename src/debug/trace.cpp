// Traces in the form that Chrome and Perfetto read: a list of events, times in microseconds.

#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/errors.h"
#include "comm/mesh_group.h"
#include "comm/observer.h"
#include "debug/debug_log.h"
#include "debug/write_file.h"
#include "layout/json_text.h"
#include "sherd/collectives.h"
#include "sherd/comm_debug.h"

namespace sherd {
namespace {

using detail::json_text;

enum Lane : int { compute = 0, communication = 1, background = 2 };

// The number that a viewer knows a lane by. Perfetto takes 0 and the number of the process itself, which is the rank,
// for one thread, the main one, and would draw two lanes as one.
int lane_id(int rank, int lane) { return 100 * (rank + 1) + lane; }

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

// "M": what a process or a lane is called, and where it stands.
std::string naming(const char* what, int rank, int lane, const std::string& name) {
  return fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "args": {{"name": {}}}}})", what, rank,
                     lane_id(rank, lane), json_text(name));
}

std::string ordering(const char* what, int rank, int lane, int place) {
  return fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "args": {{"sort_index": {}}}}})", what, rank,
                     lane_id(rank, lane), place);
}

// "X": something with a beginning and a duration.
std::string event(const std::string& name, const char* category, int rank, Lane lane, int64_t start_ns,
                  int64_t duration_ns, const std::string& arguments) {
  return fmt::format(
      R"({{"ph": "X", "name": {}, "cat": "{}", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {{{}}}}})",
      json_text(name), category, rank, lane_id(rank, lane), microseconds(start_ns), microseconds(duration_ns),
      arguments);
}

// The events of one rank, separated by commas. `shift_ns`: from this mode's beginning to the beginning of the trace.
std::string events_of(const CommDebugMode& debug, int64_t shift_ns) {
  const int rank = debug.log().rank;
  const std::vector<CommRecord> records = debug.records();
  const bool beside = std::any_of(records.begin(), records.end(), [](const CommRecord& r) { return r.background; });
  std::vector<std::string> events = {naming("process_name", rank, 0, "rank"),  // viewers put its number behind it
                                     ordering("process_sort_index", rank, 0, rank),
                                     naming("thread_name", rank, compute, "compute"),
                                     ordering("thread_sort_index", rank, compute, compute),
                                     naming("thread_name", rank, communication, "communication"),
                                     ordering("thread_sort_index", rank, communication, communication)};
  if (beside) {
    events.push_back(naming("thread_name", rank, background, "communication in the background"));
    events.push_back(ordering("thread_sort_index", rank, background, background));
  }
  for (const OperatorRecord& op : debug.operators()) {
    events.push_back(event(op.name, "operator", rank, compute, shift_ns + op.start_ns, op.duration_ns,
                           fmt::format(R"("module": {}, "scope": {}, "pass": {})", json_text(op.module),
                                       json_text(op.scope), json_text(to_string(op.pass)))));
  }
  for (const CommRecord& r : records) {
    std::string arguments = fmt::format(
        R"("axis": {}, "bytes": {}, "dtype": {}, "for": {}, "module": {}, "scope": {}, "pass": {}, "parameters": {})",
        json_text(r.axis), r.bytes, json_text(r.dtype), json_text(r.operation), json_text(r.module), json_text(r.scope),
        json_text(to_string(r.pass)), detail::json_list(r.parameters));
    if (r.operand >= 0) arguments += fmt::format(R"(, "moves": {})", json_text(r.operand_from + " -> " + r.operand_to));
    events.push_back(event(fmt::format("{} {}", r.collective, r.axis), "communication", rank,
                           r.background ? background : communication, shift_ns + r.start_ns, r.duration_ns, arguments));
  }
  std::string text;
  for (const std::string& each : events) text += (text.empty() ? "" : ",\n") + each;
  return text;
}

std::string trace_of(const std::vector<std::string>& ranks) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ",\n" : "") + ranks[i];
  return text + "\n]}\n";
}

// What is done for a trace is no part of it.
class Unwatched {
 public:
  Unwatched() : observer_(detail::set_comm_observer(nullptr)) {}
  ~Unwatched() { detail::set_comm_observer(observer_); }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  detail::CommObserver* observer_;
  at::DisableRecordFunctionGuard no_operators_;
};

void write_trace(const std::string& path, const std::string& trace) {
  const int why = detail::write_file(path, trace);
  if (why == 0) return;
  detail::throw_value_error(ErrorText("save_trace", "the file cannot be written")
                                .fact("file", path)
                                .fact("why", std::strerror(why))
                                .help("a path in a folder that exists: save_trace(debug, \"trace.json\")"));
}

}  // namespace

std::string trace_json(const CommDebugMode& debug) { return trace_of({events_of(debug, 0)}); }

std::string gather_traces(const CommDebugMode& debug, const Group& group) {
  const Unwatched itself;
  const int64_t began = debug.log().epoch_ns;
  int64_t first = began;
  for (const std::string& text : all_gather_text(group, std::to_string(began))) {
    first = std::min(first, static_cast<int64_t>(std::stoll(text)));
  }
  return trace_of(all_gather_text(group, events_of(debug, began - first)));
}

std::string gather_traces(const CommDebugMode& debug, const DeviceMesh& mesh) {
  return gather_traces(debug, detail::group_of(mesh));
}

void save_trace(const CommDebugMode& debug, const std::string& path, const DeviceMesh& mesh) {
  save_trace(debug, path, detail::group_of(mesh));
}

void save_trace(const CommDebugMode& debug, const std::string& path) { write_trace(path, trace_json(debug)); }

void save_trace(const CommDebugMode& debug, const std::string& path, const Group& group) {
  const Unwatched itself;
  const std::string trace = gather_traces(debug, group);
  agree(group, "save_trace", [&] {
    if (group.rank() == 0) write_trace(path, trace);
  });
}

}  // namespace sherd
