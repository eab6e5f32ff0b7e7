#pragma once
// One save, from the state to the checkpoint in its place.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/base_blocks.h"
#include "checkpoint/file_stream.h"
#include "checkpoint/saved_state.h"
#include "format/archive.h"
#include "sherd/checkpoint.h"

namespace sherd::detail {

class Saver {
 public:
  Saver(const Group& group, std::string path, SaveOptions options);

  /// Agrees with the other ranks on who writes what, and opens the draft. Throws on every rank or on none, also where
  /// `check` does.
  void plan(const StateDict& state, const std::function<void()>& check = {});
  /// Copies what this rank is to write into `memory`, which is made larger where it is too small.
  void snapshot(at::Tensor& memory);
  /// Writes it, and puts the checkpoint in its place. `group` has the same ranks as the one that planned. Throws on
  /// every rank or on none; a save that failed leaves no draft.
  SaveResult write(const Group& group);

  CheckpointProgress progress() const { return {done_.load(), total_.load()}; }

 private:
  // A chunk that this rank writes.
  struct Item {
    size_t leaf;
    format::TensorItem item;
    at::Tensor data;
  };
  // An object that it writes, as torch.save's bytes.
  struct ObjectItem {
    size_t leaf;
    std::string bytes;
  };
  // What a rank tells of its file.
  struct Report {
    format::ManifestFile file;              // no name: it wrote none
    std::vector<std::string> stored_files;  // for its places
    int64_t bytes = 0;
    int64_t bytes_in_base = 0;
    struct Object {
      uint64_t leaf;
      int64_t offset;
      int64_t length;
    };
    std::vector<Object> objects;
  };

  std::string open_draft();
  void collect(const std::vector<SavedLeaf>& leaves);
  Report write_data();
  void write_metadata(const std::vector<Report>& reports);
  format::Metadata metadata(const std::vector<Report>& reports) const;
  static std::string encode(const Report& report);
  static Report decode(const std::string& bytes);
  std::string file_of(int32_t place) const;

  Group group_;
  std::string path_;
  SaveOptions options_;
  std::shared_ptr<Storage> storage_;
  std::string id_;
  std::unique_ptr<Draft> draft_;
  std::unique_ptr<BaseBlocks> base_;
  std::shared_ptr<const AgreedState> state_;
  std::vector<Item> items_;
  std::vector<ObjectItem> objects_;
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> total_{0};
};

}  // namespace sherd::detail
