// A file is cut into stretches of 1 MiB. A thread takes the next stretch, puts it together from the pieces that reach
// into it, and writes it. Text with CRCs waits for the elements before it: they are in this stretch or in earlier ones,
// which other threads have in hand. Stretches into which text with digests reaches are kept until all are there.

#include "stored/write_files.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "format/archive.h"
#include "format/own_digests.h"
#include "sherd/error.h"
#include "storage/in_threads.h"
#include "stored/as_damage.h"
#include "stored/copy_elements.h"
#include "stored/read_elements.h"

namespace sherd::stored {
namespace {

using format::kBlock;

// What fits into a core's cache, so that the copy into the file finds there what was just read.
constexpr int64_t kStretch = kBlock;
constexpr size_t kMostThreads = 8;

struct Part {
  uint32_t crc = 0;
  int64_t length = 0;
};

// Elements of a file: the parts of them that stretches have brought so far.
struct Sum {
  std::vector<Part> parts;  // by stretch, from the first one that they reach into
  size_t missing = 0;
  uint32_t crc = 0;  // once none is missing
};

struct File {
  const FilePlan* plan = nullptr;
  std::vector<int64_t> starts;  // of the pieces
  std::vector<size_t> sums;     // per piece that is Elements its place in `sums_of`, in order
  std::vector<Sum> sums_of;
  bool wants_crcs = false;
  std::optional<size_t> digest_text;  // which piece
  bool digests = false;
  std::map<int64_t, std::vector<std::byte>> kept;  // stretches, by number
  std::unique_ptr<FileWriter> writer;
  int64_t stretches = 0;
  int64_t stretches_left = 0;
  format::ManifestFile written;
};

class Copier {
 public:
  Copier(std::span<const Source> sources, Draft& draft, std::span<const FilePlan> plans, const WriteOptions& options)
      : sources_(sources), draft_(draft), options_(options) {
    for (const FilePlan& plan : plans) add(plan);
  }

  std::vector<format::ManifestFile> run() {
    const auto threads =
        std::min(threads_for(options_.bytes_to_open, options_.memory), std::max<size_t>(stretches_.size(), 1));
    in_threads(threads, [this] {
      try {
        work();
      } catch (...) {
        // The first one says why; others fail because of it.
        const std::scoped_lock lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        failed_ = true;
        changed_.notify_all();
      }
    });
    if (failure_) std::rethrow_exception(failure_);
    std::vector<format::ManifestFile> files;
    for (File& file : files_) files.push_back(std::move(file.written));
    return files;
  }

 private:
  // What one thread reads with.
  struct Readers {
    std::vector<std::unique_ptr<StoredCheckpoint>> checkpoints;
    std::vector<std::unique_ptr<ElementReader>> readers;
  };

  void add(const FilePlan& plan) {
    File& file = files_.emplace_back();
    file.plan = &plan;
    file.written.name = plan.name;
    file.written.length = plan.size;
    file.stretches = file.stretches_left = std::max<int64_t>((plan.size + kStretch - 1) / kStretch, 1);
    int64_t at = 0;
    for (const Piece& piece : plan.pieces) {
      file.starts.push_back(at);
      file.sums.push_back(file.sums_of.size());
      const int64_t length = length_of(piece);
      if (std::holds_alternative<Elements>(piece)) {
        Sum& sum = file.sums_of.emplace_back();
        sum.missing = length == 0 ? 0 : static_cast<size_t>((at + length - 1) / kStretch - at / kStretch + 1);
        sum.parts.resize(sum.missing);
      }
      if (std::holds_alternative<LateText>(piece)) file.wants_crcs = true;
      if (std::holds_alternative<DigestText>(piece)) file.digest_text = file.starts.size() - 1;
      at += length;
    }
    file.digests = options_.digests || file.digest_text;
    if (file.digests) file.written.blocks.resize(static_cast<size_t>(format::block_count(plan.size)));
    for (int64_t i = 0; i < file.stretches; ++i) stretches_.push_back({files_.size() - 1, i});
    total_ += plan.size;
  }

  void work() {
    Readers readers;
    readers.checkpoints.resize(sources_.size());
    readers.readers.resize(sources_.size());
    std::vector<std::byte> buffer;
    while (!failed_) {
      const size_t next = next_++;
      if (next >= stretches_.size()) return;
      write_stretch(files_[stretches_[next].file], stretches_[next].number, buffer, readers);
    }
  }

  void write_stretch(File& file, int64_t number, std::vector<std::byte>& buffer, Readers& readers) {
    const int64_t begin = number * kStretch;
    const int64_t end = std::min(begin + kStretch, file.plan->size);
    buffer.resize(static_cast<size_t>(end - begin));
    const auto first = std::upper_bound(file.starts.begin(), file.starts.end(), begin) - file.starts.begin();
    for (auto i = static_cast<size_t>(std::max<std::ptrdiff_t>(first - 1, 0)); i < file.starts.size(); ++i) {
      if (file.starts[i] >= end) break;
      const int64_t from = std::max(file.starts[i], begin);
      const int64_t to = std::min(file.starts[i] + length_of(file.plan->pieces[i]), end);
      if (from < to) fill(file, i, from - file.starts[i], to - file.starts[i], buffer.data() + (from - begin), readers);
    }
    if (file.digests) {
      for (int64_t at = begin; at < end; at += kBlock) {
        const auto block = std::span(buffer).subspan(static_cast<size_t>(at - begin));
        file.written.blocks[static_cast<size_t>(at / kBlock)] =
            format::digest_of(block.first(std::min<size_t>(block.size(), kBlock)));
      }
    }
    if (has_digest_text(file, begin, end)) {
      const std::scoped_lock lock(mutex_);
      file.kept[number] = buffer;
    } else {
      writer_of(file).write(begin, buffer);
    }
    tell(end - begin);
    finish_stretch(file);
  }

  static bool has_digest_text(const File& file, int64_t begin, int64_t end) {
    if (!file.digest_text) return false;
    const int64_t start = file.starts[*file.digest_text];
    return start < end && start + length_of(file.plan->pieces[*file.digest_text]) > begin;
  }

  // Once all digests are there.
  void write_kept(File& file) {
    const auto& piece = std::get<DigestText>(file.plan->pieces[*file.digest_text]);
    std::vector<uint32_t> crcs;
    for (const Sum& sum : file.sums_of) crcs.push_back(sum.crc);
    const std::string text = piece.make(crcs, file.written.blocks);
    if (static_cast<int64_t>(text.size()) != piece.length) throw std::logic_error("a text has another length");
    const int64_t start = file.starts[*file.digest_text];
    for (auto& [number, bytes] : file.kept) {
      const int64_t begin = number * kStretch;
      const int64_t from = std::max(start, begin);
      const int64_t to = std::min(start + piece.length, begin + static_cast<int64_t>(bytes.size()));
      std::memcpy(bytes.data() + (from - begin), text.data() + (from - start), static_cast<size_t>(to - from));
      writer_of(file).write(begin, bytes);
    }
    file.kept.clear();
  }

  FileWriter& writer_of(File& file) {
    const std::scoped_lock lock(mutex_);
    if (!file.writer) file.writer = draft_.create(file.plan->name, file.plan->size);
    return *file.writer;
  }

  void finish_stretch(File& file) {
    {
      const std::scoped_lock lock(mutex_);
      if (--file.stretches_left > 0) return;
    }
    if (file.digest_text) write_kept(file);
    writer_of(file).finish();
    file.writer.reset();
  }

  // Bytes [from, to) of a piece.
  void fill(File& file, size_t number, int64_t from, int64_t to, std::byte* into, Readers& readers) {
    const Piece& piece = file.plan->pieces[number];
    if (const auto* text = std::get_if<std::string>(&piece)) {
      std::memcpy(into, text->data() + from, static_cast<size_t>(to - from));
      return;
    }
    if (std::holds_alternative<DigestText>(piece)) {
      std::memset(into, format::kDigestZero, static_cast<size_t>(to - from));
      return;
    }
    if (const auto* late = std::get_if<LateText>(&piece)) {
      const std::string text = late->make(crcs_before(file, file.sums[number], late->wanted));
      if (static_cast<int64_t>(text.size()) != late->length) throw std::logic_error("a text has another length");
      std::memcpy(into, text.data() + from, static_cast<size_t>(to - from));
      return;
    }
    fill_elements(file, number, from, to, into, readers);
  }

  void fill_elements(File& file, size_t number, int64_t from, int64_t to, std::byte* into, Readers& readers) {
    const auto& elements = std::get<Elements>(file.plan->pieces[number]);
    auto& reader = readers.readers[elements.source];
    if (!reader) {
      auto& checkpoint = readers.checkpoints[elements.source];
      checkpoint = open_again(sources_[elements.source], options_.open);
      reader = std::make_unique<ElementReader>(*checkpoint);
    }
    const format::MetadataEntry& entry = readers.checkpoints[elements.source]->metadata().entries[elements.entry];
    const int64_t bytes = elements.element_bytes;
    const int64_t first = from / bytes;
    const int64_t end = (to + bytes - 1) / bytes;
    if (first * bytes == from && end * bytes == to) {
      as_damage([&] { reader->read(entry, elements.box, first, end, into); });
    } else {  // an element that lies across the border
      std::vector<std::byte> whole(static_cast<size_t>((end - first) * bytes));
      as_damage([&] { reader->read(entry, elements.box, first, end, whole.data()); });
      std::memcpy(into, whole.data() + (from - first * bytes), static_cast<size_t>(to - from));
    }
    const std::optional<uint32_t> expected = reader->crc_of(entry, elements.box);
    if (!file.wants_crcs && !expected) return;
    const uint32_t crc = format::crc32({into, static_cast<size_t>(to - from)});
    const int64_t start = file.starts[number];
    const auto stretch = static_cast<size_t>((start + from) / kStretch - start / kStretch);
    const auto all = add_part(file, file.sums[number], stretch, {crc, to - from});
    if (all && expected) reader->check_crc(*all);
  }

  // The CRC of all parts, for whoever brings the last one.
  std::optional<uint32_t> add_part(File& file, size_t number, size_t stretch, Part part) {
    const std::scoped_lock lock(mutex_);
    Sum& sum = file.sums_of[number];
    sum.parts[stretch] = part;
    if (--sum.missing > 0) return std::nullopt;
    for (const Part& each : sum.parts) sum.crc = format::crc32_of_both(sum.crc, each.crc, each.length);
    changed_.notify_all();
    return sum.crc;
  }

  // The last `wanted` of the first `count`.
  std::vector<uint32_t> crcs_before(const File& file, size_t count, size_t wanted) {
    std::vector<uint32_t> crcs;
    std::unique_lock lock(mutex_);
    for (size_t i = count - std::min(count, wanted); i < count; ++i) {
      changed_.wait(lock, [&] { return file.sums_of[i].missing == 0 || failed_; });
      if (failed_) throw std::runtime_error("another thread failed");  // which says why
      crcs.push_back(file.sums_of[i].crc);
    }
    return crcs;
  }

  void tell(int64_t bytes) {
    const std::scoped_lock lock(telling_);
    done_ += bytes;
    if (options_.progress) options_.progress(done_, total_);
  }

  struct Stretch {
    size_t file;
    int64_t number;
  };

  std::span<const Source> sources_;
  Draft& draft_;
  const WriteOptions& options_;
  std::vector<File> files_;
  std::vector<Stretch> stretches_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
  std::mutex mutex_;  // of sums and writers
  std::condition_variable changed_;
  std::mutex telling_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

}  // namespace

std::string save_of(const StoredCheckpoint& checkpoint) {
  std::string contents = checkpoint.contents();
  return contents.empty() ? checkpoint.metadata().save_id : contents;
}

std::unique_ptr<StoredCheckpoint> open_again(const Source& source, const OpenOptions& options) {
  auto checkpoint = open_checkpoint(source.storage, source.path, options);
  if (save_of(*checkpoint) == source.save) return checkpoint;
  throw std::runtime_error(ErrorText(options.operation, "the checkpoint was replaced while it was read")
                               .fact("checkpoint", source.path)
                               .fact("at first", source.save)
                               .fact("now", save_of(*checkpoint))
                               .help("again, when the save to this path is over"));
}

size_t threads_for(int64_t bytes_to_open, int64_t memory) {
  const size_t cores = std::max<size_t>(std::thread::hardware_concurrency(), 1);
  // Each has a stretch, and at most 16 MiB for reading what does not lie as it is wanted.
  const auto fitting = static_cast<size_t>(memory / (24 * kBlock + bytes_to_open));
  return std::min(cores, std::clamp<size_t>(fitting, 1, kMostThreads));
}

std::vector<format::ManifestFile> write_files(std::span<const Source> sources, Draft& draft,
                                              std::span<const FilePlan> plans, const WriteOptions& options) {
  return Copier(sources, draft, plans, options).run();
}

}  // namespace sherd::stored
