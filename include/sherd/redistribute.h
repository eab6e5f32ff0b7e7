#pragma once
// Moving the values of DTensors: to other placements, to another mesh, to boxes and back, several at once, in the
// background. docs/moving.md shows them.
//
// Plans are made from shapes and placements alone, the same on every rank, and are remembered. By default a plan moves
// the fewest bytes, then the fewest messages; tensors under 64 KiB may trade bytes for messages.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sherd/box.h"
#include "sherd/costs.h"
#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd {

struct RedistributeOptions {
  enum class Prefer : uint8_t { automatic, bytes, latency };
  Prefer prefer = Prefer::automatic;
  /// What may lie in memory beside the input and the output; more is moved in rounds.
  int64_t staging_bytes = int64_t{64} << 20;
  /// The types in which Partials are reduced and values travel; the result has the tensor's. Gradients go the same way.
  std::optional<c10::ScalarType> reduce_dtype = {};
  std::optional<c10::ScalarType> move_dtype = {};
  /// To another mesh: ranks of the target may change places where that moves fewer bytes. The result's mesh says where
  /// they stand. Not both a mesh's own groups and this.
  bool relabel = false;
  /// Returns at once: the data come in the background, and the first operator that uses the result waits for them and
  /// throws what went wrong on the way. The tensor must not be written before. See redistribute_async.
  bool async = false;
};

/// The same values in other places. Differentiable any number of times; the gradient goes back to the old placements.
at::Tensor redistribute(const at::Tensor& tensor, Placements placements, const RedistributeOptions& options = {});

/// The same values on another mesh of the same world: a part of the mesh, a larger one, another shape, other ranks.
/// Every rank of either mesh calls it. Differentiable.
at::Tensor redistribute(const at::Tensor& tensor, const DeviceMesh& mesh, Placements placements,
                        const RedistributeOptions& options = {});

/// Several tensors of one mesh at once: those that move alike share their messages. Differentiable.
std::vector<at::Tensor> redistribute(const std::vector<at::Tensor>& tensors, const std::vector<Placements>& placements,
                                     const RedistributeOptions& options = {});
/// The same towards another mesh: those of one dtype share their messages.
std::vector<at::Tensor> redistribute(const std::vector<at::Tensor>& tensors, const DeviceMesh& mesh,
                                     const std::vector<Placements>& placements,
                                     const RedistributeOptions& options = {});

/// Tensors on their way. The rank computes meanwhile; what it moves in the meantime goes by other groups.
class PendingTensors {
 public:
  struct State;
  explicit PendingTensors(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// The tensors, once they are there; on a GPU when the current stream waits for them. Throws what went wrong on the
  /// way.
  std::vector<at::Tensor> wait();

 private:
  std::shared_ptr<State> state_;
};

/// One tensor on its way.
class PendingTensor {
 public:
  explicit PendingTensor(PendingTensors pending) : pending_(std::move(pending)) {}
  at::Tensor wait() { return pending_.wait().front(); }

 private:
  PendingTensors pending_;
};

/// redistribute in the background. Every rank starts these in the same order. The tensor must not be written before
/// wait() returns. Differentiable.
PendingTensor redistribute_async(const at::Tensor& tensor, Placements placements,
                                 const RedistributeOptions& options = {});
/// To another mesh: every rank of either starts it.
PendingTensor redistribute_async(const at::Tensor& tensor, const DeviceMesh& mesh, Placements placements,
                                 const RedistributeOptions& options = {});
/// Several tensors of one mesh at once: those that move alike share their messages.
PendingTensors redistribute_async(const std::vector<at::Tensor>& tensors, const std::vector<Placements>& placements,
                                  const RedistributeOptions& options = {});
PendingTensors redistribute_async(const std::vector<at::Tensor>& tensors, const DeviceMesh& mesh,
                                  const std::vector<Placements>& placements, const RedistributeOptions& options = {});

struct BoxesOptions {
  /// What may lie in memory beside the tensor and the boxes; more is moved in rounds. The same on every rank.
  int64_t staging_bytes = int64_t{64} << 20;
};
/// Boxes of a DTensor, each rank those it asks for, none or several: they may overlap between ranks. Every rank of the
/// tensor's mesh calls it; throws alike on all where they mean different tensors.
std::vector<at::Tensor> read_boxes(const at::Tensor& tensor, const std::vector<Box>& boxes,
                                   const BoxesOptions& options = {});

/// A tensor that lies in boxes: each rank has those it gives here, and all together they tile the shape exactly once.
struct BoxTensor {
  Box box;
  at::Tensor tensor;  // of the box's size
};
/// Makes a DTensor of them. Every rank of the mesh calls it; throws alike on all where boxes overlap or leave a hole.
at::Tensor from_boxes(const std::vector<BoxTensor>& boxes, const Dims& shape, const DeviceMesh& mesh,
                      Placements placements, c10::ScalarType dtype, const BoxesOptions& options = {});

/// How a tensor would be moved: "reduce_scatter@tp 6.0 KiB, exchange@dp 2.0 KiB". Nothing is moved.
std::string redistribution_text(const at::Tensor& tensor, const Placements& placements,
                                const RedistributeOptions& options = {});
/// The same for a move to another mesh: "reduce to [dp=2] 192 B, exchange@dp 64 B".
std::string redistribution_text(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                                const RedistributeOptions& options = {});

/// What communication costs between the ranks of a world, measured with the transport that CPU tensors go by. Every
/// rank calls it and gets the same. Takes a second or so.
CommCosts measure_costs(const World& world);

/// The costs by which plans are chosen from now on, in the whole process: the same on every rank. Before, they are
/// those of SHERD_COSTS, or the defaults. Plans made before are made anew.
void set_costs(const CommCosts& costs);

}  // namespace sherd
