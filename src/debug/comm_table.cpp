// A CommDebugMode as a table and as JSON.

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "debug/debug_log.h"
#include "debug/text_table.h"
#include "layout/json_text.h"
#include "plan/redistribute.h"
#include "sherd/comm_debug.h"

namespace sherd {
namespace {

struct Line {
  CommRecord like;
  int64_t count = 0;
  int64_t bytes = 0;
};

auto what_of(const CommRecord& record) {
  return std::tie(record.pass, record.operation, record.module, record.scope, record.collective, record.axis,
                  record.dtype);
}

// In the order in which they came first.
std::vector<Line> lines_of(const std::vector<CommRecord>& records) {
  std::vector<Line> lines;
  for (const CommRecord& record : records) {
    auto line =
        std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return what_of(l.like) == what_of(record); });
    if (line == lines.end()) line = lines.insert(lines.end(), Line{record});
    ++line->count;
    line->bytes += record.bytes;
  }
  return lines;
}

std::string place_of(const CommRecord& record) {
  if (record.scope.empty()) return record.module;
  return record.module.empty() ? record.scope : record.scope + ": " + record.module;
}

std::string counts_json(const CommDebugMode& debug, CommPass pass) {
  std::string text;
  for (const auto& [name, count] : debug.counts(pass)) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", detail::json_text(name), count);
  }
  return fmt::format("{{\"bytes\": {}, \"counts\": {{{}}}}}", debug.bytes(pass), text);
}

std::string record_json(const CommRecord& r) {
  using detail::json_text;
  std::string operand = "null";
  if (r.operand >= 0) {
    operand = fmt::format("{{\"index\": {}, \"from\": {}, \"to\": {}}}", r.operand, json_text(r.operand_from),
                          json_text(r.operand_to));
  }
  return fmt::format(
      "{{\"collective\": {}, \"axis\": {}, \"group\": {}, \"dtype\": {}, \"numel\": {}, \"bytes\": {}, "
      "\"operation\": {}, \"called_by\": {}, \"module\": {}, \"parameters\": {}, \"scope\": {}, \"pass\": {}, "
      "\"background\": {}, \"operand\": {}, \"start_ns\": {}, \"duration_ns\": {}}}",
      json_text(r.collective), json_text(r.axis), json_text(r.group), json_text(r.dtype), r.numel, r.bytes,
      json_text(r.operation), json_text(r.called_by), json_text(r.module), detail::json_list(r.parameters),
      json_text(r.scope), json_text(to_string(r.pass)), r.background ? "true" : "false", operand, r.start_ns,
      r.duration_ns);
}

}  // namespace

std::string to_string(const CommDebugMode& debug) {
  const std::vector<CommRecord> records = debug.records();
  if (records.empty()) return "no communication\n";
  std::vector<std::vector<std::string>> rows = {
      {"pass", "operation", "module", "collective", "axis", "dtype", "calls", "received"}};
  for (const CommPass pass : {CommPass::forward, CommPass::backward}) {
    int64_t count = 0;
    for (const Line& line : lines_of(records)) {
      if (line.like.pass != pass) continue;
      const CommRecord& like = line.like;
      rows.push_back({to_string(pass), like.operation.empty() ? "(the program)" : like.operation, place_of(like),
                      like.collective, like.axis, like.dtype, std::to_string(line.count),
                      plan::bytes_text(line.bytes)});
      count += line.count;
    }
    rows.push_back(
        {to_string(pass), "all", "", "", "", "", std::to_string(count), plan::bytes_text(debug.bytes(pass))});
  }
  return detail::text_table(rows, {false, false, false, false, false, false, true, true});
}

std::string to_json(const CommDebugMode& debug) {
  std::string records;
  for (const CommRecord& record : debug.records()) records += (records.empty() ? "\n" : ",\n") + record_json(record);
  return fmt::format("{{\"rank\": {},\n\"total\": {{\"forward\": {}, \"backward\": {}}},\n\"records\": [{}]}}\n",
                     debug.log().rank, counts_json(debug, CommPass::forward), counts_json(debug, CommPass::backward),
                     records);
}

}  // namespace sherd
