// sherd inspect: what is in a checkpoint.

#include "sherd/inspect.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "location.h"
#include "name_filter.h"
#include "name_tree.h"
#include "plan/redistribute.h"
#include "table.h"
#include "verb.h"

namespace sherd::tools {
namespace {

using plan::bytes_text;

constexpr const char* kExamples =
    "  sherd inspect runs/gpt/step-4000                     a tree of names\n"
    "  sherd inspect runs/gpt/step-4000 --filter '*.wq'     only these\n"
    "  sherd inspect runs/gpt/step-4000 --chunks            which part of each tensor lies where\n"
    "  sherd inspect runs/gpt/step-4000 --files             the files, and what covers their bytes\n"
    "  sherd inspect model.safetensors --table\n"
    "  sherd inspect s3://bucket/step-4000 --json\n";

std::string kind_of(const TensorInfo& tensor) { return tensor.dtype + to_string(tensor.size); }

const char* check_name(FileInfo::Check check) {
  switch (check) {
    case FileInfo::Check::digests:
      return "digests";
    case FileInfo::Check::crc:
      return "CRC";
    case FileInfo::Check::none:
      break;
  }
  return "nothing";
}

void print_head(const CheckpointInfo& info) {
  const bool color = has_color(stdout);
  fmt::print("{}  {}, {}, {}, {}, {} of elements\n", styled(info.path, Style::bold, color), info.format,
             counted(static_cast<int64_t>(info.tensors.size()), "tensor"),
             counted(static_cast<int64_t>(info.objects.size()), "object"),
             counted(static_cast<int64_t>(info.files.size()), "file"), bytes_text(info.tensor_bytes));
  for (const BaseInfo& base : info.bases) {
    fmt::print("stands on {}{}\n", base.path, base.there ? "" : styled("  missing", Style::red, color));
  }
  if (!info.of_each_rank.empty()) {
    fmt::print("each rank has its own, shown is the first one's: {}\n", fmt::join(info.of_each_rank, ", "));
  }
  for (const FileInfo& file : info.files) {
    if (!file.there) fmt::print("{}\n", styled("missing: " + file.name, Style::red, color));
  }
}

void print_tree(const CheckpointInfo& info, bool all) {
  std::vector<NamedLeaf> leaves;
  for (const TensorInfo& tensor : info.tensors) {
    leaves.push_back({tensor.name, kind_of(tensor), tensor.bytes, static_cast<int64_t>(tensor.chunks.size())});
  }
  for (const ObjectInfo& object : info.objects) leaves.push_back({object.name, "= " + object.text, 0, 0});
  Table table({{"", false, true}, {"", false, true, Style::cyan}, {"", true}, {"", false, false, Style::dim}});
  for (const TreeLine& line : draw_tree(leaves, all)) {
    std::string notes;
    if (line.kind.empty() || line.leaves > 1) notes = fmt::format("{} in all", line.leaves);
    if (line.chunks > 1) notes += fmt::format("{}{} chunks", notes.empty() ? "" : ", ", line.chunks);
    const bool no_bytes = line.kind.starts_with("= ") || (line.kind.empty() && line.bytes == 0);
    table.add({line.label, line.kind, no_bytes ? "" : bytes_text(line.bytes), notes});
  }
  if (!table.empty()) fmt::print("\n");
  table.print();
}

std::string files_of(const CheckpointInfo& info, const TensorInfo& tensor) {
  std::set<int32_t> files;
  for (const ChunkInfo& chunk : tensor.chunks) files.insert(chunk.file);
  if (files.size() > 2) return fmt::format("{} files", files.size());
  std::string text;
  for (const int32_t file : files) {
    text += (text.empty() ? "" : ", ") + (file < 0 ? "none" : info.files[static_cast<size_t>(file)].name);
  }
  return text;
}

void print_table(const CheckpointInfo& info) {
  Table table({{"NAME", false, true},
               {"DTYPE", false, false, Style::cyan},
               {"SIZE"},
               {"BYTES", true},
               {"CHUNKS", true},
               {"FILE", false, true, Style::dim}});
  for (const TensorInfo& tensor : info.tensors) {
    table.add({tensor.name, tensor.dtype, to_string(tensor.size), bytes_text(tensor.bytes),
               fmt::to_string(tensor.chunks.size()), files_of(info, tensor)});
  }
  for (const ObjectInfo& object : info.objects) {
    const std::string file = object.file < 0 ? "none" : info.files[static_cast<size_t>(object.file)].name;
    table.add({object.name, "object", object.text, bytes_text(object.bytes), "", file});
  }
  fmt::print("\n");
  table.print();
}

void print_chunks(const CheckpointInfo& info) {
  Table table({{"NAME", false, true},
               {"BOX", false, false, Style::cyan},
               {"FILE", false, true},
               {"OFFSET", true},
               {"BYTES", true}});
  for (const TensorInfo& tensor : info.tensors) {
    for (const ChunkInfo& chunk : tensor.chunks) {
      table.add({tensor.name, to_string(chunk.box),
                 chunk.file < 0 ? "none" : info.files[static_cast<size_t>(chunk.file)].name,
                 fmt::to_string(chunk.offset), fmt::to_string(chunk.bytes)});
    }
  }
  fmt::print("\n");
  table.print();
}

void print_files(const CheckpointInfo& info) {
  std::vector<int64_t> items(info.files.size());
  const auto count = [&](int32_t file) {
    if (file >= 0) ++items[static_cast<size_t>(file)];
  };
  for (const TensorInfo& tensor : info.tensors) {
    for (const ChunkInfo& chunk : tensor.chunks) count(chunk.file);
  }
  for (const ObjectInfo& object : info.objects) count(object.file);
  Table table({{"FILE", false, true}, {"SIZE", true}, {"IN BASES", true}, {"ITEMS", true}, {"CHECKED BY"}});
  for (size_t i = 0; i < info.files.size(); ++i) {
    const FileInfo& file = info.files[i];
    table.add({file.name, file.there ? bytes_text(file.bytes) : "missing",
               file.bytes_in_bases > 0 ? bytes_text(file.bytes_in_bases) : "", count_text(items[i]),
               check_name(file.check)});
  }
  fmt::print("\n");
  table.print();
}

Json place_json(const CheckpointInfo& info, int32_t file, int64_t offset, int64_t bytes) {
  return {{"file", file < 0 ? Json() : Json(info.files[static_cast<size_t>(file)].name)},
          {"offset", offset},
          {"bytes", bytes}};
}

Json to_json(const CheckpointInfo& info) {
  Json tensors = Json::array();
  for (const TensorInfo& tensor : info.tensors) {
    Json chunks = Json::array();
    for (const ChunkInfo& chunk : tensor.chunks) {
      Json one = {{"offsets", chunk.box.offset}, {"sizes", chunk.box.size}};
      one.update(place_json(info, chunk.file, chunk.offset, chunk.bytes));
      chunks.push_back(std::move(one));
    }
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"size", tensor.size},
                       {"bytes", tensor.bytes},
                       {"chunks", std::move(chunks)}});
  }
  Json objects = Json::array();
  for (const ObjectInfo& object : info.objects) {
    Json one = {{"name", object.name}, {"text", object.text}};
    one.update(place_json(info, object.file, object.offset, object.bytes));
    objects.push_back(std::move(one));
  }
  Json files = Json::array();
  for (const FileInfo& file : info.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"there", file.there},
                     {"checked_by", check_name(file.check)},
                     {"bytes_in_bases", file.bytes_in_bases}});
  }
  Json bases = Json::array();
  for (const BaseInfo& base : info.bases)
    bases.push_back({{"path", base.path}, {"id", base.id}, {"there", base.there}});
  return {{"path", info.path},
          {"format", info.format},
          {"id", info.id},
          {"tensor_bytes", info.tensor_bytes},
          {"file_bytes", info.file_bytes},
          {"tensors", std::move(tensors)},
          {"objects", std::move(objects)},
          {"files", std::move(files)},
          {"bases", std::move(bases)},
          {"of_each_rank", info.of_each_rank}};
}

}  // namespace

int inspect(const Verb& verb, const Arguments& arguments) {
  std::string path;
  std::vector<std::string> patterns;
  bool table = false, chunks = false, files = false, names = false, all = false, as_json = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("checkpoint", path, "a folder or a file")->required()->type_name(kCheckpointWord);
  parser.add_option("--filter", patterns, "only names that match: 'model.*.weight'; may be repeated")
      ->type_name(kNameWord)
      ->allow_extra_args(false);
  parser.add_flag("--all", all, "every branch of the tree, also numbered ones that are alike");
  const std::vector<CLI::Option*> forms = {
      parser.add_flag("--table", table, "instead of a tree: one line for each tensor"),
      parser.add_flag("--chunks", chunks, "one line for each part of a tensor, with its place"),
      parser.add_flag("--files", files, "one line for each file"),
      parser.add_flag("--names", names, "names alone"),
      parser.add_flag("--json", as_json, "print JSON"),
  };
  for (size_t i = 1; i < forms.size(); ++i) {
    for (size_t j = 0; j < i; ++j) forms[i]->excludes(forms[j]);
  }
  if (const auto code = parse(parser, verb, arguments)) return *code;

  const Location where = storage_for(verb.name, path);
  InspectOptions options{.storage = where.storage, .operation = verb.name};
  options.objects = !names && !files && !chunks;
  CheckpointInfo info = inspect_checkpoint(where.path, options);
  info.path = path;
  const NameFilter wanted(patterns);
  std::erase_if(info.tensors, [&](const TensorInfo& tensor) { return !wanted(tensor.name); });
  std::erase_if(info.objects, [&](const ObjectInfo& object) { return !wanted(object.name); });
  if (!wanted.empty() && info.tensors.empty() && info.objects.empty()) wanted.refuse(verb.name, path);
  info.tensor_bytes = 0;
  for (const TensorInfo& tensor : info.tensors) info.tensor_bytes += tensor.bytes;

  if (as_json) return print_json(to_json(info)), kOk;
  if (names) {
    for (const TensorInfo& tensor : info.tensors) fmt::print("{}\n", tensor.name);
    for (const ObjectInfo& object : info.objects) fmt::print("{}\n", object.name);
    return kOk;
  }
  print_head(info);
  if (table) {
    print_table(info);
  } else if (chunks) {
    print_chunks(info);
  } else if (files) {
    print_files(info);
  } else {
    print_tree(info, all);
  }
  return kOk;
}

}  // namespace sherd::tools
