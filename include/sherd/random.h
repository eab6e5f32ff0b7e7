#pragma once
// Random numbers that do not know about sharding: a number depends on the seed, on how many draws came before, and on
// the element's place in the global tensor. The same bits come out on every mesh, for every placement, on threads and
// processes, on CPU and CUDA. docs/random.md has the contract.
//
// Every random operator on a DTensor draws from the generator it is given, or from the current one of its mesh.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd {

enum class RngMode : uint8_t {
  /// Numbers by place, as above.
  by_position,
  /// As PyTorch's DTensor draws on CUDA (OffsetBasedRNGTracker): the same bits as Python for the same mesh and
  /// placements, others for another sharding. CUDA alone.
  offset_based,
  /// What plain torch draws on one device after torch::manual_seed(seed): every rank draws the whole tensor and keeps
  /// its part. For comparing with a run on one device.
  torch_exact,
};

/// Where numbers come from: a seed, the number of draws so far, and a mode. A handle: copies name the same generator.
/// Each rank has its own, in the same state; the ranks of a mesh compare them before the first draw after a seed or a
/// state was set (and before every draw with WorldOptions::check), and a difference is an error on every rank.
class Generator {
 public:
  explicit Generator(uint64_t seed = 67280421310721, RngMode mode = RngMode::by_position);
  /// For DTensors of one mesh only.
  explicit Generator(const DeviceMesh& mesh, uint64_t seed = 67280421310721, RngMode mode = RngMode::by_position);
  /// One that came back from torch. Throws c10::ValueError for another library's.
  explicit Generator(const at::Generator& generator);

  uint64_t seed() const;
  RngMode mode() const;
  /// How many draws came before.
  uint64_t offset() const;
  void set_offset(uint64_t offset);
  /// Starts anew.
  void manual_seed(uint64_t seed);

  /// All of it as bytes, and back. Throws c10::ValueError for bytes that are no such state.
  std::vector<uint8_t> state() const;
  void set_state(std::span<const uint8_t> state);

  /// Another generator in the same state.
  Generator fork() const;

  /// To be given to torch's operators: tensor.normal_(0, 1, generator).
  operator at::Generator() const { return impl_; }
  bool operator==(const Generator& other) const { return impl_ == other.impl_; }

 private:
  at::Generator impl_;
};

/// Seeds the default generator of this rank's world, from which DTensors draw. Every rank calls it with the same seed.
void manual_seed(uint64_t seed, RngMode mode = RngMode::by_position);
/// Gives a mesh a generator of its own: its DTensors draw from it from then on.
void manual_seed(const DeviceMesh& mesh, uint64_t seed, RngMode mode = RngMode::by_position);

/// The one that DTensors of the mesh draw from: a GeneratorScope's, the mesh's, or the default of its world.
Generator current_generator(const DeviceMesh& mesh);
/// The default one of this rank's world.
Generator default_generator();

/// While it lives, DTensors in this thread draw from `generator`; fork() one to leave the current one as it was.
class GeneratorScope {
 public:
  explicit GeneratorScope(const Generator& generator);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  at::Generator outer_;
};

/// Factories: every rank draws its own part.
at::Tensor rand(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options = {},
                const std::optional<at::Generator>& generator = {});
at::Tensor randn(at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements, at::TensorOptions options = {},
                 const std::optional<at::Generator>& generator = {});
/// [low, high); int64 unless the options say otherwise.
at::Tensor randint(int64_t low, int64_t high, at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements,
                   at::TensorOptions options = {}, const std::optional<at::Generator>& generator = {});
at::Tensor normal(double mean, double deviation, at::IntArrayRef shape, const DeviceMesh& mesh, Placements placements,
                  at::TensorOptions options = {}, const std::optional<at::Generator>& generator = {});
/// A permutation of 0 ... n - 1. Each rank computes its own rows; nothing is sent.
at::Tensor randperm(int64_t n, const DeviceMesh& mesh, Placements placements, at::TensorOptions options = {},
                    const std::optional<at::Generator>& generator = {});

}  // namespace sherd
