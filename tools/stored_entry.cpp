#include "stored_entry.h"

#include <stdexcept>

#include "location.h"
#include "sherd/error.h"
#include "stored/open_known.h"

namespace sherd::tools {

StoredEntry open_entry(const std::string& verb, const std::string& path, const std::string& name, bool verify) {
  const Location where = storage_for(verb, path);
  StoredEntry found{
      stored::open_known(where.storage, where.path,
                         {.verify = verify, .every_rank = true, .operation = verb, .no_verify = "--no-verify"}),
      nullptr};
  const format::Metadata& metadata = found.checkpoint->metadata();
  found.entry = metadata.find(name);
  if (found.entry != nullptr) return found;
  std::string near;
  size_t count = 0;
  for (const format::MetadataEntry& entry : metadata.entries) {
    if (entry.name.find(name) == std::string::npos || ++count > 5) continue;
    near += (near.empty() ? "" : ", ") + entry.name;
  }
  ErrorText text(verb, "the checkpoint has no such name");
  text.fact("checkpoint", path).fact("name", name);
  if (!near.empty()) text.fact("similar", count > 5 ? near + ", ..." : near);
  throw std::invalid_argument(text.help("sherd inspect --names " + path));
}

}  // namespace sherd::tools
