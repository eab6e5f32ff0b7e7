// OpSharding of xla_data.proto, the fields that say who holds what. Protobuf's wire format is little enough to write by
// hand, and a library for it would have to agree in version with everything that the program links.

#include <fmt/format.h>

#include <optional>
#include <stdexcept>

#include "sherd/error.h"
#include "sherd/xla_sharding.h"
#include "xla/check_sharding.h"
#include "xla/device_order.h"

namespace sherd {
namespace {

using Kind = XlaSharding::Kind;
using Subgroup = XlaSharding::Subgroup;

constexpr const char* kOperation = "parse_op_sharding";

enum Field : uint64_t {
  kType = 1,
  kTiles = 3,
  kDevices = 4,
  kTuple = 5,
  kReplicateOnLast = 6,
  kLastTileDims = 8,
  kIotaDims = 9,
  kIotaPermutation = 10,
  kNamed = 14,
};
enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// OpSharding.Type.
constexpr std::pair<int64_t, Kind> kTypes[] = {{0, Kind::replicated}, {1, Kind::maximal}, {3, Kind::tiled},
                                               {4, Kind::manual},     {5, Kind::unknown}, {6, Kind::unreduced}};
constexpr int64_t kTupleType = 2;
constexpr std::pair<int64_t, Subgroup> kSubgroupTypes[] = {
    {0, Subgroup::replicated}, {4, Subgroup::manual}, {6, Subgroup::unreduced}};

template <class Value, size_t Count>
int64_t type_of(const std::pair<int64_t, Value> (&types)[Count], Value value) {
  for (const auto& [type, meaning] : types)
    if (meaning == value) return type;
  return 0;
}

void append_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>((value & 0x7f) | 0x80));
  bytes.push_back(static_cast<char>(value));
}

void append_number(std::string& bytes, Field field, int64_t value) {
  append_varint(bytes, field << 3 | kVarint);
  append_varint(bytes, static_cast<uint64_t>(value));
}

void append_list(std::string& bytes, Field field, const std::vector<int64_t>& values) {
  if (values.empty()) return;
  std::string packed;
  for (const int64_t value : values) append_varint(packed, static_cast<uint64_t>(value));
  append_varint(bytes, field << 3 | kBytes);
  append_varint(bytes, packed.size());
  bytes += packed;
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  XlaSharding run() {
    while (place_ < bytes_.size()) field();
    return finish();
  }

 private:
  void field() {
    start_ = place_;
    const uint64_t tag = varint();
    switch (tag >> 3) {
      case kType:
        type_ = number(tag);
        return;
      case kTiles:
        return list(tag, tiles_);
      case kDevices:
        return list(tag, devices_);
      case kReplicateOnLast:
        replicate_on_last_ = number(tag) != 0;
        return;
      case kLastTileDims:
        return list(tag, last_tile_dims_);
      case kIotaDims:
        return list(tag, iota_.dims);
      case kIotaPermutation:
        return list(tag, iota_.permutation);
      case kTuple:
        fail("a tuple of shardings: one tensor has one");
      case kNamed:
        fail("a sharding with named axes");
      default:
        return skip(tag);
    }
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (place_ == bytes_.size()) fail("the bytes end inside a field");
      const auto byte = static_cast<unsigned char>(bytes_[place_++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number of more than 64 bits");
  }

  std::string_view length_delimited() {
    const uint64_t size = varint();
    if (size > bytes_.size() - place_) fail("the bytes end inside a field");
    const std::string_view part = bytes_.substr(place_, size);
    place_ += size;
    return part;
  }

  int64_t number(uint64_t tag) {
    if ((tag & 7) != kVarint) fail("a field of another type");
    return static_cast<int64_t>(varint());
  }

  // Packed, or a field for each number: protobuf allows both.
  void list(uint64_t tag, std::vector<int64_t>& values) {
    if ((tag & 7) == kVarint) {
      values.push_back(static_cast<int64_t>(varint()));
    } else if ((tag & 7) == kBytes) {
      Reader part(length_delimited());
      while (part.place_ < part.bytes_.size()) values.push_back(static_cast<int64_t>(part.varint()));
    } else {
      fail("a field of another type");
    }
    if (static_cast<int64_t>(values.size()) > detail::kMaxDevices)
      fail(fmt::format("more devices than the {} that can be", detail::kMaxDevices));
  }

  void skip(uint64_t tag) {
    const uint64_t wire = tag & 7;
    if (wire == kVarint) {
      varint();
    } else if (wire == kBytes) {
      length_delimited();
    } else if (wire == kFixed32 || wire == kFixed64) {
      const size_t size = wire == kFixed32 ? 4 : 8;
      if (size > bytes_.size() - place_) fail("the bytes end inside a field");
      place_ += size;
    } else {
      fail("no message of protobuf");
    }
  }

  XlaSharding finish() {
    start_ = bytes_.size();
    if (type_ == kTupleType) fail("a tuple of shardings: one tensor has one");
    XlaSharding sharding;
    bool known = false;
    for (const auto& [type, kind] : kTypes) {
      if (type != type_) continue;
      sharding.kind = kind;
      known = true;
    }
    if (!known) fail(fmt::format("there is no type {}", type_));
    if (sharding.kind == Kind::maximal) sharding.devices = devices_;
    if (sharding.kind == Kind::tiled) tile(sharding);
    if (const std::string problem = detail::sharding_problem(sharding); !problem.empty()) fail(problem);
    return sharding;
  }

  void tile(XlaSharding& sharding) {
    sharding.tiles = tiles_;
    for (const int64_t type : last_tile_dims_) {
      const size_t before = sharding.subgroups.size();
      for (const auto& [number, group] : kSubgroupTypes)
        if (number == type) sharding.subgroups.push_back(group);
      if (sharding.subgroups.size() == before) fail(fmt::format("there is no subgroup of type {}", type));
    }
    if (replicate_on_last_) {
      if (!sharding.subgroups.empty()) fail("the subgroups are given twice");
      sharding.subgroups = {Subgroup::replicated};
    }
    if (iota_.dims.empty()) {
      sharding.devices = devices_;
      return;
    }
    if (!devices_.empty()) fail("devices both one by one and in iota form");
    check_iota();
    sharding.devices = detail::devices_in(iota_);
  }

  void check_iota() const {
    int64_t count = 1;
    for (const int64_t size : iota_.dims) {
      if (size < 1) fail("a size below 1");
      if (__builtin_mul_overflow(count, size, &count) || count > detail::kMaxDevices)
        fail(fmt::format("more devices than the {} that can be", detail::kMaxDevices));
    }
    if (iota_.permutation.size() != iota_.dims.size())
      fail(fmt::format("{} dims are put in order, of {}", iota_.permutation.size(), iota_.dims.size()));
    std::vector<bool> seen(iota_.dims.size(), false);
    for (const int64_t dim : iota_.permutation) {
      if (dim < 0 || dim >= static_cast<int64_t>(iota_.dims.size())) fail(fmt::format("there is no dim {}", dim));
      if (seen[static_cast<size_t>(dim)]) fail(fmt::format("dim {} stands twice", dim));
      seen[static_cast<size_t>(dim)] = true;
    }
  }

  [[noreturn]] void fail(std::string_view problem) const {
    throw std::invalid_argument(ErrorText(kOperation, problem)
                                    .fact("bytes", std::to_string(bytes_.size()))
                                    .fact("at", fmt::format("byte {}", start_))
                                    .help("the bytes of one xla.OpSharding: sharding.SerializeAsString()"));
  }

  std::string_view bytes_;
  size_t place_ = 0, start_ = 0;
  int64_t type_ = 0;
  std::vector<int64_t> tiles_, devices_, last_tile_dims_;
  detail::IotaOrder iota_;
  bool replicate_on_last_ = false;
};

}  // namespace

std::string to_op_sharding(const XlaSharding& sharding) {
  detail::check_sharding("to_op_sharding", sharding);
  std::string bytes;
  if (const int64_t type = type_of(kTypes, sharding.kind)) append_number(bytes, kType, type);
  if (sharding.kind != Kind::tiled) {
    append_list(bytes, kDevices, sharding.devices);
    return bytes;
  }
  const auto iota = detail::iota_order_of(sharding.devices);
  append_list(bytes, kTiles, sharding.tiles);
  if (!iota) append_list(bytes, kDevices, sharding.devices);
  if (sharding.subgroups == std::vector{Subgroup::replicated}) {
    append_number(bytes, kReplicateOnLast, 1);
  } else {
    std::vector<int64_t> types;
    for (const Subgroup group : sharding.subgroups) types.push_back(type_of(kSubgroupTypes, group));
    append_list(bytes, kLastTileDims, types);
  }
  if (iota) {
    append_list(bytes, kIotaDims, iota->dims);
    append_list(bytes, kIotaPermutation, iota->permutation);
  }
  return bytes;
}

XlaSharding parse_op_sharding(std::string_view bytes) { return Reader(bytes).run(); }

}  // namespace sherd
