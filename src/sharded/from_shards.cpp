// A ShardedTensor of shards that each rank knows only its own of: they tell each other in one exchange.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "comm/answers.h"
#include "comm/call.h"
#include "comm/errors.h"
#include "sharded/bytes.h"
#include "sharded/layout.h"
#include "sharded/shard_checks.h"

namespace sherd::sharded {
namespace {

using at::Tensor;
using detail::ByteReader;
using detail::ByteWriter;

constexpr const char* kOperation = "init_from_local_shards";

// What a rank tells the others.
struct Report {
  Dims size = {};  // -1 where a dim is open
  TensorProperties properties = {};
  std::vector<ShardMetadata> shards = {};
};

std::string to_bytes(const Report& report) {
  ByteWriter out;
  out.put_dims(report.size);
  out.put(static_cast<int32_t>(report.properties.dtype));
  out.put(report.properties.requires_grad);
  out.put(report.properties.pin_memory);
  out.put(static_cast<uint64_t>(report.shards.size()));
  for (const ShardMetadata& shard : report.shards) {
    out.put_dims(shard.shard_offsets);
    out.put_dims(shard.shard_sizes);
    out.put(static_cast<int16_t>(shard.placement->device.type()));
    out.put(static_cast<int16_t>(shard.placement->device.index()));
  }
  return out.take();
}

Report from_bytes(const std::string& bytes, int64_t rank) {
  ByteReader in(kOperation, bytes);
  Report report;
  report.size = in.get_dims();
  report.properties.dtype = static_cast<c10::ScalarType>(in.get<int32_t>());
  report.properties.requires_grad = in.get<bool>();
  report.properties.pin_memory = in.get<bool>();
  const auto count = in.get<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    Dims offsets = in.get_dims();
    Dims sizes = in.get_dims();
    const auto type = static_cast<c10::DeviceType>(in.get<int16_t>());
    const auto index = static_cast<c10::DeviceIndex>(in.get<int16_t>());
    report.shards.emplace_back(std::move(offsets), std::move(sizes), RemoteDevice(rank, c10::Device(type, index)));
  }
  return report;
}

Report describe(const std::vector<Shard>& shards, const std::vector<std::optional<int64_t>>& size, int64_t rank) {
  Report report;
  for (const auto& n : size) report.size.push_back(n.value_or(-1));
  if (std::any_of(size.begin(), size.end(), [](const auto& n) { return n && *n < 0; })) {
    detail::throw_value_error(
        ErrorText(kOperation, "a size is negative").fact("size", sherd::to_string(report.size)).help("sizes >= 0"));
  }
  if (!shards.empty()) report.properties = TensorProperties::create_from_tensor(shards.front().tensor);
  for (size_t i = 0; i < shards.size(); ++i) {
    const Shard& shard = shards[i];
    detail::check_shard(kOperation, i, shard, report.properties, shard.metadata);
    if (shard.metadata.placement && shard.metadata.placement->rank.value_or(rank) != rank) {
      detail::throw_value_error(ErrorText(kOperation, fmt::format("local shard {} is placed on another rank", i))
                                    .fact("shard", to_string(shard.metadata))
                                    .fact("this rank", std::to_string(rank))
                                    .help(fmt::format("rank:{}/{}", rank, shard.tensor.device().str())));
    }
    if (shard.metadata.shard_sizes.size() != size.size()) {
      detail::throw_value_error(
          ErrorText(kOperation, fmt::format("local shard {} has another number of dims than the tensor", i))
              .fact("shard", to_string(shard.metadata))
              .fact("size", fmt::format("{} dims", size.size()))
              .help("one size per dim"));
    }
    ShardMetadata metadata = shard.metadata;
    metadata.placement = RemoteDevice(rank, shard.tensor.device());
    report.shards.push_back(std::move(metadata));
  }
  return report;
}

void compare(const std::vector<Report>& reports, const std::vector<int64_t>& ranks) {
  const auto differ = [&](const char* what, size_t a, const std::string& has_a, size_t b, const std::string& has_b) {
    detail::throw_value_error(
        ErrorText(kOperation, fmt::format("ranks {} and {} differ in {}", ranks[a], ranks[b], what))
            .fact(fmt::format("rank {}", ranks[a]), has_a)
            .fact(fmt::format("rank {}", ranks[b]), has_b)
            .help("the same on every rank"));
  };
  const auto flag = [](bool on) { return std::string(on ? "true" : "false"); };
  std::optional<size_t> first;  // that has a shard
  for (size_t i = 0; i < reports.size(); ++i) {
    if (reports[i].size != reports[0].size) {
      differ("the global size", 0, sherd::to_string(reports[0].size), i, sherd::to_string(reports[i].size));
    }
    if (reports[i].shards.empty()) continue;
    if (!first) first = i;
    const TensorProperties& a = reports[*first].properties;
    const TensorProperties& b = reports[i].properties;
    if (a.dtype != b.dtype) differ("dtype", *first, detail::dtype_name(a.dtype), i, detail::dtype_name(b.dtype));
    if (a.requires_grad != b.requires_grad) {
      differ("requires_grad", *first, flag(a.requires_grad), i, flag(b.requires_grad));
    }
    if (a.pin_memory != b.pin_memory) differ("pin_memory", *first, flag(a.pin_memory), i, flag(b.pin_memory));
  }
  if (first) return;
  detail::throw_value_error(ErrorText(kOperation, "no rank has a shard")
                                .fact("size", sherd::to_string(reports[0].size))
                                .help("at least one rank with a shard"));
}

// Lays the shards end to end along the open dim, in the order of ranks; those that differ in another dim side by side.
void close_size(std::vector<Report>& reports, Dims& size) {
  const auto open = std::count(size.begin(), size.end(), -1);
  if (open == 0) return;
  if (open > 1) {
    detail::throw_value_error(ErrorText(kOperation, "more than one dim is open")
                                  .fact("size", sherd::to_string(size) + ", -1 is open")
                                  .help("one std::nullopt at most"));
  }
  const auto dim = static_cast<size_t>(std::find(size.begin(), size.end(), -1) - size.begin());
  std::map<std::pair<Dims, Dims>, int64_t> ends;  // by what the shards hold of the other dims
  for (Report& report : reports) {
    for (ShardMetadata& shard : report.shards) {
      Dims offsets = shard.shard_offsets;
      Dims sizes = shard.shard_sizes;
      offsets[dim] = sizes[dim] = 0;
      int64_t& end = ends[{offsets, sizes}];
      shard.shard_offsets[dim] = end;
      end += shard.shard_sizes[dim];
    }
  }
  for (const auto& [rows, end] : ends) size[dim] = std::max(size[dim], end);
}

}  // namespace

ShardedTensor init_from_local_shards(std::vector<Shard> shards, const OpenSize& size, const GroupOptions& options) {
  const detail::Holders holders = detail::holders_of(options);
  if (!holders.group()) {
    detail::throw_value_error(ErrorText(kOperation, "this rank is not in the group")
                                  .fact("rank", std::to_string(holders.rank()))
                                  .fact("group", sherd::to_string(holders.ranks()))
                                  .help("call it on the members of the group"));
  }
  const Group& group = *holders.group();
  const std::vector<std::string> texts = detail::answers_of_all(
      group, kOperation, [&] { return to_bytes(describe(shards, size.dims(), holders.rank())); });
  std::vector<Report> reports;
  for (size_t i = 0; i < texts.size(); ++i) reports.push_back(from_bytes(texts[i], group.ranks()[i]));
  // Every rank knows the same: all of them throw, or none does.
  compare(reports, group.ranks());
  Dims whole = reports[0].size;
  close_size(reports, whole);
  ShardedTensorMetadata metadata{{}, whole, {}};
  for (const Report& report : reports) {
    if (!report.shards.empty()) metadata.tensor_properties = report.properties;
    metadata.shards_metadata.insert(metadata.shards_metadata.end(), report.shards.begin(), report.shards.end());
  }
  const Report& settled = reports[static_cast<size_t>(group.rank())];
  for (size_t i = 0; i < shards.size(); ++i) shards[i].metadata = settled.shards[i];
  GroupOptions here = options;
  here.group = group;
  here.ranks.reset();
  return ShardedTensor::init_from_local_shards_and_global_metadata(std::move(shards), metadata, here);
}

}  // namespace sherd::sharded
