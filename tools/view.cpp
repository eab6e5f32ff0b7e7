// sherd view: a whole checkpoint drawn, as one page.

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "location.h"
#include "name_filter.h"
#include "plan/redistribute.h"
#include "sherd/inspect.h"
#include "verb.h"
#include "view_page.h"
#include "write_file.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd view runs/gpt/step-4000 --html step-4000.html\n"
    "  sherd view model.safetensors --html model.html --filter '*.weight'\n";

// "__3_0.distcp" is what rank 3 wrote.
std::optional<int> rank_of(std::string_view file) {
  if (!file.starts_with("__")) return std::nullopt;
  file.remove_prefix(2);
  int rank = 0;
  const auto [end, error] = std::from_chars(file.data(), file.data() + file.size(), rank);
  if (error != std::errc() || end == file.data() + file.size() || *end != '_') return std::nullopt;
  return rank;
}

const char* check_name(FileInfo::Check check) {
  return check == FileInfo::Check::digests ? "digests" : check == FileInfo::Check::crc ? "CRC" : "nothing";
}

// Chunks as rows of [file, offset, bytes, offsets, sizes]: there may be many.
Json to_json(const CheckpointInfo& info) {
  Json tensors = Json::array();
  for (const TensorInfo& tensor : info.tensors) {
    Json chunks = Json::array();
    for (const ChunkInfo& chunk : tensor.chunks) {
      chunks.push_back({chunk.file, chunk.offset, chunk.bytes, chunk.box.offset, chunk.box.size});
    }
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"size", tensor.size},
                       {"bytes", tensor.bytes},
                       {"chunks", std::move(chunks)}});
  }
  Json objects = Json::array();
  for (const ObjectInfo& object : info.objects) objects.push_back({{"name", object.name}, {"text", object.text}});
  Json files = Json::array();
  for (const FileInfo& file : info.files) {
    const auto rank = rank_of(file.name);
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"there", file.there},
                     {"rank", rank ? Json(*rank) : Json()},
                     {"checked_by", check_name(file.check)},
                     {"bytes_in_bases", file.bytes_in_bases}});
  }
  Json bases = Json::array();
  for (const BaseInfo& base : info.bases) bases.push_back({{"path", base.path}, {"there", base.there}});
  return {{"path", info.path},
          {"format", info.format},
          {"tensor_bytes", info.tensor_bytes},
          {"tensors", std::move(tensors)},
          {"objects", std::move(objects)},
          {"files", std::move(files)},
          {"bases", std::move(bases)}};
}

// Nothing in it can end the element that it stands in.
std::string script_text(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::detail::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

int view(const Verb& verb, const Arguments& arguments) {
  std::string path, output;
  std::vector<std::string> patterns;
  bool force = false, as_json = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("checkpoint", path, "a folder or a file")->required()->type_name(kCheckpointWord);
  parser.add_option("--html", output, "the page to write; it needs no other file")->required()->type_name(kFileWord);
  parser.add_option("--filter", patterns, "only names that match; may be repeated")
      ->type_name(kNameWord)
      ->allow_extra_args(false);
  parser.add_flag("--force", force, "replace a file that is there");
  parser.add_flag("--json", as_json, "print what was written as JSON");
  if (const auto code = parse(parser, verb, arguments)) return *code;

  const Location where = storage_for(verb.name, path);
  const Location target = storage_for(verb.name, output);
  refuse_existing(verb.name, target, output, force);
  CheckpointInfo info = inspect_checkpoint(where.path, {.storage = where.storage, .operation = verb.name});
  info.path = path;
  const NameFilter wanted(patterns);
  std::erase_if(info.tensors, [&](const TensorInfo& tensor) { return !wanted(tensor.name); });
  std::erase_if(info.objects, [&](const ObjectInfo& object) { return !wanted(object.name); });
  if (!wanted.empty() && info.tensors.empty() && info.objects.empty()) wanted.refuse(verb.name, path);

  const std::string page = kViewPageHead + script_text(to_json(info)) + kViewPageTail;
  write_file(target, page);
  if (as_json) {
    print_json({{"output", output}, {"bytes", page.size()}, {"tensors", info.tensors.size()}});
  } else {
    fmt::print("{}: {}, {}\n", output, counted(static_cast<int64_t>(info.tensors.size()), "tensor"),
               plan::bytes_text(static_cast<int64_t>(page.size())));
  }
  return kOk;
}

}  // namespace sherd::tools
