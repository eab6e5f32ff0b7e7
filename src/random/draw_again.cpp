#include "random/draw_again.h"

#include <mutex>
#include <tuple>
#include <utility>

#include "comm/device_mesh_state.h"
#include "comm/world_state.h"
#include "random/generator.h"

namespace sherd::detail {
namespace {

at::Generator copy_of(const at::Generator& generator) {
  return generator.defined() ? generator.clone() : at::Generator();
}

at::Generator scoped_generator() {
  at::Generator scoped = exchange_scoped_generator({});
  exchange_scoped_generator(scoped);
  return scoped;
}

// Gives the world and its meshes these generators; returns what they had. A mesh that is not named gets none.
std::pair<at::Generator, std::map<std::string, at::Generator>> exchange(
    WorldState& world, at::Generator of_world, const std::map<std::string, at::Generator>& of_meshes) {
  const std::lock_guard lock(world.mutex);
  std::map<std::string, at::Generator> had;
  for (const auto& [name, weak] : world.meshes) {
    const auto mesh = weak.lock();
    if (!mesh) continue;
    const auto known = of_meshes.find(name);
    at::Generator before = std::exchange(mesh->generator, known != of_meshes.end() ? known->second : at::Generator());
    if (before.defined()) had.emplace(name, std::move(before));
  }
  return {std::exchange(world.generator, std::move(of_world)), std::move(had)};
}

}  // namespace

Draws Draws::now() {
  Draws draws;
  const auto world = find_world();
  if (!world) return draws;
  draws.world_ = world->state();
  draws.scoped_ = copy_of(scoped_generator());
  if (draws.scoped_.defined()) return draws;
  draws.default_ = copy_of(default_generator());
  const std::lock_guard lock(draws.world_->mutex);
  for (const auto& [name, weak] : draws.world_->meshes) {
    const auto mesh = weak.lock();
    if (mesh && mesh->generator.defined()) draws.of_meshes_.emplace(name, copy_of(mesh->generator));
  }
  return draws;
}

DrawAgain::DrawAgain(const Draws& draws) : world_(draws.world_) {
  if (!world_) return;
  scoped_ = exchange_scoped_generator(copy_of(draws.scoped_));
  std::map<std::string, at::Generator> copies;
  for (const auto& [name, generator] : draws.of_meshes_) copies.emplace(name, copy_of(generator));
  std::tie(default_, of_meshes_) = exchange(*world_, copy_of(draws.default_), copies);
}

DrawAgain::~DrawAgain() {
  if (!world_) return;
  exchange(*world_, std::move(default_), of_meshes_);
  exchange_scoped_generator(std::move(scoped_));
}

}  // namespace sherd::detail
