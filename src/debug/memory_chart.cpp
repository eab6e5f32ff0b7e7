#include <charconv>

#include "comm/errors.h"
#include "sherd/dtensor.h"
#include "sherd/local_shards.h"
#include "sherd/report.h"
#include "sherd/sharded_tensor.h"

namespace sherd {
namespace {

int64_t bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  if (is_local_shards(tensor)) return LocalShardsWrapper(tensor).size_bytes();
  if (is_dtensor(tensor)) return mesh_of(tensor).coordinate() ? bytes_of(to_local(tensor.detach())) : 0;
  if (!sharded::is_sharded_tensor(tensor)) return static_cast<int64_t>(tensor.nbytes());
  int64_t bytes = 0;
  for (const auto& shard : sharded::ShardedTensorBase(tensor).local_shards()) bytes += bytes_of(shard.tensor);
  return bytes;
}

}  // namespace

int64_t bytes_here(std::span<const at::Tensor> tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

BarChart memory_chart(const Group& group, std::string title, std::span<const MemoryPart> parts) {
  BarChart chart{.title = std::move(title), .parts = {}, .bars = {}};
  chart.unit = BarChart::Unit::bytes;
  std::string told;
  for (const MemoryPart& part : parts) {
    chart.parts.push_back(part.name);
    told += std::to_string(bytes_here(part.tensors)) + "\n";
  }
  const std::vector<std::string> of_all = all_gather_text(group, told);
  const std::vector<int64_t>& ranks = group.ranks();
  for (size_t i = 0; i < of_all.size(); ++i) {
    ChartBar bar{"rank " + std::to_string(ranks[i]), {}};
    const char* at = of_all[i].data();
    const char* const end = at + of_all[i].size();
    for (int64_t bytes = 0; at < end; ++at) {
      at = std::from_chars(at, end, bytes).ptr;
      bar.values.push_back(static_cast<double>(bytes));
    }
    if (bar.values.size() != parts.size())
      detail::throw_value_error(ErrorText("memory_chart", "a rank has another number of parts than this one")
                                    .fact("rank", std::to_string(ranks[i]))
                                    .fact("its parts", std::to_string(bar.values.size()))
                                    .fact("here", std::to_string(parts.size()))
                                    .help("every rank of the group names the same parts"));
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

}  // namespace sherd
