#pragma once
// Looking at checkpoints without loading them: what is in one, whether it is whole, how two differ, and single values.
// Every format that sherd reads, of any number of ranks; nothing here needs libtorch, and nothing reads more than it
// has to. What the command `sherd` prints, it has from here.
//
//   for (const auto& tensor : sherd::inspect_checkpoint("runs/gpt/step-4000").tensors) ...
//   if (!sherd::verify_checkpoint("runs/gpt/step-4000").damage.empty()) ...
//
// All of them throw std::runtime_error where there is no checkpoint at the path, and DamagedCheckpoint where there is
// one whose metadata cannot be read.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sherd/box.h"
#include "sherd/damage.h"
#include "sherd/progress.h"
#include "sherd/storage.h"

namespace sherd {

/// A part of a tensor, and the bytes [offset, offset + bytes) of its file that hold it: in PyTorch's formats an
/// archive, a little longer than its elements.
struct ChunkInfo {
  Box box;
  int32_t file = -1;  // a place in CheckpointInfo::files; -1 where the metadata name none
  int64_t offset = 0;
  int64_t bytes = 0;
  bool operator==(const ChunkInfo&) const = default;
};

struct TensorInfo {
  std::string name;
  std::string dtype;  // "f32", as in "f32[64, 32]"
  Dims size;
  int64_t bytes = 0;  // of its elements
  std::vector<ChunkInfo> chunks = {};
};

/// A value that is no tensor.
struct ObjectInfo {
  std::string name;
  std::string text;  // as Python would print it, cut short
  int32_t file = -1;
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct FileInfo {
  std::string name;
  int64_t bytes = 0;  // as long as it is, or, on a base, as it would be
  bool there = true;
  /// What its bytes can be compared with.
  enum class Check { none, crc, digests } check = Check::none;
  int64_t bytes_in_bases = 0;  // of an incremental checkpoint: what other checkpoints hold
};

/// A checkpoint that this one needs to be read.
struct BaseInfo {
  std::string path;
  std::string id;
  bool there = true;
};

struct CheckpointInfo {
  std::string path;
  std::string format;                    // "dcp", "safetensors", "torch.save"
  std::string id;                        // of the save; empty where the format has none
  std::vector<TensorInfo> tensors = {};  // by name
  std::vector<ObjectInfo> objects = {};  // by name
  std::vector<FileInfo> files = {};      // in the order that chunks count them
  std::vector<BaseInfo> bases = {};
  /// Names under which every rank of a program that saved without talking (PyTorch's use_collectives=False) has
  /// something of its own. Told is the first rank's.
  std::vector<std::string> of_each_rank = {};
  int64_t tensor_bytes = 0;  // of all elements
  int64_t file_bytes = 0;    // of all files in this checkpoint's own folder that it names
};

struct InspectOptions {
  std::shared_ptr<Storage> storage = {};  // the disk where there is none
  std::string operation = "inspect";      // begins errors
  /// Read the values of objects, those up to `object_bytes` long; the others' texts say only how long they are.
  bool objects = true;
  int64_t object_bytes = int64_t{1} << 20;
  size_t object_text = 200;  // characters
};

/// Reads the metadata, the lengths of files, and small objects. Files that are missing are said to be so.
CheckpointInfo inspect_checkpoint(const std::string& path, const InspectOptions& options = {});

/// One thing that is wrong. `bytes` where it is known which.
struct Damage {
  std::string problem;  // "bytes are not those that were saved"
  std::string file;     // empty where it concerns none
  struct Bytes {
    int64_t begin = 0;
    int64_t end = 0;
    bool operator==(const Bytes&) const = default;
  };
  std::optional<Bytes> bytes = {};
  std::vector<std::string> names = {};  // tensors and objects that it concerns
  std::string detail = {};              // values that were compared, a box, the text of an error
  bool operator==(const Damage&) const = default;
};
/// "file x, bytes 0 to 1048576: the bytes are not those that were saved (tensors a, b)".
std::string to_string(const Damage& damage);

struct VerifyOptions {
  std::shared_ptr<Storage> storage = {};
  std::string operation = "verify";
  Progress progress = {};
  size_t threads = 0;  // 0: one for each core
};

struct VerifyResult {
  std::string format;
  std::vector<Damage> damage;  // all of it, by file and byte
  int64_t tensors = 0;
  int64_t objects = 0;
  int64_t files = 0;
  int64_t bytes = 0;                   // that were read
  int64_t digests = 0;                 // that were compared
  int64_t crcs = 0;                    // that were compared
  std::vector<std::string> unchecked;  // files whose format has nothing to compare their bytes with
};

/// Reads every byte of every file that the checkpoint names and compares it with its digest, or with the CRCs in the
/// file; compares lengths, and what items say of themselves with the metadata; looks for parts of tensors that are
/// stored nowhere or twice. What each rank has of its own is named "name (rank 3)". Does not stop at the first fault.
/// Throws std::runtime_error only where there is no checkpoint at the path.
VerifyResult verify_checkpoint(const std::string& path, const VerifyOptions& options = {});

struct DiffOptions {
  std::shared_ptr<Storage> storage = {};        // of the first
  std::shared_ptr<Storage> other_storage = {};  // of the second
  std::string operation = "diff";
  /// Elements a and b count as equal where |a - b| <= absolute + relative * |b|. NaN equals NaN.
  double absolute = 0;
  double relative = 0;
  /// Tensors of different dtypes may be equal.
  bool ignore_dtypes = false;
  /// Which names are compared: none given, all.
  std::function<bool(const std::string& name)> wanted = {};
  bool verify = true;  // digests and CRCs of what is read
  Progress progress = {};
  size_t threads = 0;
};

struct TensorDifference {
  std::string name;
  std::string dtype, other_dtype;
  Dims size, other_size;
  // The rest where the sizes are equal.
  int64_t elements = 0;  // that differ
  int64_t nans = 0;      // of these, NaN on one side only
  Dims first = {};       // the first that differs, in row-major order; its values as texts
  std::string first_value = {}, first_other_value = {};
  double max_absolute = 0;  // |a - b|
  double max_relative = 0;  // |a - b| / max(|a|, |b|)
};

struct ObjectDifference {
  std::string name;
  std::string text, other_text;  // cut short; "tensor f32[2]" where it is a tensor on that side
};

struct DiffResult {
  std::vector<std::string> only_here;
  std::vector<std::string> only_there;
  std::vector<TensorDifference> tensors;
  std::vector<ObjectDifference> objects;
  int64_t compared = 0;  // names that both have
  int64_t bytes = 0;     // of the elements that were compared, on one side
  bool equal() const { return only_here.empty() && only_there.empty() && tensors.empty() && objects.empty(); }
};

/// Compares two checkpoints by name, whatever their formats and however their tensors are cut: elements by value,
/// objects by value. Holds a few MiB of each. Throws DamagedCheckpoint where bytes of either are damaged or missing.
DiffResult diff_checkpoints(const std::string& path, const std::string& other, const DiffOptions& options = {});

/// Elements in row-major order, without gaps.
struct StoredValues {
  std::string dtype;
  Dims size;
  std::vector<std::byte> bytes;
};

struct ReadStoredOptions {
  std::shared_ptr<Storage> storage = {};
  std::string operation = "read_stored";
  bool verify = true;
  Progress progress = {};
};

/// The whole of a tensor, or a box of it. Throws std::invalid_argument where the checkpoint has no tensor of the name
/// or the box lies outside of it; DamagedCheckpoint where a part is stored nowhere.
StoredValues read_stored(const std::string& path, const std::string& name, const std::optional<Box>& box = {},
                         const ReadStoredOptions& options = {});
/// The same in parts of at most 8 MiB, front to back, for tensors larger than memory. `begin` is told dtype and size
/// before the first.
void read_stored(const std::string& path, const std::string& name, const std::optional<Box>& box,
                 const std::function<void(const std::string& dtype, const Dims& size)>& begin,
                 const std::function<void(std::span<const std::byte>)>& take, const ReadStoredOptions& options = {});

}  // namespace sherd
