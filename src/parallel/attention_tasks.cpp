#include "parallel/attention_tasks.h"

#include <algorithm>
#include <numeric>

namespace sherd::detail {
namespace {

int64_t total(const std::vector<Run>& runs) {
  return std::accumulate(runs.begin(), runs.end(), int64_t{0}, [](int64_t sum, const Run& r) { return sum + r.size; });
}

}  // namespace

std::vector<AttentionTask> attention_tasks(const std::vector<Run>& queries, const std::vector<Run>& keys, bool causal) {
  std::vector<AttentionTask> tasks;
  if (!causal) {
    const Run all_queries{0, total(queries)};
    const Run all_keys{0, total(keys)};
    if (all_queries.size > 0 && all_keys.size > 0) tasks.push_back({all_queries, all_keys});
    return tasks;
  }
  int64_t query_row = 0;  // where a run begins in the local tensor
  for (const Run& q : queries) {
    // Keys before the first of the queries are seen by all of them. Positions ascend: they are the first rows.
    int64_t key_row = 0;
    int64_t seen_by_all = 0;
    std::vector<AttentionTask> triangles;
    for (const Run& k : keys) {
      const int64_t before = std::clamp(q.offset - k.offset, int64_t{0}, k.size);
      seen_by_all += before;
      const int64_t first = std::max(q.offset, k.offset);
      const int64_t end = std::min(q.offset + q.size, k.offset + k.size);
      if (first < end) {
        triangles.push_back({{query_row + first - q.offset, q.offset + q.size - first},
                             {key_row + first - k.offset, end - first},
                             true});
      }
      key_row += k.size;
    }
    if (seen_by_all > 0) tasks.push_back({{query_row, q.size}, {0, seen_by_all}});
    tasks.insert(tasks.end(), triangles.begin(), triangles.end());
    query_row += q.size;
  }
  return tasks;
}

}  // namespace sherd::detail
