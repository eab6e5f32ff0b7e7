#pragma once
// Sharded tensors. A DTensor is an ordinary at::Tensor whose sizes are the global ones and whose data lies in pieces
// on the ranks of a mesh; it goes through torch::nn, autograd and torch::optim as any tensor does.
//
// Every rank of the mesh makes the same calls in the same order. A rank outside the mesh may make them too: its local
// tensor is empty and it computes nothing. Errors that follow from shapes and placements are thrown alike on every
// rank before data moves (c10::ValueError, c10::NotImplementedError).

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/layout.h"
#include "sherd/placement.h"
#include "sherd/redistribute.h"

namespace sherd {

bool is_dtensor(const at::Tensor& tensor);

/// The mesh, placements and layout of a DTensor. Throw c10::ValueError for another tensor.
DeviceMesh mesh_of(const at::Tensor& tensor);
const Placements& placements_of(const at::Tensor& tensor);
Layout layout_of(const at::Tensor& tensor);

struct DistributeOptions {
  /// The place along each axis's group whose data counts; the others receive it. nullopt: every rank has the same
  /// data already and cuts out its own part, without communication.
  std::optional<int> source = 0;
};

/// Makes a DTensor of a tensor that every rank of the mesh has (or the source rank alone, of equal shape and dtype).
/// The result is a leaf and keeps requires_grad; `tensor` must be a leaf.
at::Tensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh, Placements placements,
                             const DistributeOptions& options = {});

struct FromLocalOptions {
  /// Compare dtype, ndim and sizes between the ranks and give replicated axes the data of their first rank.
  bool check = false;
  /// The global shape and strides. Without a shape it is found: one small exchange where an axis shards the tensor.
  std::optional<Dims> shape = {};
  std::optional<Dims> stride = {};
  /// The placements of the gradient that flows back to the local tensor; default: `placements`, with Partial as
  /// Replicate.
  std::optional<Placements> grad_placements = {};
};

/// A DTensor whose local part on this rank is `local`. Differentiable.
at::Tensor from_local(const at::Tensor& local, const DeviceMesh& mesh, Placements placements,
                      const FromLocalOptions& options = {});

/// This rank's part, not copied. Differentiable; `grad_placements` says what the gradient of the parts means
/// (default: the tensor's placements, with Partial as Replicate).
at::Tensor to_local(const at::Tensor& tensor, const std::optional<Placements>& grad_placements = {});

/// redistribute for DTensors, the tensor itself otherwise: for modules that also run undistributed.
at::Tensor constrain(const at::Tensor& tensor, Placements placements);

/// All of the tensor on every rank. Differentiable.
at::Tensor full_tensor(const at::Tensor& tensor);

/// Factories: every rank makes its own part. random.h has those that draw numbers.
at::Tensor zeros(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options = {});
at::Tensor ones(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options = {});
at::Tensor empty(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options = {});
at::Tensor full(at::IntArrayRef shape, const at::Scalar& value, const DeviceMesh& mesh, Placements placements,
                at::TensorOptions options = {});
at::Tensor arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, const DeviceMesh& mesh,
                  Placements placements, at::TensorOptions options = {});
/// "f32[4096@dp, 1024@tp] on [dp=2, tp=4]"; "f32[4, 6]" for a tensor that is not distributed.
std::string to_string(const at::Tensor& tensor);
/// The boxes of a DTensor, drawn for a terminal.
std::string visualize(const at::Tensor& tensor);

/// Replaces parameter or buffer `tensor` by its distributed form, in place: every handle to it sees the change.
void distribute_parameter_(at::Tensor& tensor, const DeviceMesh& mesh, Placements placements,
                           const DistributeOptions& options = {});

/// While it lives, an operator in this thread that would move data by itself (an operand redistributed so that the
/// operator can run, or an operator without a rule) throws, or logs once per place.
class ExplicitRedistribution {
 public:
  enum class Mode { allow, warn, error };
  explicit ExplicitRedistribution(Mode mode = Mode::error);
  ~ExplicitRedistribution();
  ExplicitRedistribution(const ExplicitRedistribution&) = delete;
  ExplicitRedistribution& operator=(const ExplicitRedistribution&) = delete;

 private:
  Mode outer_;
};

/// An operator without a rule throws c10::NotImplementedError instead of running whole on every rank. For the whole
/// process; SHERD_STRICT=1 turns it on from outside.
void set_strict(bool on);

/// Teaches sherd an operator, or overrides what it knows: register_rule("mylib::ffn", "b d, d f -> b f | reduce d").
/// The notation is in docs/rules.md. Throws c10::ValueError for bad text, quoting the place.
void register_rule(const std::string& op, const std::string& rule);

}  // namespace sherd
