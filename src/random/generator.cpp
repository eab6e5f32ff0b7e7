#include "random/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/device_mesh_state.h"
#include "comm/errors.h"
#include "comm/rank_list.h"
#include "sherd/collectives.h"

namespace sherd {
namespace detail {
namespace {

constexpr std::string_view kMagic = "sherd-rng1";

// Not the device of any of torch's own generators: those check the device before they take a generator for their own.
// The key brings operators that are given one to sherd, plain tensors too.
constexpr c10::DeviceType kNoDevice = c10::DeviceType::Meta;

void append(std::vector<uint8_t>& bytes, uint64_t number) {
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<uint8_t>(number >> (8 * i)));
}

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  std::span<const uint8_t> take(size_t count) {
    if (count > bytes_.size()) refuse();
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  uint64_t number() {
    uint64_t value = 0;
    const auto bytes = take(8);
    for (size_t i = 8; i-- > 0;) value = (value << 8) | bytes[i];
    return value;
  }
  bool empty() const { return bytes_.empty(); }
  [[noreturn]] static void refuse() {
    throw_value_error(ErrorText("set_state", "these bytes are no state of a sherd generator")
                          .help("generator.set_state(other.state())"));
  }

 private:
  std::span<const uint8_t> bytes_;
};

const char* name_of(RngMode mode) {
  switch (mode) {
    case RngMode::by_position:
      return "by_position";
    case RngMode::offset_based:
      return "offset_based";
    case RngMode::torch_exact:
      return "torch_exact";
  }
  return "";
}

uint64_t hash_of(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

// Three numbers of every rank of the mesh, in the order of its ranks.
std::vector<int64_t> gather_from_all(const DeviceMesh& mesh, at::Tensor own) {
  own = own.to(mesh.device());
  for (int64_t axis = mesh.ndim(); axis-- > 0;) {
    if (mesh.size(axis) == 1) continue;
    const at::Tensor all = at::empty({mesh.size(axis) * own.numel()}, own.options());
    all_gather(mesh.group(axis), all, own).wait();
    own = all;
  }
  own = own.cpu();
  return {own.const_data_ptr<int64_t>(), own.const_data_ptr<int64_t>() + own.numel()};
}

thread_local at::Generator scoped;

}  // namespace

PhiloxGenerator::PhiloxGenerator(uint64_t seed, RngMode mode, std::shared_ptr<const DeviceMeshState> mesh)
    : GeneratorImpl(c10::Device(kNoDevice), c10::DispatchKeySet(c10::DispatchKey::PrivateUse2)),
      seed_(seed),
      mode_(mode),
      mesh_(std::move(mesh)) {}

const at::Generator& PhiloxGenerator::of_torch(c10::Device device) {
  for (const auto& [where, generator] : of_torch_) {
    if (where == device) return generator;
  }
  at::Generator made =
      device.is_cpu() ? at::detail::createCPUGenerator(seed_) : at::globalContext().defaultGenerator(device).clone();
  made.set_current_seed(seed_);
  return of_torch_.emplace_back(device, std::move(made)).second;
}

std::vector<uint8_t> PhiloxGenerator::state() const {
  std::vector<uint8_t> bytes(kMagic.begin(), kMagic.end());
  bytes.push_back(static_cast<uint8_t>(mode_));
  append(bytes, seed_);
  append(bytes, offset_);
  for (const auto& [device, generator] : of_torch_) {
    const at::Tensor inner = generator.get_state();
    append(bytes, static_cast<uint64_t>(device.type()));
    append(bytes, static_cast<uint64_t>(device.index()));
    append(bytes, static_cast<uint64_t>(inner.numel()));
    bytes.insert(bytes.end(), inner.const_data_ptr<uint8_t>(), inner.const_data_ptr<uint8_t>() + inner.numel());
  }
  return bytes;
}

void PhiloxGenerator::set_state_bytes(std::span<const uint8_t> bytes) {
  Reader reader(bytes);
  if (!std::ranges::equal(reader.take(kMagic.size()), kMagic)) Reader::refuse();
  const uint8_t mode = reader.take(1)[0];
  if (mode > static_cast<uint8_t>(RngMode::torch_exact)) Reader::refuse();
  const uint64_t seed = reader.number();
  const uint64_t offset = reader.number();
  std::vector<std::pair<c10::Device, at::Tensor>> inner;
  while (!reader.empty()) {
    const auto type = static_cast<c10::DeviceType>(reader.number());
    const auto index = static_cast<c10::DeviceIndex>(reader.number());
    if (type != c10::DeviceType::CPU && type != c10::DeviceType::CUDA) Reader::refuse();
    const auto part = reader.take(reader.number());
    at::Tensor state = at::empty({static_cast<int64_t>(part.size())}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), part.data(), part.size());
    inner.emplace_back(c10::Device(type, index), std::move(state));
  }
  mode_ = static_cast<RngMode>(mode);
  seed_ = seed;
  offset_ = offset;
  of_torch_.clear();
  for (const auto& [device, state] : inner) at::Generator(of_torch(device)).set_state(state);
  agreed_.clear();
}

void PhiloxGenerator::check_agreement(const char* operation, const DeviceMesh& mesh) {
  if (mesh_ && mesh_.get() != mesh.identity()) {
    throw_value_error(ErrorText(operation, "the generator is of another mesh")
                          .fact("generator", to_string(mesh_->mesh))
                          .fact("tensor", to_string(mesh))
                          .help("sherd::Generator(seed), which serves every mesh"));
  }
  if (!mesh.coordinate() || mesh.size() == 1) return;
  const auto is_this = [&](const auto& known) { return known.lock().get() == mesh.identity(); };
  if (!mesh.world().checks_calls() && std::any_of(agreed_.begin(), agreed_.end(), is_this)) return;
  const uint64_t hash = hash_of(state());
  at::Tensor own = at::empty({3}, at::kLong);
  const uint64_t numbers[3] = {seed_, offset_, hash};  // NOLINT(modernize-avoid-c-arrays)
  std::memcpy(own.mutable_data_ptr(), numbers, sizeof numbers);
  const std::vector<int64_t> all = gather_from_all(mesh, own);
  const std::vector<int64_t> ranks = mesh.mesh().ranks();
  const auto state_of = [&](size_t i) {
    return fmt::format("seed {}, {} draws", static_cast<uint64_t>(all[3 * i]), static_cast<uint64_t>(all[3 * i + 1]));
  };
  std::vector<int64_t> others;
  size_t example = 0;
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (std::equal(all.begin(), all.begin() + 3, all.begin() + static_cast<int64_t>(3 * i))) continue;
    if (others.empty()) example = i;
    others.push_back(ranks[i]);
  }
  if (!others.empty()) {
    throw_value_error(ErrorText(operation, "the ranks' generators are in different states")
                          .fact("mesh", to_string(mesh))
                          .fact(fmt::format("rank {}", ranks[0]), state_of(0))
                          .fact(fmt::format("rank {}", ranks[example]), state_of(example))
                          .fact("other than rank " + std::to_string(ranks[0]), "ranks " + rank_list(others))
                          .fact("mode", name_of(mode_))
                          .help("sherd::manual_seed(seed) with the same seed on every rank; all of them draw alike"));
  }
  std::erase_if(agreed_, [](const auto& known) { return known.expired(); });
  if (std::none_of(agreed_.begin(), agreed_.end(), is_this)) agreed_.push_back(mesh.identity()->weak_from_this());
}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
  for (auto& [device, generator] : of_torch_) generator.set_current_seed(seed);
  agreed_.clear();
}

void PhiloxGenerator::set_offset(uint64_t offset) {
  offset_ = offset;
  agreed_.clear();
}

uint64_t PhiloxGenerator::seed() {
  throw_value_error(ErrorText("seed", "a seed that nobody knows would differ between the ranks")
                        .help("generator.manual_seed(7), the same on every rank"));
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  set_state_bytes({static_cast<const uint8_t*>(state.data()), static_cast<size_t>(state.numel())});
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  const std::vector<uint8_t> bytes = state();
  const at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor.getIntrusivePtr();
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(seed_, mode_, mesh_);
  copy->offset_ = offset_;
  copy->agreed_ = agreed_;
  for (const auto& [device, generator] : of_torch_) copy->of_torch_.emplace_back(device, generator.clone());
  return copy;
}

PhiloxGenerator* philox_of(const std::optional<at::Generator>& generator) {
  if (!generator || !generator->defined()) return nullptr;
  return dynamic_cast<PhiloxGenerator*>(generator->unsafeGetGeneratorImpl());
}

PhiloxGenerator& generator_for(const char* operation, const std::optional<at::Generator>& generator,
                               const DeviceMesh* mesh) {
  at::Generator chosen;
  if (generator && generator->defined()) {
    chosen = *generator;
    if (philox_of(chosen) == nullptr) {
      throw_value_error(ErrorText(operation, "the generator is not sherd's, and ranks may share it or not have it")
                            .fact("generator", "torch's, for " + chosen.device().str())
                            .help("sherd::Generator(seed), or sherd::Generator(seed, sherd::RngMode::torch_exact) for "
                                  "the numbers of torch's"));
    }
  } else {
    chosen = mesh != nullptr ? at::Generator(current_generator(*mesh)) : at::Generator(default_generator());
  }
  auto& philox = static_cast<PhiloxGenerator&>(*chosen.unsafeGetGeneratorImpl());
  if (mesh != nullptr) philox.check_agreement(operation, *mesh);
  return philox;
}

at::Generator exchange_scoped_generator(at::Generator generator) { return std::exchange(scoped, std::move(generator)); }

namespace {

at::Generator world_generator(const World& world) {
  WorldState& state = *world.state();
  const std::lock_guard lock(state.mutex);
  if (!state.generator.defined()) state.generator = Generator();
  return state.generator;
}

}  // namespace
}  // namespace detail

using detail::PhiloxGenerator;

Generator::Generator(uint64_t seed, RngMode mode) : impl_(at::make_generator<PhiloxGenerator>(seed, mode, nullptr)) {}

Generator::Generator(const DeviceMesh& mesh, uint64_t seed, RngMode mode)
    : impl_(at::make_generator<PhiloxGenerator>(seed, mode, mesh.identity()->shared_from_this())) {}

Generator::Generator(const at::Generator& generator) : impl_(generator) {
  if (detail::philox_of(generator) == nullptr) {
    detail::throw_value_error(ErrorText("Generator", "this generator is not sherd's").help("sherd::Generator(seed)"));
  }
}

uint64_t Generator::seed() const { return impl_.current_seed(); }
RngMode Generator::mode() const { return impl_.get<PhiloxGenerator>()->mode(); }
uint64_t Generator::offset() const { return impl_.get_offset(); }
void Generator::set_offset(uint64_t offset) { impl_.set_offset(offset); }
void Generator::manual_seed(uint64_t seed) { impl_.set_current_seed(seed); }
std::vector<uint8_t> Generator::state() const { return impl_.get<PhiloxGenerator>()->state(); }
void Generator::set_state(std::span<const uint8_t> state) { impl_.get<PhiloxGenerator>()->set_state_bytes(state); }
Generator Generator::fork() const { return Generator(impl_.clone()); }

void manual_seed(uint64_t seed, RngMode mode) {
  const World world = current_world();
  const std::lock_guard lock(world.state()->mutex);
  world.state()->generator = Generator(seed, mode);
}

void manual_seed(const DeviceMesh& mesh, uint64_t seed, RngMode mode) {
  // The mesh would keep itself alive: its own generator is of any mesh, and only found through it.
  const std::lock_guard lock(mesh.world().state()->mutex);
  mesh.identity()->generator = Generator(seed, mode);
}

Generator default_generator() {
  return Generator(detail::scoped.defined() ? detail::scoped : detail::world_generator(current_world()));
}

Generator current_generator(const DeviceMesh& mesh) {
  if (detail::scoped.defined()) return Generator(detail::scoped);
  {
    const std::lock_guard lock(mesh.world().state()->mutex);
    if (mesh.identity()->generator.defined()) return Generator(mesh.identity()->generator);
  }
  return Generator(detail::world_generator(mesh.world()));
}

GeneratorScope::GeneratorScope(const Generator& generator) : outer_(std::exchange(detail::scoped, generator)) {}
GeneratorScope::~GeneratorScope() { detail::scoped = outer_; }

}  // namespace sherd
