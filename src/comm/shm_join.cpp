// How the members of a group come to share memory: they tell each other through the store where they are, one of them
// makes the segment, and all say whether they have it. Every member comes to the same answer.

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <random>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/errors.h"
#include "comm/exchange.h"
#include "comm/host.h"
#include "comm/local.h"
#include "comm/rank_list.h"
#include "comm/settings.h"
#include "comm/shm.h"
#include "comm/transports.h"
#include "sherd/shared_memory.h"

namespace sherd {
namespace detail {
namespace {

using Texts = std::vector<std::string>;

constexpr const char* kReady = "ready";

// Which segment is meant: a process and its descriptor, and a number that stands in the segment itself. A descriptor
// alone could by now be another file, of this job or of another.
struct Address {
  pid_t pid = 0;
  int descriptor = -1;
  uint64_t token = 0;

  std::string text() const { return fmt::format("{} {} {}", pid, descriptor, token); }
  static Address parse(const std::string& text) {
    Address address;
    const char* at = text.data();
    const char* end = at + text.size();
    at = std::from_chars(at, end, address.pid).ptr;
    at = std::from_chars(at == end ? at : at + 1, end, address.descriptor).ptr;
    std::from_chars(at == end ? at : at + 1, end, address.token);
    return address;
  }
};

uint64_t random_token() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) | 1;  // a fresh segment holds 0
}

std::string megabytes(size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

// Gloo stands in where memory cannot be shared. All members know why; one of them says it.
c10::intrusive_ptr<c10d::Backend> fall_back(const Meeting& meeting, const Texts& faults, size_t needed) {
  if (meeting.rank == 0) {
    const auto fault =
        std::find_if(faults.begin(), faults.end(), [](const std::string& text) { return text != kReady; });
    TORCH_WARN(ErrorText("shm", "too little memory to share: these ranks talk through gloo, which is slower")
                   .fact("group", "ranks " + rank_list(meeting.ranks))
                   .fact("needed", megabytes(needed) + " of /dev/shm")
                   .fact("cause", *fault)
                   .help("a larger /dev/shm, or SHERD_SHM_BYTES=65536 for less of it per rank")
                   .str());
  }
  return make_gloo(meeting);
}

}  // namespace

Hosts hosts_of(const Meeting& meeting) { return Hosts::of(exchange(meeting, "host", host_key())); }

c10::intrusive_ptr<c10d::Backend> make_shm(const Meeting& meeting) {
  const size_t area = settings().shm_bytes;
  const size_t needed = ShmHub::bytes_of(meeting.size, area);
  ShmSegment segment;
  std::string fault;
  const auto attempt = [&](const std::function<void()>& step) {
    if (!fault.empty()) return;
    try {
      step();
    } catch (const std::exception& error) {
      fault = message_of(error);
    }
  };
  Address address;
  if (meeting.rank == 0) {
    attempt([&] {
      segment = ShmSegment::create(needed);
      segment.allocate(0, ShmHub::part_of(0, meeting.size, area).first);
      address = {::getpid(), segment.descriptor(), random_token()};
      std::memcpy(segment.data(), &address.token, sizeof address.token);
    });
    const std::string text = address.text();
    meeting.store->set("shm/segment", std::vector<uint8_t>(text.begin(), text.end()));
  } else {
    meeting.store->wait({"shm/segment"}, meeting.timeout);
    const std::vector<uint8_t> text = meeting.store->get("shm/segment");
    address = Address::parse({text.begin(), text.end()});
    attempt([&] {
      if (address.token == 0) throw std::runtime_error("there is no segment");
      segment = ShmSegment::open(address.pid, address.descriptor);
      uint64_t found = 0;
      if (segment.size() == needed) std::memcpy(&found, segment.data(), sizeof found);
      if (found != address.token) throw std::runtime_error("the segment is not the one of this group");
    });
  }
  std::shared_ptr<ShmHub> hub;
  attempt([&] {
    const auto [offset, bytes] = ShmHub::part_of(meeting.rank, meeting.size, area);
    segment.allocate(offset, bytes);
    ShmMembers members{
        .rank = meeting.rank, .ranks = meeting.ranks, .timeout = meeting.timeout, .whole_errors = meeting.whole_errors};
    hub = std::make_shared<ShmHub>(std::move(segment), std::move(members), area);
  });
  const Texts faults = exchange(meeting, "shm/ready", fault.empty() ? kReady : fault);
  const bool ready = std::all_of(faults.begin(), faults.end(), [](const std::string& text) { return text == kReady; });
  if (!ready) return fall_back(meeting, faults, needed);
  hub->close_descriptor();
  return c10::make_intrusive<ShmBackend>(std::move(hub));
}

}  // namespace detail

c10::intrusive_ptr<c10d::Backend> make_shared_memory_backend(const SharedMemoryOptions& options) {
  detail::Meeting meeting{.store = options.store,
                          .rank = options.rank,
                          .size = options.size,
                          .timeout = detail::timeout_of({.timeout = options.timeout}),
                          .ranks = options.ranks,
                          .whole_errors = true};
  if (meeting.ranks.empty()) {
    for (int i = 0; i < options.size; ++i) meeting.ranks.push_back(i);
  }
  if (options.size == 1) return c10::make_intrusive<detail::LocalBackend>(0, 1);
  if (detail::hosts_of(meeting).size() == 1) return detail::make_shm(meeting);
  detail::throw_comm_error(ErrorText("shm", "the ranks of the group are not on one host")
                               .fact("group", "ranks " + detail::rank_list(meeting.ranks))
                               .help("torch.distributed.init_process_group(\"gloo\")"));
}

}  // namespace sherd
