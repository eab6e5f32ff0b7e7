#include "tensor/row_places.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace sherd::detail {

using plan::RunGrid;
using plan::RunList;

RunList positions(const RunList& held, const RunList& rows) {
  RunList result;
  for (const Run& row : rows) {
    int64_t local = 0;
    for (const Run& run : held) {
      const int64_t begin = std::max(run.offset, row.offset);
      const int64_t end = std::min(run.offset + run.size, row.offset + row.size);
      if (begin < end) {
        const Run part{local + begin - run.offset, end - begin};
        if (!result.empty() && result.back().offset + result.back().size == part.offset) {
          result.back().size += part.size;
        } else {
          result.push_back(part);
        }
      }
      local += run.size;
    }
  }
  // Without this, what is not there would be left out, and the rest taken for all of it.
  TORCH_INTERNAL_ASSERT(plan::rows_of(result) == plan::rows_of(rows), "rows are not held");
  return result;
}

std::vector<RunList> places_of(const RunGrid& held, const RunGrid& rows) {
  std::vector<RunList> places;
  for (size_t d = 0; d < rows.size(); ++d) places.push_back(positions(held[d], rows[d]));
  return places;
}

}  // namespace sherd::detail
