#include "comm/mpi_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "comm/errors.h"
#include "comm/missing_ranks.h"

namespace sherd::detail {
namespace {

// A call between ranks that are all there is over in microseconds; the rest is waiting for a rank that computes.
constexpr int kEagerTests = 2000;
constexpr std::chrono::microseconds kPause{50};
// How often calls that nobody waits for are looked at, and how often MPI is entered where there are none: a message
// whose call is over may still lie with its sender, and then moves on only while the sender is inside MPI.
constexpr std::chrono::microseconds kIdlePause{500};
constexpr std::chrono::milliseconds kQuietPause{5};
// How long after the last call a message may be expected to lie there.
constexpr std::chrono::milliseconds kAfterglow{50};
// At exit: for calls that were never waited for.
constexpr std::chrono::milliseconds kGrace{2000};

std::string words_of(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
}

}  // namespace

void check_mpi(int code, const char* what) {
  if (code != MPI_SUCCESS) throw_comm_error(fmt::format("{}: {}", what, words_of(code)));
}

MpiProcess& MpiProcess::get() {
  static auto* process = new MpiProcess;  // calls that were given up outlive everything
  return *process;
}

MpiProcess::MpiProcess() {
  const auto refuse = [](const char* problem, const char* help) {
    throw_comm_error(ErrorText("mpi", problem).help(help));
  };
  int started = 0;
  int ended = 0;
  int threads = MPI_THREAD_SINGLE;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (ended != 0) refuse("MPI has been finalised already", "use sherd before MPI_Finalize");
  if (started != 0) {
    MPI_Query_thread(&threads);
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "MPI_Init_thread");
  }
  if (threads < MPI_THREAD_MULTIPLE) {
    refuse("MPI is not to be used by several threads", "MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...)");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  MPI_Comm_rank(host, &local_rank_);
  MPI_Comm_size(host, &local_size_);
  MPI_Comm_free(&host);
  if (started == 0) std::atexit([] { get().finalize(); });  // who starts MPI ends it
}

// Where calls are still under way MPI_Finalize would wait for ranks that do not come: then mpirun ends the others.
void MpiProcess::finalize() {
  const auto end = std::chrono::steady_clock::now() + kGrace;
  const auto busy = [&] {
    const std::lock_guard lock(mutex_);
    return !under_way_.empty();
  };
  while (busy() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kIdlePause);
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  started_.notify_all();
  if (progress_.joinable()) progress_.join();
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0 && !busy()) MPI_Finalize();
}

bool MpiProcess::test_locked(MpiCall& call) {
  if (call.over) return true;
  int over = 0;
  call.statuses.resize(call.requests.size());
  call.error = MPI_Testall(static_cast<int>(call.requests.size()), call.requests.data(), &over, call.statuses.data());
  if (call.error == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : call.statuses) {
      if (status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) call.error = status.MPI_ERROR;
    }
  }
  if (over == 0 && call.error == MPI_SUCCESS) return false;
  call.over = true;
  call.stuck = over == 0;
  if (call.stuck) return true;
  for (MPI_Datatype& type : call.types) MPI_Type_free(&type);
  call.types.clear();
  return true;
}

bool MpiProcess::test(MpiCall& call) {
  const std::lock_guard lock(mutex_);
  if (!test_locked(call)) return false;
  check_mpi(call.error, "MPI");
  return true;
}

void MpiProcess::wait(MpiCall& call, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (int tests = 0; !test(call); ++tests) {
    if (tests < kEagerTests) {
      std::this_thread::yield();
      continue;
    }
    if (std::chrono::steady_clock::now() >= end) {
      throw_comm_error("MPI: the other ranks did not come within " + seconds_text(timeout));
    }
    std::this_thread::sleep_for(kPause);
  }
}

std::shared_ptr<MpiCall> MpiProcess::start(const std::function<void(MpiCall&)>& start) {
  auto call = std::make_shared<MpiCall>();
  const std::lock_guard lock(mutex_);
  try {
    start(*call);
  } catch (...) {
    under_way_.push_back(call);  // for what had been started
    throw;
  }
  if (!test_locked(*call) || call->stuck) under_way_.push_back(call);
  last_call_ = std::chrono::steady_clock::now();
  if (!progress_.joinable()) progress_ = std::thread([this] { make_progress(); });
  started_.notify_all();
  return call;
}

// MPI moves data while somebody is inside it. A rank that computes before it waits must not hold up the others.
void MpiProcess::make_progress() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    std::erase_if(under_way_,
                  [this](const std::shared_ptr<MpiCall>& call) { return test_locked(*call) && !call->stuck; });
    int found = 0;
    if (under_way_.empty()) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
    if (under_way_.empty() && std::chrono::steady_clock::now() > last_call_ + kAfterglow) {
      started_.wait_for(lock, kQuietPause, [this] { return ends_ || !under_way_.empty(); });
      continue;
    }
    lock.unlock();
    std::this_thread::sleep_for(kIdlePause);
    lock.lock();
  }
}

}  // namespace sherd::detail
