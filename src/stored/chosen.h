#pragma once
// What of one or several checkpoints is to be written anew, and how each format lays it out in files.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "format/dcp.h"
#include "sherd/convert.h"
#include "stored/file_plan.h"

namespace sherd::stored {

/// Where a tensor lies in a memory that it shares with others of the same number.
struct InMemory {
  size_t memory = 0;
  int64_t offset = 0;  // in elements
  Dims strides;        // in elements
};

struct ChosenTensor {
  std::string name;  // in the result
  std::vector<format::PathPart> path;
  size_t source = 0;
  size_t entry = 0;                              // a place in the source's metadata
  const format::TensorEntry* content = nullptr;  // there
  size_t order = 0;                              // among all that was chosen
  std::optional<InMemory> shared = {};

  int64_t bytes() const { return numel(content->size) * size_of(content->dtype); }
  Elements elements(Box box) const { return {source, entry, std::move(box), size_of(content->dtype)}; }
  Elements whole() const { return elements({Dims(content->size.size(), 0), content->size}); }
};
struct ChosenObject {
  std::string name;
  std::vector<format::PathPart> path;
  std::string archive;  // as torch.save writes it
  size_t order = 0;
};
struct Chosen {
  std::vector<ChosenTensor> tensors;
  std::vector<ChosenObject> objects;
  std::vector<std::vector<format::PathPart>> dicts = {};  // as in Metadata
  std::vector<format::OrderedPlace> ordered = {};
};

/// What lies beside an OrderedDict, without those of its attributes that a format has no room for; None where none is
/// left. A module's `_metadata` stays where something else that lies beside it cannot.
format::Value kept_beside(const format::OrderedPlace& place, const std::function<bool(const format::Value&)>& fits);

/// The files that ranks would have written, and what tells of them. Places are those in the plans.
struct DcpPlan {
  std::vector<FilePlan> files;
  format::Metadata metadata;
};
DcpPlan plan_dcp(const Chosen& chosen, const std::optional<RankLayouts>& layouts, const Storage& storage,
                 const std::string& path, const std::string& id, const std::string& operation);

/// One file that has the path itself (file_bytes 0), or several of at most so many bytes with their index, which is
/// last. With an id in their names there is always an index.
std::vector<FilePlan> plan_safetensors(const Chosen& chosen, int64_t file_bytes, const std::string& operation,
                                       const std::string& id_in_names);

FilePlan plan_torch_save(const Chosen& chosen, const std::string& operation);

}  // namespace sherd::stored
