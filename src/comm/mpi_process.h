#pragma once
// MPI in this process: started on first use and ended at exit, and the calls that are under way. Compiled where MPI is
// found.

#include <ATen/core/Tensor.h>

// The C++ bindings, which MPI-3 has dropped.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sherd::detail {

/// Throws c10::DistBackendError with MPI's own words for what it calls an error.
void check_mpi(int code, const char* what);

/// A call under way. Whatever MPI reads or writes until it is over is kept here.
struct MpiCall {
  std::vector<MPI_Request> requests = {};
  std::vector<at::Tensor> tensors = {};
  std::vector<MPI_Datatype> types = {};               // freed when it is over
  std::vector<std::vector<int>> counts = {};          // arrays that MPI goes on reading
  std::vector<std::vector<MPI_Datatype>> lists = {};  // likewise
  std::vector<MPI_Status> statuses = {};              // as many as requests, once it is over
  int error = MPI_SUCCESS;
  bool over = false;   // guarded by MpiProcess::mutex_, as is
  bool stuck = false;  // it failed, and MPI may still use its memory
};

/// The one of this process. All methods may be called from any thread.
class MpiProcess {
 public:
  /// Starts MPI, with threads, unless the program has. Throws c10::DistBackendError where MPI cannot be used by several
  /// threads, or has been finalised.
  static MpiProcess& get();

  /// In MPI_COMM_WORLD, and among the ranks of this host.
  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  /// Starts a call: `start` fills it, and no other thread is inside MPI meanwhile. From then on it makes progress,
  /// whether or not anybody waits.
  std::shared_ptr<MpiCall> start(const std::function<void(MpiCall&)>& start);
  /// Whether it is over. Throws where MPI says that it failed.
  bool test(MpiCall& call);
  /// Returns when it is over; throws after `timeout`. A call that was given up stays under way: MPI has no way to
  /// take it back, and its memory is kept.
  void wait(MpiCall& call, std::chrono::milliseconds timeout);

 private:
  MpiProcess();
  void finalize();
  void make_progress();
  bool test_locked(MpiCall& call);

  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;

  std::mutex mutex_;
  std::vector<std::shared_ptr<MpiCall>> under_way_;
  std::condition_variable started_;  // a call, or the end
  std::chrono::steady_clock::time_point last_call_;
  bool ends_ = false;
  std::thread progress_;  // started with the first call
};

}  // namespace sherd::detail
