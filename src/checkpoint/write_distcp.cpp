#include "checkpoint/write_distcp.h"

#include <algorithm>

#include "checkpoint/tensor_bytes.h"
#include "format/transforms.h"
#include "stored/copy_elements.h"
#include "stored/file_stream.h"

namespace sherd::detail {
namespace {

using Bytes = std::span<const std::byte>;

// Items begin at such places, so that the elements of every tensor do: memory maps of a file are aligned then.
constexpr int64_t kAlignment = 64;
// How much of a tensor that must be copied first (from a GPU, or out of a view) is in memory at a time.
constexpr int64_t kPart = int64_t{16} << 20;

int64_t aligned(int64_t position) { return (position + kAlignment - 1) / kAlignment * kAlignment; }

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The bytes of an item, front to back.
void for_each_item_part(const ItemToSave& item, const std::function<void(Bytes)>& use) {
  use(bytes_of(format::head_of(item.item)));
  uint32_t crc = 0;
  for_each_part(item.data, kPart, [&](Bytes part) {
    crc = format::crc32(part, crc);
    use(part);
  });
  use(bytes_of(format::tail_of(item.item, crc)));
}

SaveReport write_plain(stored::FileStream& stream, std::span<const ItemToSave> items,
                       std::span<const ObjectToSave> objects) {
  SaveReport report;
  const format::TensorItem* last = nullptr;
  std::string head;
  for (const ItemToSave& item : items) {
    stream.align(kAlignment);
    // Tensors that follow each other are often alike.
    if (last == nullptr || last->dtype != item.item.dtype || last->sizes != item.item.sizes) {
      head = format::head_of(item.item);
    }
    last = &item.item;
    stream.append(head);
    uint32_t crc = 0;
    for_each_part(item.data, kPart, [&](Bytes part) { stream.append(part, crc); });
    stream.append(format::tail_of(item.item, crc));
  }
  for (const ObjectToSave& object : objects) {
    stream.align(kAlignment);
    report.objects.push_back({object.leaf, stream.position(), static_cast<int64_t>(object.bytes.size())});
    stream.append(object.bytes);
  }
  return report;
}

SaveReport write_compressed(stored::FileStream& stream, std::span<const ItemToSave> items,
                            std::span<const ObjectToSave> objects, const std::function<void(int64_t)>& told) {
  SaveReport report;
  // Calls `give` with what takes an item's bytes.
  const auto compress = [&](size_t leaf, const std::function<void(const std::function<void(Bytes)>&)>& give) {
    const int64_t start = stream.position();
    format::StreamEncoder encoder({format::kZstdTransform}, [&](Bytes part) { stream.append(part); });
    give([&](Bytes part) {
      encoder.add(part);
      if (told) told(static_cast<int64_t>(part.size()));
    });
    encoder.finish();
    return PlaceInFile{leaf, start, stream.position() - start};
  };
  for (const ItemToSave& item : items) {
    report.items.push_back(compress(item.leaf, [&](const auto& take) { for_each_item_part(item, take); }));
  }
  for (const ObjectToSave& object : objects) {
    report.objects.push_back(compress(object.leaf, [&](const auto& take) { take(bytes_of(object.bytes)); }));
  }
  return report;
}

}  // namespace

int64_t distcp_bytes(std::span<const ItemToSave> items, std::span<const ObjectToSave> objects) {
  int64_t size = 0;
  for (const ItemToSave& item : items) size = aligned(size) + format::lengths_of(item.item).total();
  for (const ObjectToSave& object : objects) size = aligned(size) + static_cast<int64_t>(object.bytes.size());
  return size;
}

SaveReport write_distcp(Draft& draft, std::span<const ItemToSave> items, std::span<const ObjectToSave> objects,
                        const DistcpOptions& options) {
  if (items.empty() && objects.empty()) return {};
  stored::FileStream stream(draft, options.name, options.compress ? 0 : distcp_bytes(items, objects), options.base,
                            options.compress ? nullptr : options.told);
  SaveReport report =
      options.compress ? write_compressed(stream, items, objects, options.told) : write_plain(stream, items, objects);
  stored::FileStream::Written written = stream.finish();
  report.bytes = written.bytes;
  if (options.base != nullptr) {
    report.stored_files = options.base->files();
    report.bytes_in_base = written.file.length - written.bytes;
  }
  report.files.push_back(std::move(written.file));
  return report;
}

format::Metadata distcp_metadata(const AgreedState& state, const std::vector<std::string>& files,
                                 const std::vector<SaveReport>& reports, bool compressed) {
  format::Metadata metadata;
  metadata.files = files;
  metadata.paths.emplace();
  if (compressed) metadata.transforms = {{format::kZstdTransform}};
  const int32_t transforms = compressed ? 0 : -1;
  std::vector<int64_t> positions(reports.size(), 0);
  std::vector<size_t> written(reports.size(), 0);
  format::TensorItem item;
  for (const AgreedLeaf& leaf : state.leaves) {
    metadata.paths->emplace_back(leaf.name, leaf.path);
    if (!leaf.is_tensor) {
      metadata.entries.push_back({leaf.name, format::BytesEntry{}});
      continue;
    }
    format::TensorEntry entry;
    entry.dtype = leaf.dtype;
    entry.requires_grad = leaf.requires_grad;
    entry.size = leaf.size;
    entry.numbers = leaf.chunks.numbers;
    entry.places.reserve(leaf.chunks.writers.size());
    item.dtype = leaf.dtype;
    int64_t length = 0;
    for (size_t chunk = 0; chunk < leaf.chunks.writers.size(); ++chunk) {
      const int32_t file = leaf.chunks.writers[chunk];
      const auto writer = static_cast<size_t>(file);
      if (compressed) {
        const PlaceInFile& place = reports[writer].items.at(written[writer]++);
        entry.places.push_back({file, transforms, place.offset, place.length});
        continue;
      }
      const auto sizes = leaf.chunks.numbers.begin() + static_cast<std::ptrdiff_t>((2 * chunk + 1) * leaf.size.size());
      // Most chunks of a tensor have one size.
      const auto sizes_end = sizes + static_cast<std::ptrdiff_t>(leaf.size.size());
      if (chunk == 0 || !std::equal(sizes, sizes_end, item.sizes.begin(), item.sizes.end())) {
        item.sizes.assign(sizes, sizes_end);
        item.strides = stored::row_major(item.sizes);
        length = format::lengths_of(item).total();
      }
      const int64_t start = aligned(positions[writer]);
      entry.places.push_back({file, transforms, start, length});
      positions[writer] = start + length;
    }
    metadata.entries.push_back({leaf.name, std::move(entry)});
  }
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    for (const PlaceInFile& object : reports[rank].objects) {
      std::get<format::BytesEntry>(metadata.entries[object.leaf].content).place = {
          static_cast<int32_t>(rank), transforms, object.offset, object.length};
    }
  }
  return metadata;
}

}  // namespace sherd::detail
