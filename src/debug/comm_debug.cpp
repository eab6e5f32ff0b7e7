#include "sherd/comm_debug.h"

#include <torch/nn/module.h>

#include "debug/debug_log.h"
#include "debug/tracker.h"

namespace sherd {
namespace {

detail::NamedTensors parameters_of(const torch::nn::Module& module) {
  detail::NamedTensors names;
  for (const auto& item : module.named_parameters()) names.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) names.emplace_back(item.key(), item.value());
  return names;
}

}  // namespace

std::string to_string(CommPass pass) { return pass == CommPass::forward ? "forward" : "backward"; }

CommDebugMode::CommDebugMode(const CommDebugOptions& options) : CommDebugMode(detail::NamedTensors(), options) {}

CommDebugMode::CommDebugMode(const torch::nn::Module& module, const CommDebugOptions& options)
    : CommDebugMode(parameters_of(module), options) {}

CommDebugMode::CommDebugMode(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                             const CommDebugOptions& options)
    : log_(std::make_shared<detail::DebugLog>(options)) {
  detail::Tracker::start(log_, parameters);
}

CommDebugMode::~CommDebugMode() { stop(); }

void CommDebugMode::stop() { detail::Tracker::stop(log_); }

std::vector<CommRecord> CommDebugMode::records() const {
  std::vector<CommRecord> records;
  for (auto& entry : log_->entries()) records.push_back(std::move(entry.record));
  return records;
}

std::vector<OperatorRecord> CommDebugMode::operators() const { return log_->all_operators(); }

std::map<std::string, int64_t> CommDebugMode::counts() const {
  std::map<std::string, int64_t> counts;
  for (const CommRecord& record : records()) ++counts[record.collective];
  return counts;
}

std::map<std::string, int64_t> CommDebugMode::counts(CommPass pass) const {
  std::map<std::string, int64_t> counts;
  for (const CommRecord& record : records()) {
    if (record.pass == pass) ++counts[record.collective];
  }
  return counts;
}

int64_t CommDebugMode::bytes() const { return bytes(CommPass::forward) + bytes(CommPass::backward); }

int64_t CommDebugMode::bytes(CommPass pass) const {
  int64_t total = 0;
  for (const CommRecord& record : records()) {
    if (record.pass == pass) total += record.bytes;
  }
  return total;
}

}  // namespace sherd
