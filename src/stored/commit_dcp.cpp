#include "stored/commit_dcp.h"

#include <fmt/format.h>

#include <algorithm>

#include "stored/file_stream.h"

namespace sherd::stored {

std::string distcp_name(const Storage& storage, const std::string& id, int64_t rank) {
  return storage.replaces_whole_folders() ? fmt::format("__{}_0.distcp", rank)
                                          : fmt::format("__{}_0-{}.distcp", rank, id);
}

void commit_dcp(const Storage& storage, Draft& draft, format::Metadata metadata, format::Manifest manifest) {
  // Whoever finds the metadata knows by it that there were digests.
  metadata.manifest = storage.replaces_whole_folders() ? format::kManifestName : format::manifest_name(manifest.id);
  FileStream stream(draft, kMetadataName, 0, nullptr);
  format::encode_metadata(metadata, [&](std::span<const std::byte> part) { stream.append(part); });
  manifest.files.push_back(stream.finish().file);
  std::sort(manifest.files.begin(), manifest.files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const std::string bytes = format::encode_manifest(manifest);
  const auto writer = draft.create(metadata.manifest, static_cast<int64_t>(bytes.size()));
  writer->write(0, std::as_bytes(std::span(bytes)));
  writer->finish();
  draft.commit(kMetadataName);
}

}  // namespace sherd::stored
