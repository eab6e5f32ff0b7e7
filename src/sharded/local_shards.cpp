#include "sharded/local_shards.h"

#include <ATen/core/Formatting.h>
#include <c10/core/DefaultDtype.h>
#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "comm/call.h"
#include "comm/errors.h"

namespace sherd {
namespace detail {
namespace {

// The rows of one dim that some chunk has, as ascending runs, and how many of them stand before each.
class ClosedUp {
 public:
  ClosedUp(const std::vector<ChunkMetadata>& chunks, size_t dim) {
    for (const ChunkMetadata& chunk : chunks) runs_.push_back({chunk.offsets[dim], chunk.sizes[dim]});
    std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.offset < b.offset; });
    size_t kept = 0;
    for (const Run& run : runs_) {
      Run* last = kept > 0 ? &runs_[kept - 1] : nullptr;
      if (last != nullptr && run.offset <= last->offset + last->size) {
        last->size = std::max(last->size, run.offset + run.size - last->offset);
      } else {
        runs_[kept++] = run;
      }
    }
    runs_.resize(kept);
    for (const Run& run : runs_) {
      before_.push_back(rows_);
      rows_ += run.size;
    }
  }

  int64_t rows() const { return rows_; }
  // Where a row that some chunk begins with is then.
  int64_t place(int64_t row) const {
    const auto after =
        std::upper_bound(runs_.begin(), runs_.end(), row, [](int64_t r, const Run& run) { return r < run.offset; });
    const auto i = static_cast<size_t>(after - runs_.begin()) - 1;
    return before_[i] + row - runs_[i].offset;
  }

 private:
  std::vector<Run> runs_;
  std::vector<int64_t> before_;
  int64_t rows_ = 0;
};

}  // namespace

LocalShardsLayout::LocalShardsLayout(std::vector<ChunkMetadata> where, std::optional<Dims> global_size, size_t ndim)
    : chunks(std::move(where)), table(chunks) {
  outer.emplace();
  outer->size = std::move(global_size);
  for (const ChunkMetadata& chunk : chunks) {
    outer->boxes.push_back(chunk.box());
    boxes.push_back({Dims(ndim, 0), chunk.sizes});
  }
  cut.assign(ndim, true);
  for (size_t d = 0; d < ndim; ++d) {
    const ClosedUp rows(chunks, d);
    size.push_back(rows.rows());
    for (size_t i = 0; i < chunks.size(); ++i) boxes[i].offset[d] = rows.place(chunks[i].offsets[d]);
  }
}

}  // namespace detail

namespace {

using at::Tensor;
using detail::boxes_of;
using detail::LocalShardsLayout;

constexpr const char* kOperation = "LocalShardsWrapper";

const LocalShardsLayout& layout_of(const Tensor& tensor) { return *detail::local_shards_layout(tensor); }

std::string shard_text(const Tensor& shard) {
  return fmt::format("{}{} on {}", detail::dtype_name(shard.scalar_type()), to_string(shard.sizes().vec()),
                     shard.device().str());
}

// Checks the shards one by one, and against each other.
class ShardCheck {
 public:
  ShardCheck(const std::vector<Tensor>& shards, const std::vector<Dims>& offsets, const LocalShardsOptions& options)
      : shards_(shards), offsets_(offsets), options_(options) {}

  void run() const {
    if (shards_.size() != offsets_.size()) {
      fail(ErrorText(kOperation, "there must be one offset for each shard")
               .fact("shards", std::to_string(shards_.size()))
               .fact("offsets", std::to_string(offsets_.size())),
           "LocalShardsWrapper({a, b}, {{0, 0}, {0, 2}})");
    }
    check_global_size();
    for (size_t i = 0; i < shards_.size(); ++i) {
      check_kind(i);
      check_place(i);
      check_like_first(i);
    }
    check_apart();
  }

 private:
  [[noreturn]] static void fail(ErrorText text, const std::string& help) { detail::throw_value_error(text.help(help)); }
  static std::string name(size_t i) { return fmt::format("shard {}", i); }

  void check_global_size() const {
    if (!options_.global_size) {
      if (!shards_.empty()) return;
      fail(ErrorText(kOperation, "a rank without shards must say of which tensor it has none").fact("shards", "0"),
           "LocalShardsWrapper({}, {}, {.global_size = {1000, 64}, .dtype = torch::kFloat})");
    }
    for (const int64_t n : *options_.global_size) {
      if (n >= 0) continue;
      fail(ErrorText(kOperation, "a size is negative").fact("global_size", to_string(*options_.global_size)),
           "sizes >= 0");
    }
  }

  void check_kind(size_t i) const {
    const Tensor& shard = shards_[i];
    if (!shard.defined())
      fail(ErrorText(kOperation, name(i) + " is undefined").fact("shard", std::to_string(i)), "a tensor");
    const bool dense = shard.layout() == c10::kStrided && !shard.is_nested() && !shard.is_quantized();
    if (!dense || detail::has_meta(shard.unsafeGetTensorImpl())) {
      fail(ErrorText(kOperation, name(i) + " is no plain dense tensor").fact(name(i), shard_text(shard)),
           "its local tensor, or to_dense()");
    }
    if (!shard.is_leaf()) {
      fail(ErrorText(kOperation, name(i) + " was computed: its history would be lost").fact(name(i), shard_text(shard)),
           "shard.detach()");
    }
  }

  void check_place(size_t i) const {
    const Dims size = shards_[i].sizes().vec();
    const Dims& offset = offsets_[i];
    if (offset.size() != size.size()) {
      fail(ErrorText(kOperation, name(i) + " has another number of dims than its offsets")
               .fact(name(i), to_string(size))
               .fact("offsets", to_string(offset)),
           fmt::format("{} offsets", size.size()));
    }
    for (size_t d = 0; d < size.size(); ++d) {
      int64_t end = 0;
      if (offset[d] >= 0 && !__builtin_add_overflow(offset[d], size[d], &end)) continue;
      fail(ErrorText(kOperation, name(i) + (offset[d] < 0 ? " begins before the tensor" : " ends beyond all numbers"))
               .fact(name(i), to_string(size))
               .fact("offsets", to_string(offset)),
           "0 <= offset, offset + size < 2^63");
    }
    if (!options_.global_size) return;
    const Dims& whole = *options_.global_size;
    bool inside = whole.size() == size.size();
    for (size_t d = 0; inside && d < size.size(); ++d) inside = offset[d] + size[d] <= whole[d];
    if (inside) return;
    fail(ErrorText(kOperation, name(i) + " is not inside the tensor")
             .fact(name(i), to_string(Box{offset, size}))
             .fact("global_size", to_string(whole)),
         "offsets in the whole tensor, not in this rank's part");
  }

  void check_like_first(size_t i) const {
    const Tensor& first = shards_[0];
    const Tensor& shard = shards_[i];
    const auto differ = [&](const char* what, const std::string& one, const std::string& other, const char* help) {
      fail(ErrorText(kOperation, fmt::format("shards 0 and {} have different {}", i, what))
               .fact("shard 0", one)
               .fact(name(i), other),
           help);
    };
    if (shard.dim() != first.dim())
      differ("numbers of dims", shard_text(first), shard_text(shard), "parts of one tensor");
    if (shard.scalar_type() != first.scalar_type())
      differ("dtypes", shard_text(first), shard_text(shard), "shard.to(dtype)");
    if (shard.device() != first.device()) differ("devices", shard_text(first), shard_text(shard), "shard.to(device)");
    if (shard.requires_grad() != first.requires_grad()) {
      const auto flag = [](const Tensor& t) { return std::string(t.requires_grad() ? "true" : "false"); };
      differ("requires_grad", flag(first), flag(shard), "requires_grad_() on the wrapper");
    }
    if (is_pinned(shard) != is_pinned(first)) {
      const auto flag = [](const Tensor& t) { return std::string(is_pinned(t) ? "pinned" : "not pinned"); };
      differ("memory", flag(first), flag(shard), "shard.pin_memory()");
    }
    if (i > 0) return;
    const auto expect = [&](const char* what, const std::string& given, const std::string& asked) {
      fail(ErrorText(kOperation, fmt::format("the shards have another {} than asked for", what))
               .fact("shard 0", given)
               .fact("asked", asked),
           "leave it out: it is the shards'");
    };
    if (options_.dtype && *options_.dtype != shard.scalar_type()) {
      expect("dtype", detail::dtype_name(shard.scalar_type()), detail::dtype_name(*options_.dtype));
    }
    if (options_.device && *options_.device != shard.device() &&
        (options_.device->has_index() || options_.device->type() != shard.device().type())) {
      expect("device", shard.device().str(), options_.device->str());
    }
  }

  static bool is_pinned(const Tensor& tensor) { return TensorProperties::create_from_tensor(tensor).pin_memory; }

  void check_apart() const {
    std::vector<Box> boxes;
    std::vector<size_t> order;
    for (size_t i = 0; i < shards_.size(); ++i) {
      boxes.push_back({offsets_[i], shards_[i].sizes().vec()});
      order.push_back(i);
    }
    const auto both = [&](const char* why, size_t a, size_t b) {
      return ErrorText(kOperation, fmt::format("shards {} and {} {}", std::min(a, b), std::max(a, b), why))
          .fact(name(std::min(a, b)), to_string(boxes[std::min(a, b)]))
          .fact(name(std::max(a, b)), to_string(boxes[std::max(a, b)]));
    };
    if (const auto fault = find_overlap(boxes)) {
      ErrorText text = both("overlap", fault->first, fault->second);
      fail(text.fact("both hold", to_string(fault->box)), "give every element to one shard");
    }
    // Of two shards at one place, at most one of which has elements, only one could be found again.
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (offsets_[order[i]] != offsets_[order[i - 1]]) continue;
      fail(both("begin at the same place", order[i - 1], order[i]), "leave out the shard without elements");
    }
  }

  const std::vector<Tensor>& shards_;
  const std::vector<Dims>& offsets_;
  const LocalShardsOptions& options_;
};

Tensor wrapped(std::vector<Tensor> shards, const std::vector<Dims>& offsets, const LocalShardsOptions& options) {
  ShardCheck(shards, offsets, options).run();
  std::vector<ChunkMetadata> chunks;
  for (size_t i = 0; i < shards.size(); ++i) chunks.push_back({offsets[i], shards[i].sizes().vec()});
  const size_t ndim = shards.empty() ? options.global_size->size() : static_cast<size_t>(shards[0].dim());
  const auto dtype =
      shards.empty() ? options.dtype.value_or(c10::get_default_dtype_as_scalartype()) : shards[0].scalar_type();
  const auto device = shards.empty() ? options.device.value_or(c10::Device(c10::kCPU)) : shards[0].device();
  const bool requires_grad = !shards.empty() && shards[0].requires_grad();
  const auto layout = std::make_shared<const LocalShardsLayout>(std::move(chunks), options.global_size, ndim);
  Tensor result = detail::wrap_pieces(layout, std::move(shards), dtype, device);
  if (requires_grad) result.set_requires_grad(true);
  return result;
}

}  // namespace

bool is_local_shards(const Tensor& tensor) { return detail::local_shards_layout(tensor) != nullptr; }

LocalShardsWrapper::LocalShardsWrapper(std::vector<Tensor> shards, const std::vector<Dims>& offsets,
                                       const LocalShardsOptions& options)
    : Tensor(wrapped(std::move(shards), offsets, options)) {}

LocalShardsWrapper::LocalShardsWrapper(const Tensor& tensor) : Tensor(tensor) {
  if (is_local_shards(tensor)) return;
  detail::throw_value_error(ErrorText(kOperation, "not a LocalShardsWrapper")
                                .fact("tensor", !tensor.defined() ? "undefined"
                                                                  : detail::dtype_name(tensor.scalar_type()) +
                                                                        sherd::to_string(tensor.sizes().vec()))
                                .help("LocalShardsWrapper({tensor}, {{0, 0}}), or sherd::to_local(dtensor)"));
}

const std::vector<Tensor>& LocalShardsWrapper::local_shards() const {
  const auto& pieces = boxes_of(*this)->pieces;
  // The wrapper's flag is the one that counts; a program may have set it through a handle that knows no shards.
  for (const Tensor& piece : pieces) {
    if (is_leaf() && piece.is_leaf() && piece.requires_grad() != requires_grad()) {
      piece.set_requires_grad(requires_grad());
    }
  }
  return pieces;
}

std::vector<Dims> LocalShardsWrapper::local_sizes() const {
  std::vector<Dims> sizes;
  for (const ChunkMetadata& chunk : local_chunks()) sizes.push_back(chunk.sizes);
  return sizes;
}

std::vector<Dims> LocalShardsWrapper::local_offsets() const {
  std::vector<Dims> offsets;
  for (const ChunkMetadata& chunk : local_chunks()) offsets.push_back(chunk.offsets);
  return offsets;
}

const std::vector<ChunkMetadata>& LocalShardsWrapper::local_chunks() const { return layout_of(*this).chunks; }

TensorStorageMetadata LocalShardsWrapper::storage_metadata() const {
  TensorProperties properties(scalar_type());
  properties.requires_grad = requires_grad();
  properties.pin_memory = is_pinned();
  const auto& layout = layout_of(*this);
  return {properties, layout.outer->size.value_or(layout.size), layout.chunks};
}

bool LocalShardsWrapper::is_empty_shard() const {
  const auto& chunks = local_chunks();
  return std::all_of(chunks.begin(), chunks.end(),
                     [](const ChunkMetadata& chunk) { return sherd::numel(chunk.sizes) == 0; });
}

bool LocalShardsWrapper::is_pinned() const {
  const auto& pieces = boxes_of(*this)->pieces;
  return !pieces.empty() && std::all_of(pieces.begin(), pieces.end(), [](const Tensor& piece) {
    return TensorProperties::create_from_tensor(piece).pin_memory;
  });
}

LocalShardsWrapper& LocalShardsWrapper::requires_grad_(bool requires_grad) {
  set_requires_grad(requires_grad);
  local_shards();
  return *this;
}

int64_t LocalShardsWrapper::size_bytes() const {
  int64_t elements = 0;
  for (const ChunkMetadata& chunk : local_chunks()) elements += sherd::numel(chunk.sizes);
  return elements * static_cast<int64_t>(element_size());
}

std::vector<WriteItem> LocalShardsWrapper::write_items(const std::string& name) const {
  return checkpointable(*this)->write_items(name);
}

std::vector<ChunkMetadata> LocalShardsWrapper::chunk_list() const { return checkpointable(*this)->chunk_list(); }

Tensor LocalShardsWrapper::shard(const ShardIndex& index) const {
  const auto& layout = layout_of(*this);
  return boxes_of(*this)->pieces[layout.table.find(index, layout.chunks, layout.outer->size)].detach();
}

std::string to_string(const LocalShardsWrapper& wrapper) {
  return fmt::format("LocalShardsWrapper {}{} on {}: {}", detail::dtype_name(wrapper.scalar_type()),
                     to_string(wrapper.sizes().vec()), wrapper.device().str(), detail::text_of(wrapper.local_chunks()));
}

std::ostream& operator<<(std::ostream& out, const LocalShardsWrapper& wrapper) {
  out << to_string(wrapper);
  const auto& shards = wrapper.local_shards();
  for (size_t i = 0; i < shards.size(); ++i) {
    out << "\n" << to_string(wrapper.local_chunks()[i].box()) << "\n" << shards[i].detach();
  }
  return out;
}

}  // namespace sherd
