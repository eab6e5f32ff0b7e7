// sherd gc: old checkpoints of a run go, by the rules of CheckpointManager.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>
#include <stdexcept>

#include "format/manifest.h"
#include "interrupt.h"
#include "last_written.h"
#include "location.h"
#include "sherd/error.h"
#include "stored/base_blocks.h"
#include "stored/read_file.h"
#include "stored/retention.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd gc runs/gpt --keep-last 3 --keep-every 1000 --dry-run    what would go\n"
    "  sherd gc runs/gpt --keep-last 3 --keep-every 1000\n";

constexpr const char* kNotes =
    "Looks at the folders step-<number>. What a kept one stands on (an incremental save) stays, too. The newest stays "
    "in\n"
    "any case. Drafts that no save has written to for an hour are removed, and folders <file>.parts, which ranks "
    "write\n"
    "before they become one file.\n";

// What a folder's checkpoints stand on must be known before any of them goes.
void check_manifests(const Verb& verb, const Storage& storage, const std::string& folder) {
  for (const int64_t step : stored::steps_in(storage, folder)) {
    const std::string path = storage.join(folder, stored::step_name(step));
    try {
      const std::string file = storage.join(path, stored::manifest_of(storage, path));
      if (!storage.exists(file)) continue;
      const std::string bytes = stored::read_file(storage, file);
      format::decode_manifest(std::as_bytes(std::span(bytes)), file);
    } catch (const std::exception& error) {
      const std::string_view text = error.what();
      throw std::runtime_error(ErrorText(verb.name, "what a checkpoint stands on cannot be read, so nothing is removed")
                                   .fact("checkpoint", path)
                                   .fact("why", text.substr(0, text.find('\n')))
                                   .help("move it away, or remove it"));
    }
  }
}

bool is_stale(const std::string& path, bool local, double minutes) {
  if (minutes <= 0) return true;
  if (!local) return false;
  const auto when = last_written(path);
  return when && std::chrono::system_clock::now() - *when > std::chrono::duration<double, std::ratio<60>>(minutes);
}

}  // namespace

int gc(const Verb& verb, const Arguments& arguments) {
  std::string path;
  stored::Retention retention;
  double stale = 60;
  bool dry_run = false, as_json = false;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.footer(std::string(kNotes) + "\n" + parser.get_footer());
  parser.add_option("directory", path, "of a run: step-100, step-200, ...")->required()->type_name(kFolderWord);
  auto* last = parser.add_option("--keep-last", retention.keep_last, "the newest so many stay")
                   ->type_name("N")
                   ->check(CLI::PositiveNumber);
  auto* every = parser.add_option("--keep-every", retention.keep_every, "and those whose step is a multiple of this")
                    ->type_name("K")
                    ->check(CLI::PositiveNumber);
  parser.add_option("--stale", stale, "minutes after which a draft counts as left behind (60); 0: all drafts")
      ->type_name("MINUTES");
  parser.add_flag("--dry-run", dry_run, "say what would be removed, and remove nothing");
  parser.add_flag("--json", as_json, "print JSON");
  if (const auto code = parse(parser, verb, arguments)) return *code;
  if (last->count() == 0 && every->count() == 0) {
    throw std::invalid_argument(ErrorText(verb.name, "nothing says what is to be kept")
                                    .fact("directory", path)
                                    .help(fmt::format("sherd gc {} --keep-last 3", path)));
  }
  retention.keep_last = std::max<int64_t>(retention.keep_last, 1);

  const Location folder = storage_for(verb.name, path);
  const bool local = path.find("://") == std::string::npos;
  const auto there = stored::steps_in(*folder.storage, folder.path);
  std::vector<DraftName> drafts = folder.storage->drafts_in(folder.path);
  std::erase_if(drafts,
                [&](const DraftName& draft) { return !is_stale(draft.folder + ".tmp-" + draft.id, local, stale); });
  std::vector<std::string> parts = stored::parts_in(*folder.storage, folder.path);
  std::erase_if(parts, [&](const std::string& one) { return !is_stale(one, local, stale); });
  if (there.empty() && drafts.empty() && parts.empty()) {
    throw std::invalid_argument(ErrorText(verb.name, "no checkpoints of a run lie in this directory")
                                    .fact("directory", path)
                                    .fact("looked for", "step-<number>")
                                    .help("sherd ls " + path));
  }
  check_manifests(verb, *folder.storage, folder.path);
  const auto removed = stored::steps_to_remove(*folder.storage, folder.path, retention);
  Json removed_names = Json::array(), kept_names = Json::array(), draft_names = Json::array();
  const char* word = dry_run ? "would remove" : "removed";
  {
    const InterruptGuard guard;
    for (const int64_t step : there) {
      if (!std::binary_search(removed.begin(), removed.end(), step)) kept_names.push_back(stored::step_name(step));
    }
    for (const int64_t step : std::views::reverse(removed)) {
      const std::string name = stored::step_name(step);
      throw_if_interrupted();
      if (!dry_run) stored::remove_checkpoint(*folder.storage, folder.storage->join(folder.path, name));
      removed_names.push_back(name);
      if (!as_json) fmt::print("{} {}\n", word, name);
    }
    for (const DraftName& draft : drafts) {
      throw_if_interrupted();
      if (!dry_run) folder.storage->draft(draft.folder, draft.id)->discard();
      draft_names.push_back(draft.folder + ".tmp-" + draft.id);
      if (!as_json) fmt::print("{} {}.tmp-{}, a draft\n", word, draft.folder, draft.id);
    }
    for (const std::string& one : parts) {
      throw_if_interrupted();
      if (!dry_run) stored::remove_checkpoint(*folder.storage, one);
      draft_names.push_back(one);
      if (!as_json) fmt::print("{} {}, parts of a file\n", word, one);
    }
  }
  if (as_json) {
    print_json({{"dry_run", dry_run},
                {"removed", std::move(removed_names)},
                {"kept", std::move(kept_names)},
                {"removed_drafts", std::move(draft_names)}});
  } else {
    fmt::print("kept {} of {}\n", kept_names.size(), there.size());
  }
  return kOk;
}

}  // namespace sherd::tools
