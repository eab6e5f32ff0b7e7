#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "format/object_json.h"
#include "format/own_digests.h"
#include "format/safetensors.h"
#include "format/safetensors_texts.h"
#include "sherd/error.h"
#include "sherd/storage.h"
#include "stored/chosen.h"

namespace sherd::stored {
namespace {

void check_dtypes(const Chosen& chosen, const std::string& operation) {
  for (const ChosenTensor& tensor : chosen.tensors) {
    const format::DTypeNames& names = names_of(tensor.content->dtype);
    if (!names.safetensors.empty()) continue;
    throw std::invalid_argument(ErrorText(operation, "safetensors cannot hold tensors of this dtype")
                                    .fact("tensor", tensor.name)
                                    .fact("dtype", names.text)
                                    .help("another format (a folder, or .pt), or leave the tensor out"));
  }
}

// Objects, and where names stood in a nested state. Of several files the first has them.
std::vector<std::pair<std::string, std::string>> texts_of(const Chosen& chosen) {
  std::vector<std::pair<std::string, std::string>> texts = {{"format", "pt"}};
  std::vector<format::NamedObject> objects;
  std::map<size_t, std::pair<std::string, std::vector<format::PathPart>>> in_order;
  for (const ChosenTensor& tensor : chosen.tensors) in_order[tensor.order] = {tensor.name, tensor.path};
  for (const ChosenObject& object : chosen.objects) {
    objects.push_back({object.name, object.archive});
    in_order[object.order] = {object.name, object.path};
  }
  format::NamedPaths paths;
  for (auto& [order, named] : in_order) paths.push_back(std::move(named));
  if (!objects.empty()) texts.emplace_back(format::kObjectsKey, format::encode_objects(objects));
  if (!format::are_plain(paths)) texts.emplace_back(format::kPathsKey, format::encode_paths(paths));
  if (!chosen.dicts.empty()) texts.emplace_back(format::kDictsKey, format::encode_dicts(chosen.dicts));
  if (!chosen.ordered.empty()) texts.emplace_back(format::kOrderedKey, format::encode_ordered(chosen.ordered));
  return texts;
}

FilePlan plan_file(std::string name, std::span<const ChosenTensor* const> tensors,
                   std::vector<std::pair<std::string, std::string>> texts) {
  format::SafetensorsFile file;
  file.metadata = std::move(texts);
  std::map<std::string_view, const ChosenTensor*> by_name;
  for (const ChosenTensor* tensor : tensors) {
    file.tensors.push_back({tensor->name, tensor->content->dtype, tensor->content->size, 0});
    by_name[tensor->name] = tensor;
  }
  FilePlan plan;
  plan.name = std::move(name);
  format::DigestedHeader header = format::lay_out_with_digests(file);
  plan.add(std::move(header.before));
  plan.add(DigestText{header.digests, [](std::span<const uint32_t>, std::span<const format::Digest> blocks) {
                        return format::digests_text(blocks);
                      }});
  plan.add(std::move(header.after));
  for (const format::SafeTensor& tensor : file.tensors) plan.add(by_name.at(tensor.name)->whole());
  return plan;
}

}  // namespace

std::vector<FilePlan> plan_safetensors(const Chosen& chosen, int64_t file_bytes, const std::string& operation,
                                       const std::string& id_in_names) {
  check_dtypes(chosen, operation);
  std::vector<std::vector<const ChosenTensor*>> files(1);
  int64_t bytes = 0;
  int64_t total = 0;
  for (const ChosenTensor& tensor : chosen.tensors) {
    if (file_bytes > 0 && !files.back().empty() && bytes + tensor.bytes() > file_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(&tensor);
    bytes += tensor.bytes();
    total += tensor.bytes();
  }
  if (files.size() == 1 && (file_bytes == 0 || id_in_names.empty())) {
    const char* name = file_bytes == 0 ? Draft::kItself : "model.safetensors";
    std::vector<FilePlan> plans;
    plans.push_back(plan_file(name, files.front(), texts_of(chosen)));
    return plans;
  }
  std::vector<FilePlan> plans;
  format::SafetensorsIndexFile index;
  index.total_size = total;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}{}{}.safetensors", i + 1, files.size(),
                                         id_in_names.empty() ? "" : "-", id_in_names);
    for (const ChosenTensor* tensor : files[i]) index.files.emplace_back(tensor->name, name);
    plans.push_back(plan_file(name, files[i], i == 0 ? texts_of(chosen) : texts_of({})));
  }
  std::sort(index.files.begin(), index.files.end());
  FilePlan& last = plans.emplace_back();
  last.name = format::kSafetensorsIndex;
  last.add(format::encode_safetensors_index(index));
  return plans;
}

}  // namespace sherd::stored
