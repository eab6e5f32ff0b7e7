// Compiled with --fmad=false: the same numbers as on the CPU, to the last bit.

#include "random/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "random/count_numbers.h"
#include "random/makers.h"

namespace sherd::detail {
namespace {

constexpr int kThreads = 256;

// A row of the last dim, whose places follow each other.
struct Row {
  int64_t local;   // of its first element
  int64_t global;  // its place
};

__device__ Row row_at(const DevicePositions& positions, int64_t row) {
  const int last = positions.ndim - 1;
  Row found{row * positions.size[last], positions.first[last]};
  for (int d = last - 1; d >= 0; --d) {
    const int64_t i = row % positions.size[d];
    row /= positions.size[d];
    found.global += (positions.rows[d] != nullptr ? positions.rows[d][i] : positions.first[d] + i) * positions.stride[d];
  }
  return found;
}

// A block's numbers among the elements of a row. A row may begin and end within a block.
struct Work {
  int64_t local;   // of the block's first number; may lie before the row
  uint64_t block;
  int begin, end;  // those of its numbers that are the row's
};

// One row, as a contiguous part of the global tensor is, spares the arithmetic of finding it.
template <bool OneRow>
__device__ __forceinline__ Work work_of(const DevicePositions& positions, int64_t blocks_of_row, int64_t item, int each) {
  const int last = positions.ndim - 1;
  const int64_t row = OneRow ? 0 : item / blocks_of_row;
  const Row where = OneRow ? Row{0, positions.first[last]} : row_at(positions, row);
  const int64_t block = where.global / each + (OneRow ? item : item - row * blocks_of_row);
  const int64_t before = where.global - block * each;  // numbers of the block in front of the row
  const int64_t behind = before + positions.size[last];
  return {where.local - before, static_cast<uint64_t>(block), static_cast<int>(before > 0 ? before : 0),
          static_cast<int>(behind < each ? (behind > 0 ? behind : 0) : each)};
}

// What a number is in memory. Sixteen-bit floats are moved as bits: four at once, which their own types are not.
template <class T>
struct Memory {
  using Type = T;
};
template <>
struct Memory<__half> {
  using Type = uint16_t;
};
template <>
struct Memory<__nv_bfloat16> {
  using Type = uint16_t;
};
template <class T>
using InMemory = typename Memory<T>::Type;

template <class T, int Count>
struct alignas(sizeof(T) * Count) Pack {
  T numbers[Count];
};

template <class T, class Number>
__device__ __forceinline__ InMemory<T> stored_as(Number number) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half_as_ushort(__float2half_rn(static_cast<float>(number)));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(number)));
  } else if constexpr (std::is_same_v<T, bool>) {
    return number != 0;
  } else {
    return static_cast<T>(number);
  }
}

template <class T, class Number>
__device__ __forceinline__ Number loaded_as(InMemory<T> bits) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(__ushort_as_half(bits));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(__ushort_as_bfloat16(bits));
  } else {
    return bits;
  }
}

template <class T, int Each>
__device__ __forceinline__ void store(T* to, const Work& work, const T* numbers) {
  using Whole = Pack<T, Each>;
  T* at = to + work.local;
  if (work.begin == 0 && work.end == Each && reinterpret_cast<uintptr_t>(at) % alignof(Whole) == 0) {
    Whole whole;
#pragma unroll
    for (int i = 0; i < Each; ++i) whole.numbers[i] = numbers[i];
    *reinterpret_cast<Whole*>(at) = whole;
    return;
  }
  // Every index is a constant: the numbers stay in registers.
#pragma unroll
  for (int i = 0; i < Each; ++i) {
    if (i >= work.begin && i < work.end) at[i] = numbers[i];
  }
}

template <class T, class Make, bool OneRow>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(Make make, uint64_t seed, uint64_t offset, DevicePositions positions, int64_t blocks_of_row,
                int64_t items, InMemory<T>* out) {
  constexpr int each = 4 / Make::kWords;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < items; item += step) {
    const Work work = work_of<OneRow>(positions, blocks_of_row, item, each);
    if (work.begin >= work.end) continue;
    const PhiloxBlock block = philox(seed, offset, work.block);
    typename Make::Number numbers[each];
#pragma unroll
    for (int i = 0; i < each; i += Make::kGroup) make(block.words + i * Make::kWords, numbers + i);
    InMemory<T> converted[each];
#pragma unroll
    for (int i = 0; i < each; ++i) converted[i] = stored_as<T>(numbers[i]);
    store<InMemory<T>, each>(out, work, converted);
  }
}

template <class T, class Number, bool OneRow>
__global__ void __launch_bounds__(kThreads)
    drop_kernel(uint32_t last, bool any, Number scale, uint64_t seed, uint64_t offset, DevicePositions positions,
                int64_t blocks_of_row, int64_t items, const InMemory<T>* in, InMemory<T>* out, bool* mask) {
  using Stored = InMemory<T>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < items; item += step) {
    const Work work = work_of<OneRow>(positions, blocks_of_row, item, 4);
    if (work.begin >= work.end) continue;
    const Stored* from = in + work.local;
    Stored given[4];
    if (work.begin == 0 && work.end == 4 && reinterpret_cast<uintptr_t>(from) % alignof(Pack<Stored, 4>) == 0) {
      const auto whole = *reinterpret_cast<const Pack<Stored, 4>*>(from);
#pragma unroll
      for (int i = 0; i < 4; ++i) given[i] = whole.numbers[i];
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) given[i] = i >= work.begin && i < work.end ? from[i] : Stored{0};
    }
    const PhiloxBlock block = philox(seed, offset, work.block);
    Stored kept[4];
    bool keeps[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      keeps[i] = any && block.words[i] <= last;
      kept[i] = keeps[i] ? stored_as<T>(loaded_as<T, Number>(given[i]) * scale) : Stored{0};
    }
    store<Stored, 4>(out, work, kept);
    if (mask != nullptr) store<bool, 4>(mask, work, keeps);
  }
}

__global__ void count_kernel(int kind, const double* a, const double* b, uint64_t seed, uint64_t offset,
                             DevicePositions positions, int64_t count, double* out) {
  const int64_t length = positions.size[positions.ndim - 1];
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const Row row = row_at(positions, i / length);
    const auto place = static_cast<uint64_t>(row.global + i % length);
    if (kind == 0) {
      out[i] = philox(seed, offset, place / 4).words[place % 4] < threshold(a[i]) ? 1 : 0;
    } else if (kind == 1) {
      out[i] = poisson_count(a[i], Uniforms(seed, offset, place));
    } else {
      out[i] = binomial_count(a[i], b[i], Uniforms(seed, offset, place));
    }
  }
}

int64_t rows_of(const DevicePositions& positions) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < positions.ndim; ++d) rows *= positions.size[d];
  return rows;
}

// A row of n elements touches at most this many blocks.
int64_t blocks_for(int64_t length, int each) { return (length + each - 1) / each + 1; }

// Enough for every multiprocessor to be busy; a thread does several blocks after each other.
unsigned grid_for(int64_t items) {
  int device = 0;
  int processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int64_t blocks = (items + kThreads - 1) / kThreads;
  const int64_t most = int64_t{32} * (processors > 0 ? processors : 64);
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

template <class T, class Real>
void fill_as(const Draw& draw, int bits, void* out, const DevicePositions& positions, cudaStream_t stream) {
  with_maker<Real>(draw, bits, [&](const auto& make) {
    using Make = std::decay_t<decltype(make)>;
    const int64_t blocks = blocks_for(positions.size[positions.ndim - 1], 4 / Make::kWords);
    const int64_t items = blocks * rows_of(positions);
    const auto kernel = positions.ndim == 1 ? fill_kernel<T, Make, true> : fill_kernel<T, Make, false>;
    kernel<<<grid_for(items), kThreads, 0, stream>>>(make, draw.seed, draw.offset, positions, blocks, items,
                                                     static_cast<InMemory<T>*>(out));
  });
}

template <class T, class Number>
void drop_as(const Dropout& dropout, const void* in, void* out, bool* mask, const DevicePositions& positions,
             cudaStream_t stream) {
  const uint64_t limit = threshold(1 - dropout.p);
  const auto scale = static_cast<Number>(dropout.p < 1 ? 1 / (1 - dropout.p) : 0);
  const int64_t blocks = blocks_for(positions.size[positions.ndim - 1], 4);
  const int64_t items = blocks * rows_of(positions);
  const auto kernel = positions.ndim == 1 ? drop_kernel<T, Number, true> : drop_kernel<T, Number, false>;
  kernel<<<grid_for(items), kThreads, 0, stream>>>(static_cast<uint32_t>(limit - 1), limit > 0, scale, dropout.seed,
                                                   dropout.offset, positions, blocks, items,
                                                   static_cast<const InMemory<T>*>(in), static_cast<InMemory<T>*>(out),
                                                   mask);
}

}  // namespace

cudaError_t launch_fill(const Draw& draw, Stored type, void* out, const DevicePositions& positions,
                        cudaStream_t stream) {
  switch (type) {
    case Stored::f32:
      fill_as<float, float>(draw, 24, out, positions, stream);
      break;
    case Stored::f64:
      fill_as<double, double>(draw, 0, out, positions, stream);
      break;
    case Stored::f16:
      fill_as<__half, float>(draw, 11, out, positions, stream);
      break;
    case Stored::bf16:
      fill_as<__nv_bfloat16, float>(draw, 8, out, positions, stream);
      break;
    case Stored::u8:
      fill_as<uint8_t, void>(draw, 0, out, positions, stream);
      break;
    case Stored::i8:
      fill_as<int8_t, void>(draw, 0, out, positions, stream);
      break;
    case Stored::i16:
      fill_as<int16_t, void>(draw, 0, out, positions, stream);
      break;
    case Stored::i32:
      fill_as<int32_t, void>(draw, 0, out, positions, stream);
      break;
    case Stored::i64:
      fill_as<int64_t, void>(draw, 0, out, positions, stream);
      break;
    case Stored::u16:
      fill_as<uint16_t, void>(draw, 0, out, positions, stream);
      break;
    case Stored::u32:
      fill_as<uint32_t, void>(draw, 0, out, positions, stream);
      break;
    case Stored::u64:
      fill_as<uint64_t, void>(draw, 0, out, positions, stream);
      break;
    case Stored::truth:
      fill_as<bool, void>(draw, 0, out, positions, stream);
      break;
  }
  return cudaGetLastError();
}

cudaError_t launch_drop(const Dropout& dropout, Stored type, const void* in, void* out, bool* mask,
                        const DevicePositions& positions, cudaStream_t stream) {
  switch (type) {
    case Stored::f32:
      drop_as<float, float>(dropout, in, out, mask, positions, stream);
      break;
    case Stored::f64:
      drop_as<double, double>(dropout, in, out, mask, positions, stream);
      break;
    case Stored::f16:
      drop_as<__half, float>(dropout, in, out, mask, positions, stream);
      break;
    case Stored::bf16:
      drop_as<__nv_bfloat16, float>(dropout, in, out, mask, positions, stream);
      break;
    default:
      break;
  }
  return cudaGetLastError();
}

cudaError_t launch_counts(int kind, const double* a, const double* b, double* out, const DevicePositions& positions,
                          uint64_t seed, uint64_t offset, cudaStream_t stream) {
  const int64_t count = rows_of(positions) * positions.size[positions.ndim - 1];
  count_kernel<<<grid_for(count), kThreads, 0, stream>>>(kind, a, b, seed, offset, positions, count, out);
  return cudaGetLastError();
}

}  // namespace sherd::detail
