#include "storage/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd {
namespace {

constexpr std::string_view kDraftMark = ".tmp-";
constexpr std::string_view kOldMark = ".old-";
constexpr size_t kNewIdSize = 32;

bool is_id(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace

std::string clean_path(std::string_view path) {
  std::string clean;
  for (const char c : path) {
    if (c != '/' || clean.empty() || clean.back() != '/') clean += c;
  }
  if (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  return clean.empty() ? "." : clean;
}

std::string parent_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

std::string name_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string beside(std::string_view folder, Beside what, std::string_view id) {
  std::string path(folder);
  path += what == Beside::draft ? kDraftMark : kOldMark;
  path += id;
  return path;
}

std::optional<BesideName> parse_beside(std::string_view name) {
  for (const Beside what : {Beside::draft, Beside::old}) {
    const std::string_view mark = what == Beside::draft ? kDraftMark : kOldMark;
    const size_t at = name.rfind(mark);
    if (at == std::string_view::npos || at == 0) continue;
    const std::string_view id = name.substr(at + mark.size());
    if (what == Beside::draft ? is_id(id) : is_new_id(id))
      return BesideName{std::string(name.substr(0, at)), what, std::string(id)};
  }
  return std::nullopt;
}

std::string new_id() {
  std::random_device device;
  std::string id;
  while (id.size() < kNewIdSize) id += fmt::format("{:08x}", device());
  return id;
}

bool is_new_id(std::string_view id) {
  return id.size() == kNewIdSize &&
         std::ranges::all_of(id, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

void check_draft(std::string_view folder, std::string_view id) {
  const std::string name = name_of(clean_path(folder));
  if (name.empty() || name == "." || name == "..") {
    throw std::invalid_argument(ErrorText("draft", "the folder has no name of its own").fact("folder", folder));
  }
  if (is_id(id)) return;
  throw std::invalid_argument(ErrorText("draft", "an id has letters, digits, _ and - only").fact("id", id));
}

void check_file_name(std::string_view name) {
  size_t begin = 0;
  for (;;) {
    const size_t slash = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, slash - begin);
    if (part.empty() || part == "." || part == "..") {
      throw std::invalid_argument(
          ErrorText("create", "the name of a file is relative to its folder and stays in it").fact("name", name));
    }
    if (slash == name.size()) return;
    begin = slash + 1;
  }
}

}  // namespace sherd
