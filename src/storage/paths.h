#pragma once
// Names of folders, files and drafts, as every driver reads them. Text only: nothing here looks at a disk.

#include <optional>
#include <string>
#include <string_view>

namespace sherd {

/// Without doubled and trailing slashes. "/" stays; an empty path is ".".
std::string clean_path(std::string_view path);

/// "a/b" of "a/b/c"; "/" of "/c"; "." of "c". For clean paths.
std::string parent_of(std::string_view path);
/// "c" of "a/b/c".
std::string name_of(std::string_view path);

/// Beside a folder: `<folder>.tmp-<id>`, a draft of it, and `<folder>.old-<id>`, what it was before, where a file
/// system can put the draft in its place in two steps only.
enum class Beside { draft, old };

struct BesideName {
  std::string folder;  // the name it stands beside
  Beside what = Beside::draft;
  std::string id;
};

std::string beside(std::string_view folder, Beside what, std::string_view id);
/// Nothing where the name is an ordinary one. What a folder was before has an id of new_id(): what a person calls
/// `<folder>.old-backup` is an ordinary name.
std::optional<BesideName> parse_beside(std::string_view name);

/// 32 random hexadecimal digits: an id that nobody else has, and that nobody writes by hand.
std::string new_id();
/// Whether an id has the form of those.
bool is_new_id(std::string_view id);

/// The folder has a name, and the id letters, digits, "_" and "-". Throws std::invalid_argument.
void check_draft(std::string_view folder, std::string_view id);
/// The name of a file inside a draft: relative, with folders, without ".." and empty parts. Throws
/// std::invalid_argument.
void check_file_name(std::string_view name);

}  // namespace sherd
