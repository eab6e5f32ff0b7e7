#include "checkpoint/tensor_bytes.h"

#include <algorithm>

namespace sherd::detail {

at::Tensor elements_of(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); }

void for_each_part(const at::Tensor& tensor, int64_t limit,
                   const std::function<void(std::span<const std::byte>)>& use) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  if (bytes == 0) return;
  const bool as_it_is = tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  if (as_it_is || bytes <= limit || tensor.dim() == 0) {
    const at::Tensor whole = elements_of(tensor).cpu();
    const std::span all(static_cast<const std::byte*>(whole.const_data_ptr()), static_cast<size_t>(bytes));
    for (int64_t at = 0; at < bytes; at += limit) {
      use(all.subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(limit, bytes - at))));
    }
    return;
  }
  // By rows of the first dim, as many as fit; a row that does not fit is taken apart itself.
  const int64_t rows = tensor.size(0);
  const int64_t fitting = std::max<int64_t>(limit / (bytes / rows), 1);
  for (int64_t row = 0; row < rows; row += fitting) {
    const int64_t count = std::min(fitting, rows - row);
    for_each_part(count == 1 ? tensor.select(0, row) : tensor.narrow(0, row, count), limit, use);
  }
}

}  // namespace sherd::detail
