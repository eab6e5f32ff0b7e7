// sherd ls: the checkpoints of a directory.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "last_written.h"
#include "location.h"
#include "plan/redistribute.h"
#include "sherd/error.h"
#include "sherd/inspect.h"
#include "stored/retention.h"
#include "table.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd ls runs/gpt\n"
    "  sherd ls runs/gpt --json\n";

struct Listed {
  std::string name;
  std::optional<int64_t> step;
  std::optional<FileTime> when;
  CheckpointInfo info;
  std::string damage;  // empty where the metadata are whole and all files are there
};

// Nothing where it is no checkpoint.
std::optional<Listed> look_at(const Location& folder, const std::string& name, bool local) {
  const std::string path = folder.storage->join(folder.path, name);
  Listed listed{.name = name, .step = stored::step_of(name), .when = {}, .info = {}, .damage = {}};
  try {
    listed.info = inspect_checkpoint(path, {.storage = folder.storage, .operation = "ls", .objects = false});
  } catch (const DamagedCheckpoint& error) {
    const std::string_view text = error.what();
    listed.damage = text.substr(0, text.find('\n'));
  } catch (const std::exception&) {
    return std::nullopt;
  }
  for (const FileInfo& file : listed.info.files) {
    if (!file.there) listed.damage = file.name + " is missing";
  }
  for (const BaseInfo& base : listed.info.bases) {
    if (!base.there) listed.damage = "its base " + base.path + " is missing";
  }
  if (local) listed.when = last_written(path);
  return listed;
}

std::string time_text(const std::optional<FileTime>& time) {
  if (!time) return "";
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(std::chrono::system_clock::to_time_t(*time)));
}

std::string bases_text(const CheckpointInfo& info) {
  if (info.bases.empty()) return "";
  const std::string& first = info.bases.front().path;
  std::string text = first.substr(first.rfind('/') + 1);
  if (info.bases.size() > 1) text += fmt::format(" and {} more", info.bases.size() - 1);
  return text;
}

void print_text(const std::vector<Listed>& all, const std::vector<DraftName>& drafts) {
  Table table({{"NAME", false, true},
               {"FORMAT", false, false, Style::dim},
               {"STEP", true},
               {"SIZE", true},
               {"TENSORS", true},
               {"WRITTEN"},
               {"BASE", false, true},
               {"STATE", false, true}});
  for (const Listed& one : all) {
    table.add({one.name, one.info.format, one.step ? fmt::to_string(*one.step) : "",
               one.info.format.empty() ? "" : plan::bytes_text(one.info.file_bytes),
               one.info.format.empty() ? "" : fmt::to_string(one.info.tensors.size()), time_text(one.when),
               bases_text(one.info), one.damage.empty() ? "ok" : "damaged: " + one.damage});
  }
  if (!table.empty()) table.print();
  for (const DraftName& draft : drafts) fmt::print("unfinished: {}.tmp-{}\n", draft.folder, draft.id);
}

Json to_json(const std::vector<Listed>& all, const std::vector<DraftName>& drafts) {
  Json list = Json::array();
  for (const Listed& one : all) {
    Json bases = Json::array();
    for (const BaseInfo& base : one.info.bases) bases.push_back(base.path);
    list.push_back({{"name", one.name},
                    {"format", one.info.format},
                    {"step", one.step ? Json(*one.step) : Json()},
                    {"id", one.info.id},
                    {"bytes", one.info.file_bytes},
                    {"tensors", one.info.tensors.size()},
                    {"written", one.when ? Json(std::chrono::system_clock::to_time_t(*one.when)) : Json()},
                    {"bases", std::move(bases)},
                    {"damage", one.damage.empty() ? Json() : Json(one.damage)}});
  }
  Json unfinished = Json::array();
  for (const DraftName& draft : drafts) unfinished.push_back({{"folder", draft.folder}, {"id", draft.id}});
  return {{"checkpoints", std::move(list)}, {"unfinished", std::move(unfinished)}};
}

}  // namespace

int ls(const Verb& verb, const Arguments& arguments) {
  std::string path = ".";
  bool as_json = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("directory", path, "where checkpoints lie side by side (here)")->type_name(kFolderWord);
  parser.add_flag("--json", as_json, "print JSON");
  if (const auto code = parse(parser, verb, arguments)) return *code;

  const Location folder = storage_for(verb.name, path);
  const bool local = path.find("://") == std::string::npos;
  const std::vector<std::string> names = folder.storage->list(folder.path);
  std::vector<Listed> all;
  for (const std::string& name : names) {
    if (auto listed = look_at(folder, name, local)) all.push_back(std::move(*listed));
  }
  const std::vector<DraftName> drafts = folder.storage->drafts_in(folder.path);
  if (all.empty() && drafts.empty() && !as_json) {
    throw std::invalid_argument(ErrorText(verb.name, "no checkpoints lie in this directory")
                                    .fact("directory", path)
                                    .fact("names there", fmt::to_string(names.size()))
                                    .help("sherd inspect for one checkpoint"));
  }
  // Steps by number, everything else by name, after them.
  std::stable_sort(all.begin(), all.end(), [](const Listed& a, const Listed& b) {
    if (a.step.has_value() != b.step.has_value()) return a.step.has_value();
    return a.step && *a.step < *b.step;
  });
  if (as_json) {
    print_json(to_json(all, drafts));
  } else {
    print_text(all, drafts);
  }
  return kOk;
}

}  // namespace sherd::tools
