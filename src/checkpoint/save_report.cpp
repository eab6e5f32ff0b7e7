#include "checkpoint/save_report.h"

#include "sharded/bytes.h"

namespace sherd::detail {

std::string encode(const SaveReport& report) {
  ByteWriter out;
  out.put(static_cast<uint64_t>(report.files.size()));
  for (const format::ManifestFile& file : report.files) {
    out.put_text(file.name);
    out.put(file.length);
    out.put(static_cast<uint64_t>(file.blocks.size()));
    for (const format::Digest& digest : file.blocks) out.put(digest);
    out.put(static_cast<uint64_t>(file.places.size()));
    for (const format::BlockPlace& place : file.places) out.put(place);
  }
  out.put(static_cast<uint64_t>(report.stored_files.size()));
  for (const std::string& name : report.stored_files) out.put_text(name);
  out.put(report.bytes);
  out.put(report.bytes_in_base);
  for (const auto* places : {&report.objects, &report.items}) {
    out.put(static_cast<uint64_t>(places->size()));
    for (const PlaceInFile& place : *places) out.put(place);
  }
  return out.take();
}

SaveReport decode_report(const std::string& bytes) {
  ByteReader in("save", bytes);
  SaveReport report;
  for (auto files = in.get<uint64_t>(); files > 0; --files) {
    format::ManifestFile& file = report.files.emplace_back();
    file.name = in.get_text();
    file.length = in.get<int64_t>();
    for (auto count = in.get<uint64_t>(); count > 0; --count) file.blocks.push_back(in.get<format::Digest>());
    for (auto count = in.get<uint64_t>(); count > 0; --count) file.places.push_back(in.get<format::BlockPlace>());
  }
  for (auto count = in.get<uint64_t>(); count > 0; --count) report.stored_files.push_back(in.get_text());
  report.bytes = in.get<int64_t>();
  report.bytes_in_base = in.get<int64_t>();
  for (auto* places : {&report.objects, &report.items}) {
    for (auto count = in.get<uint64_t>(); count > 0; --count) places->push_back(in.get<PlaceInFile>());
  }
  return report;
}

}  // namespace sherd::detail
