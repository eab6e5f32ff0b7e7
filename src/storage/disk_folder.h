#pragma once
// Folders of a disk: made, listed, synced and removed with all that is in them. All throw std::runtime_error.

#include <string>
#include <vector>

#include "storage/paths.h"
#include "storage/posix.h"

namespace sherd {

/// Makes the folder and those above it; each that is new is known to the folder above it after a loss of power.
void make_folders(Posix& posix, const std::string& path);

/// Syncs the names in a folder: which files there are, not what is in them.
void sync_folder(Posix& posix, const std::string& path);
/// The same for it and all folders in it.
void sync_folders(Posix& posix, const std::string& path);

/// A file, a link or a folder with all that is in it. One that is not there is no error.
void remove_tree(Posix& posix, const std::string& path);

/// The drafts and former versions beside a folder's name, ordered by id; none where its parent is not there.
std::vector<BesideName> names_beside(Posix& posix, const std::string& folder);

/// The path where the links at its end lead to.
std::string follow_links(Posix& posix, std::string path);

}  // namespace sherd
