#include "stored/copy_elements.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace sherd::stored {
namespace {

struct Dim {
  int64_t size;
  int64_t from;  // strides
  int64_t into;
};

// Without dims of one element, and with those that follow each other on both sides made one.
std::vector<Dim> merged(const Dims& sizes, const Dims& from, const Dims& into) {
  std::vector<Dim> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    const Dim dim{sizes[d], from[d], into[d]};
    if (!dims.empty() && dims.back().from == dim.size * dim.from && dims.back().into == dim.size * dim.into) {
      dims.back() = {dims.back().size * dim.size, dim.from, dim.into};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

template <size_t kSize>
void copy_row(const Dim& dim, const std::byte* from, std::byte* into) {
  for (int64_t i = 0; i < dim.size; ++i) {
    std::memcpy(into, from, kSize);
    from += dim.from * static_cast<int64_t>(kSize);
    into += dim.into * static_cast<int64_t>(kSize);
  }
}

void copy_row(const Dim& dim, int64_t element_size, const std::byte* from, std::byte* into) {
  if (dim.from == 1 && dim.into == 1) {
    std::memcpy(into, from, static_cast<size_t>(dim.size * element_size));
    return;
  }
  switch (element_size) {
    case 1:
      return copy_row<1>(dim, from, into);
    case 2:
      return copy_row<2>(dim, from, into);
    case 4:
      return copy_row<4>(dim, from, into);
    case 8:
      return copy_row<8>(dim, from, into);
    default:
      return copy_row<16>(dim, from, into);
  }
}

void copy(const Dim* dims, size_t count, int64_t element_size, const std::byte* from, std::byte* into) {
  if (count == 1) {
    copy_row(*dims, element_size, from, into);
    return;
  }
  for (int64_t i = 0; i < dims->size; ++i) {
    copy(dims + 1, count - 1, element_size, from + i * dims->from * element_size, into + i * dims->into * element_size);
  }
}

}  // namespace

Dims row_major(const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  return strides;
}

bool is_row_major(const Dims& sizes, const Dims& strides) {
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

bool is_dense(const Dims& sizes, const Dims& strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) dims.emplace_back(strides[d], sizes[d]);
  }
  std::ranges::sort(dims);
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

void copy_elements(const Dims& sizes, int64_t element_size, const std::byte* from, const Dims& from_strides,
                   std::byte* into, const Dims& into_strides) {
  if (numel(sizes) == 0) return;
  const std::vector<Dim> dims = merged(sizes, from_strides, into_strides);
  if (dims.empty()) {
    std::memcpy(into, from, static_cast<size_t>(element_size));
  } else {
    copy(dims.data(), dims.size(), element_size, from, into);
  }
}

}  // namespace sherd::stored
