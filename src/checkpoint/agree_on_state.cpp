#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "checkpoint/saved_state.h"
#include "checkpoint/state_paths.h"
#include "checkpoint/tell_all.h"
#include "comm/errors.h"
#include "sharded/bytes.h"

namespace sherd::detail {
namespace {

using Known = SavedLeaf::Known;

std::vector<format::PathPart> file_path(const StatePath& path) { return {path.begin(), path.end()}; }

void put_path(ByteWriter& out, const StatePath& path) {
  out.put(static_cast<uint32_t>(path.size()));
  for (const StateKey& part : path) {
    const auto* text = std::get_if<std::string>(&part);
    out.put(static_cast<char>(text != nullptr ? 't' : 'n'));
    if (text != nullptr) {
      out.put_text(*text);
    } else {
      out.put(std::get<int64_t>(part));
    }
  }
}

StatePath get_path(ByteReader& in) {
  StatePath path;
  for (auto count = in.get<uint32_t>(); count > 0; --count) {
    if (in.get<char>() == 't') {
      path.emplace_back(in.get_text());
    } else {
      path.emplace_back(in.get<int64_t>());
    }
  }
  return path;
}

// All that the plan depends on, ranks and dtypes included.
format::Digest digest_of(const Group& group, const std::vector<SavedLeaf>& leaves) {
  ByteWriter out;
  out.put_dims(group.ranks());
  for (const SavedLeaf& leaf : leaves) {
    out.put_text(leaf.name);
    put_path(out, leaf.path);
    out.put(leaf.known);
    if (leaf.known == Known::object) continue;
    out.put(leaf.dtype);
    out.put(leaf.requires_grad);
    if (leaf.known == Known::nothing) continue;
    out.put_dims(*leaf.size);
    if (leaf.layout) {
      out.put_text(to_string(leaf.layout->mesh));
      out.put_text(to_string(leaf.layout->placements));
    }
    for (const auto& [rank, box] : leaf.shards) {
      out.put(rank);
      out.put_dims(box.offset);
      out.put_dims(box.size);
    }
  }
  const std::string bytes = out.take();
  return format::digest_of(std::as_bytes(std::span(bytes)));
}

// What a rank tells the others where they cannot know it: each of its leaves, and the boxes that it holds. Where the
// ranks agree in everything else, only of those tensors that need it.
std::string told(const std::vector<SavedLeaf>& leaves, bool all) {
  ByteWriter out;
  for (const SavedLeaf& leaf : leaves) {
    if (!all && leaf.known != Known::nothing) continue;
    out.put_text(leaf.name);
    put_path(out, leaf.path);
    out.put(static_cast<char>(leaf.known == Known::object ? 'o' : 't'));
    if (leaf.known == Known::object) continue;
    out.put(leaf.dtype);
    out.put(leaf.requires_grad);
    out.put(static_cast<char>(leaf.size ? 's' : '-'));
    if (leaf.size) out.put_dims(*leaf.size);
    // Copies of a tensor in boxes may be cut in different ways: the first of them is written.
    const bool left_out = leaf.known == Known::nothing && leaf.tensor->copies().number != 0;
    const auto chunks = left_out ? std::vector<ChunkMetadata>() : leaf.tensor->chunk_list();
    out.put(static_cast<uint32_t>(chunks.size()));
    for (const ChunkMetadata& chunk : chunks) {
      out.put_dims(chunk.offsets);
      out.put_dims(chunk.sizes);
    }
  }
  return out.take();
}

// A leaf as the ranks told of it.
struct Gathered {
  AgreedLeaf leaf;
  bool has_size = false;
  int32_t first = 0;
  std::map<std::pair<Dims, Dims>, std::vector<int32_t>> boxes;
};

class Gatherer {
 public:
  Gatherer(const char* operation, const Group& group) : operation_(operation), group_(group) {}

  void read(int32_t place, const std::string& bytes) {
    ByteReader in(operation_, bytes);
    while (in.left() > 0) {
      const std::string name = in.get_text();
      const StatePath path = get_path(in);
      const bool is_tensor = in.get<char>() == 't';
      const auto [found, is_new] = by_name_.try_emplace(name, leaves_.size());
      if (is_new) {
        leaves_.emplace_back();
        leaves_.back().leaf.name = name;
        leaves_.back().leaf.path = file_path(path);
        leaves_.back().leaf.is_tensor = is_tensor;
        leaves_.back().leaf.writer = place;
        leaves_.back().first = place;
      }
      Gathered& gathered = leaves_[found->second];
      if (gathered.leaf.path != file_path(path)) {
        differ(gathered, place, quoted(StatePath(gathered.leaf.path.begin(), gathered.leaf.path.end())), quoted(path));
      }
      if (gathered.leaf.is_tensor != is_tensor) {
        differ(gathered, place, gathered.leaf.is_tensor ? "a tensor" : "an object",
               is_tensor ? "a tensor" : "an object");
      }
      if (is_tensor) read_tensor(place, in, gathered);
    }
  }

  /// In the order in which the ranks first told of them.
  std::vector<Gathered>& leaves() { return leaves_; }
  Gathered* find(const std::string& name) {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &leaves_[found->second];
  }

 private:
  void read_tensor(int32_t place, ByteReader& in, Gathered& gathered) {
    AgreedLeaf& leaf = gathered.leaf;
    const auto dtype = in.get<format::DType>();
    const bool requires_grad = in.get<bool>();
    const bool has_size = in.get<char>() == 's';
    const Dims size = has_size ? in.get_dims() : Dims();
    if (has_size && !gathered.has_size) {
      gathered.has_size = true;
      gathered.first = place;
      leaf.dtype = dtype;
      leaf.requires_grad = requires_grad;
      leaf.size = size;
    } else if (has_size && (leaf.dtype != dtype || leaf.size != size)) {
      differ(gathered, place, text(leaf.dtype, leaf.size), text(dtype, size));
    }
    for (auto count = in.get<uint32_t>(); count > 0; --count) {
      Dims offsets = in.get_dims();
      Dims sizes = in.get_dims();
      gathered.boxes[{std::move(offsets), std::move(sizes)}].push_back(place);
    }
  }

  static std::string text(format::DType dtype, const Dims& size) {
    return fmt::format("{}{}", names_of(dtype).text, to_string(size));
  }

  [[noreturn]] void differ(const Gathered& gathered, int32_t place, const std::string& first,
                           const std::string& here) const {
    throw_value_error(ErrorText(operation_, "ranks have different things under one key")
                          .fact("key", gathered.leaf.name)
                          .fact(fmt::format("rank {}", group_.ranks()[static_cast<size_t>(gathered.first)]), first)
                          .fact(fmt::format("rank {}", group_.ranks()[static_cast<size_t>(place)]), here)
                          .help("give them keys of their own, or save the same on every rank"));
  }

  const char* operation_;
  const Group& group_;
  std::vector<Gathered> leaves_;
  std::map<std::string, size_t> by_name_;
};

// Throws c10::ValueError where the boxes that the ranks told of are not the tensor.
void check_boxes(const char* operation, const Gathered& gathered) {
  if (!gathered.has_size) return;
  std::vector<Box> boxes;
  for (const auto& [box, holders] : gathered.boxes) boxes.push_back({box.first, box.second});
  const auto fault = find_tiling_fault(boxes, gathered.leaf.size);
  if (!fault) return;
  using Kind = TilingFault::Kind;
  const char* problem = fault->kind == Kind::hole      ? "no rank has a part of a tensor"
                        : fault->kind == Kind::overlap ? "two boxes of a tensor overlap"
                                                       : "a box is not inside its tensor";
  throw_value_error(ErrorText(operation, problem)
                        .fact("key", gathered.leaf.name)
                        .fact("size", to_string(gathered.leaf.size))
                        .fact("part", to_string(fault->box))
                        .help("every element on some rank, in boxes that are equal or apart"));
}

plan::ListedTensor listed(const Gathered& gathered) {
  plan::ListedTensor tensor{gathered.leaf.size, {}};
  for (const auto& [box, holders] : gathered.boxes) tensor.boxes.push_back({{box.first, box.second}, holders});
  return tensor;
}

std::vector<int32_t> place_of_rank(const Group& group) {
  std::vector<int32_t> places;
  for (size_t i = 0; i < group.ranks().size(); ++i) {
    const auto rank = static_cast<size_t>(group.ranks()[i]);
    if (places.size() <= rank) places.resize(rank + 1, -1);
    places[rank] = static_cast<int32_t>(i);
  }
  return places;
}

class Agreeing {
 public:
  Agreeing(const char* operation, const Group& group, const std::vector<SavedLeaf>& leaves)
      : operation_(operation),
        group_(group),
        leaves_(leaves),
        places_(place_of_rank(group)),
        everyone_(places_in_group()) {}

  /// Where all ranks have these leaves; `told` are the boxes of those tensors of which ranks know their own alone.
  AgreedState from_own(Gatherer& told) {
    for (const SavedLeaf& leaf : leaves_) {
      AgreedLeaf agreed{
          leaf.name, file_path(leaf.path), leaf.known != Known::object, 0, leaf.dtype, leaf.requires_grad, {}, {}};
      if (leaf.known == Known::nothing) {
        add_told(*told.find(leaf.name));
        continue;
      }
      if (leaf.size) agreed.size = *leaf.size;
      plan::SavedTensor tensor{size_of(leaf.dtype), plan::ListedTensor{agreed.size, {}}};
      auto& boxes = std::get<plan::ListedTensor>(tensor.held).boxes;
      switch (leaf.known) {
        case Known::layout:
          tensor.held = plan::LaidOutTensor{&*leaf.layout, places_};
          break;
        case Known::whole:
          boxes.push_back({{Dims(agreed.size.size(), 0), agreed.size}, everyone_});
          break;
        case Known::shards:
          for (const auto& [rank, box] : leaf.shards) add_shard(boxes, rank, box, agreed.size);
          break;
        default:
          break;
      }
      add(std::move(agreed), std::move(tensor));
    }
    return finish();
  }

  /// Where they differ: what each of them told.
  AgreedState from_told(Gatherer& told) {
    for (const Gathered& gathered : told.leaves()) {
      if (gathered.leaf.is_tensor) {
        add_told(gathered);
      } else {
        add(gathered.leaf, plan::SavedTensor{1, plan::ListedTensor{}});
      }
    }
    return finish();
  }

 private:
  std::vector<int32_t> places_in_group() const {
    std::vector<int32_t> all(static_cast<size_t>(group_.size()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  void add_shard(std::vector<plan::HeldBox>& boxes, int64_t rank, const Box& box, const Dims& size) const {
    if (numel(box) == 0 && (numel(size) > 0 || !boxes.empty())) return;
    const int32_t place = rank < static_cast<int64_t>(places_.size()) ? places_[static_cast<size_t>(rank)] : -1;
    boxes.push_back({box, place < 0 ? std::vector<int32_t>() : std::vector<int32_t>{place}});
  }

  void add_told(const Gathered& gathered) {
    check_boxes(operation_, gathered);
    AgreedLeaf leaf = gathered.leaf;
    add(std::move(leaf), plan::SavedTensor{size_of(gathered.leaf.dtype), listed(gathered)});
  }

  void add(AgreedLeaf leaf, plan::SavedTensor tensor) {
    state_.leaves.push_back(std::move(leaf));
    tensors_.push_back(std::move(tensor));
  }

  AgreedState finish() {
    plan::SavePlan plan = plan::plan_save(tensors_, group_.size());
    for (size_t i = 0; i < state_.leaves.size(); ++i) {
      AgreedLeaf& leaf = state_.leaves[i];
      leaf.chunks = std::move(plan.tensors[i]);
      if (std::find(leaf.chunks.writers.begin(), leaf.chunks.writers.end(), -1) == leaf.chunks.writers.end()) continue;
      throw_value_error(ErrorText(operation_, "a part of a tensor is on ranks that do not take part")
                            .fact("key", leaf.name)
                            .fact("ranks that do", group_.name())
                            .help("SaveOptions{.group = ...} with all ranks that hold the tensor"));
    }
    state_.bytes = std::move(plan.bytes);
    return std::move(state_);
  }

  const char* operation_;
  const Group& group_;
  const std::vector<SavedLeaf>& leaves_;
  std::vector<int32_t> places_;
  std::vector<int32_t> everyone_;
  AgreedState state_;
  std::vector<plan::SavedTensor> tensors_;
};

// Plans that were made, by all that they depend on: training saves the same state again and again.
class PlanCache {
 public:
  std::shared_ptr<const AgreedState> find(const format::Digest& digest) {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, state] : plans_) {
      if (key == digest) return state;
    }
    return nullptr;
  }
  void add(const format::Digest& digest, std::shared_ptr<const AgreedState> state) {
    constexpr size_t kMost = 4;
    const std::lock_guard lock(mutex_);
    if (plans_.size() == kMost) plans_.erase(plans_.begin());
    plans_.emplace_back(digest, std::move(state));
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<format::Digest, std::shared_ptr<const AgreedState>>> plans_;
};

PlanCache& plan_cache() {
  static PlanCache cache;
  return cache;
}

}  // namespace

Agreement agree_on_state(const char* operation, const Group& group,
                         const std::function<std::vector<SavedLeaf>()>& get_leaves,
                         const std::function<std::string()>& first_words, std::vector<SavedLeaf>& leaves) {
  format::Digest digest;
  const auto answers = tell_all(operation, group, [&] {
    leaves = get_leaves();
    digest = digest_of(group, leaves);
    ByteWriter out;
    out.put(digest);
    out.put_text(first_words());
    return out.take();
  });
  Agreement agreement;
  bool same = true;
  for (const std::string& answer : answers) {
    ByteReader in(operation, answer);
    same = in.get<format::Digest>() == digest && same;
    agreement.words.push_back(in.get_text());
  }
  const bool known =
      std::none_of(leaves.begin(), leaves.end(), [](const auto& leaf) { return leaf.known == Known::nothing; });
  if (same && known) {
    if ((agreement.state = plan_cache().find(digest))) return agreement;
  }
  Gatherer gatherer(operation, group);
  if (!same || !known) {
    const auto lists = tell_all(operation, group, [&] { return told(leaves, !same); });
    for (size_t i = 0; i < lists.size(); ++i) gatherer.read(static_cast<int32_t>(i), lists[i]);
  }
  Agreeing agreeing(operation, group, leaves);
  agreement.state = std::make_shared<AgreedState>(same ? agreeing.from_own(gatherer) : agreeing.from_told(gatherer));
  if (same && known) plan_cache().add(digest, agreement.state);
  return agreement;
}

}  // namespace sherd::detail
