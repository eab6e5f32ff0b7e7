#pragma once
// sherd's generator as torch sees it.

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <memory>
#include <optional>
#include <vector>

#include "sherd/random.h"

namespace sherd::detail {

class DeviceMeshState;

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  PhiloxGenerator(uint64_t seed, RngMode mode, std::shared_ptr<const DeviceMeshState> mesh);

  RngMode mode() const { return mode_; }
  /// The number of this draw; the next one gets another.
  uint64_t next_draw() { return offset_++; }
  /// torch's own generator for a device, in the modes that draw from it.
  const at::Generator& of_torch(c10::Device device);

  std::vector<uint8_t> state() const;
  void set_state_bytes(std::span<const uint8_t> bytes);

  /// Throws c10::ValueError, alike on every rank, where this is the generator of another mesh or where the ranks of
  /// `mesh` have different states. Communicates the first time after a state was set.
  void check_agreement(const char* operation, const DeviceMesh& mesh);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  PhiloxGenerator* clone_impl() const override;

  uint64_t seed_;
  uint64_t offset_ = 0;
  RngMode mode_;
  std::shared_ptr<const DeviceMeshState> mesh_;  // where it is one mesh's alone
  std::vector<std::pair<c10::Device, at::Generator>> of_torch_;
  std::vector<std::weak_ptr<const DeviceMeshState>> agreed_;  // the meshes whose ranks have compared this state
};

/// The generator behind at::Generator; null for torch's own and for none.
PhiloxGenerator* philox_of(const std::optional<at::Generator>& generator);

/// What an operator on a tensor of `mesh` (nothing: a plain tensor) draws from when it is given `generator`. Throws
/// c10::ValueError for one that is not sherd's.
PhiloxGenerator& generator_for(const char* operation, const std::optional<at::Generator>& generator,
                               const DeviceMesh* mesh);

/// The GeneratorScope's of this thread; undefined where there is none. Returns what it was.
at::Generator exchange_scoped_generator(at::Generator generator);

}  // namespace sherd::detail
