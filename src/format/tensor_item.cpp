// One tensor that is alone in its archive: as torch.save writes it, to the byte.

#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "format/archive.h"
#include "format/pickle_bytes.h"
#include "format/serialization_id.h"
#include "format/zip.h"
#include "sherd/error.h"

namespace sherd::format {
namespace {

/// The records of the archive, with what stands in those that are the same for all tensors.
struct FixedRecord {
  std::string_view name;
  std::string_view content;
};
constexpr std::string_view kPickle = "archive/data.pkl";
constexpr std::array<FixedRecord, 3> kBeforeData = {
    {{"archive/.format_version", "1"}, {"archive/.storage_alignment", "64"}, {"archive/byteorder", "little"}}};
constexpr std::string_view kData = "archive/data/0";
constexpr FixedRecord kVersion = {"archive/version", "3\n"};
constexpr std::string_view kId = "archive/.data/serialization_id";
constexpr int64_t kIdLength = 40;
constexpr uint64_t kNamesHash = 15728199511854643026U;  // of these records' names: serialization_id.h

template <class Out>
void write_dims(PickleBytes<Out>& bytes, const Dims& dims, uint64_t& memo) {
  if (dims.empty()) return bytes.op(Op::empty_tuple);
  if (dims.size() > 3) bytes.op(Op::mark);
  for (const int64_t size : dims) bytes.integer(size);
  bytes.op(dims.size() > 3 ? Op::tuple : static_cast<Op>(static_cast<size_t>(Op::tuple1) + dims.size() - 1));
  bytes.put(memo++);
}

/// What pickle() writes of such a tensor: nothing occurs twice, so that the memo is a counter.
template <class Out>
void write_pickle(Out& out, const TensorItem& item) {
  const DTypeNames& names = names_of(item.dtype);
  const bool typed = !names.storage.empty();
  PickleBytes<Out> bytes(out);
  uint64_t memo = 0;
  const auto global = [&](std::string_view module, std::string_view name) {
    bytes.global(module, name);
    bytes.put(memo++);
  };
  const auto text = [&](std::string_view value) {
    bytes.text(value);
    bytes.put(memo++);
  };
  bytes.op(Op::proto);
  bytes.byte(2);
  global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  bytes.op(Op::mark);
  bytes.op(Op::mark);
  text("storage");
  global(typed ? "torch" : "torch.storage", typed ? names.storage : "UntypedStorage");
  text("0");
  text("cpu");
  bytes.integer(typed ? numel(item.sizes) : item.data_bytes());
  bytes.op(Op::tuple);
  bytes.put(memo++);
  bytes.op(Op::binpersid);
  bytes.integer(0);
  write_dims(bytes, item.sizes, memo);
  write_dims(bytes, item.strides, memo);
  bytes.op(Op::newfalse);
  global("collections", "OrderedDict");
  bytes.op(Op::empty_tuple);
  bytes.op(Op::reduce);
  bytes.put(memo++);
  if (!typed) global("torch", names.torch);
  bytes.op(Op::tuple);
  bytes.put(memo++);
  bytes.op(Op::reduce);
  bytes.put(memo++);
  bytes.op(Op::stop);
}

int64_t length_of_dims(const Dims& dims) {
  ByteCount count;
  PickleBytes<ByteCount> bytes(count);
  uint64_t memo = 0;
  write_dims(bytes, dims, memo);
  return count.count;
}

/// By counting only what differs: the rest is counted once for each dtype.
int64_t pickle_length(const TensorItem& item) {
  static const auto fixed = [] {
    std::array<int64_t, kDTypeCount> lengths{};
    for (size_t i = 0; i < lengths.size(); ++i) {
      ByteCount count;
      write_pickle(count, TensorItem{.dtype = static_cast<DType>(i), .sizes = {}, .strides = {}});
      lengths[i] = count.count - 2 - 1 - 1;  // the number of elements or bytes, and the tuples
    }
    return lengths;
  }();
  ByteCount count;
  PickleBytes<ByteCount>(count).integer(names_of(item.dtype).storage.empty() ? item.data_bytes() : numel(item.sizes));
  return fixed[static_cast<size_t>(item.dtype)] + count.count + length_of_dims(item.sizes) +
         length_of_dims(item.strides);
}

int64_t length(std::string_view text) { return static_cast<int64_t>(text.size()); }
uint32_t crc_of(std::string_view text) { return crc32(std::as_bytes(std::span(text))); }

constexpr size_t kDataEntry = 4;
constexpr size_t kVersionEntry = 5;
constexpr size_t kIdEntry = 6;

/// Where everything lies.
struct Plan {
  std::array<ZipEntry, kIdEntry + 1> entries;
  size_t count = 0;
  int64_t data = 0;  // where it begins

  int64_t add(std::string_view name, int64_t size, uint32_t crc, int64_t offset) {
    entries[count++] = {name, offset, size, crc};
    return next_offset(offset, length(name), size);
  }
};

void check(const TensorItem& item) {
  if (item.sizes.size() != item.strides.size()) {
    throw std::invalid_argument(ErrorText("head_of", "a tensor has not as many strides as sizes")
                                    .fact("sizes", sherd::to_string(item.sizes))
                                    .fact("strides", sherd::to_string(item.strides)));
  }
}

/// The places of all records. CRCs are for who writes: `pickle` empty leaves them out.
Plan plan_of(const TensorItem& item, int64_t pickle_size, std::string_view pickle) {
  Plan plan;
  const bool crcs = !pickle.empty();
  int64_t at = plan.add(kPickle, pickle_size, crcs ? crc_of(pickle) : 0, 0);
  for (const FixedRecord& record : kBeforeData) {
    at = plan.add(record.name, length(record.content), crcs ? crc_of(record.content) : 0, at);
  }
  plan.data = data_offset(at, length(kData), item.data_bytes());
  at = plan.add(kData, item.data_bytes(), 0, at);
  at = plan.add(kVersion.name, length(kVersion.content), crcs ? crc_of(kVersion.content) : 0, at);
  plan.add(kId, kIdLength, 0, at);
  return plan;
}

}  // namespace

ItemLengths lengths_of(const TensorItem& item) {
  const Plan plan = plan_of(item, pickle_length(item), {});
  ItemLengths lengths{.head = plan.data, .data = item.data_bytes(), .tail = 0};
  const ZipEntry& last = plan.entries.back();
  int64_t end = next_offset(last.offset, length(last.name), last.size);
  for (const ZipEntry& entry : plan.entries)
    end += directory_entry_length(entry.offset, length(entry.name), entry.size);
  lengths.tail = end + kDirectoryEnd - lengths.head - lengths.data;
  return lengths;
}

std::string head_of(const TensorItem& item) {
  check(item);
  std::string pickle;
  write_pickle(pickle, item);
  const Plan plan = plan_of(item, length(pickle), pickle);
  std::string out;
  out.reserve(static_cast<size_t>(plan.data));
  for (size_t i = 0; i <= kDataEntry; ++i) {
    append_local_header(out, plan.entries[i]);
    if (i == kDataEntry) break;
    out += i == 0 ? pickle : kBeforeData[i - 1].content;
    append_descriptor(out, plan.entries[i]);
  }
  return out;
}

std::string tail_of(const TensorItem& item, uint32_t crc_of_data) {
  check(item);
  std::string pickle;
  write_pickle(pickle, item);
  Plan plan = plan_of(item, length(pickle), pickle);
  plan.entries[kDataEntry].crc = crc_of_data;
  const std::string id = serialization_id(kNamesHash, std::span(plan.entries).first(kIdEntry));
  plan.entries[kIdEntry].crc = crc_of(id);

  std::string out;
  append_descriptor(out, plan.entries[kDataEntry]);
  append_local_header(out, plan.entries[kVersionEntry]);
  out += kVersion.content;
  append_descriptor(out, plan.entries[kVersionEntry]);
  append_local_header(out, plan.entries[kIdEntry]);
  out += id;
  append_descriptor(out, plan.entries[kIdEntry]);
  const ZipEntry& last = plan.entries[kIdEntry];
  append_directory(out, plan.entries, next_offset(last.offset, length(last.name), last.size));
  return out;
}

}  // namespace sherd::format
