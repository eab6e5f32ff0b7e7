#include "sherd/call.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

#include "comm/errors.h"
#include "parallel/call_wishes.h"
#include "sherd/dtensor.h"
#include "tensor/wishes.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using WishList = std::vector<CallWish>;

// A module has no place for such things, so they are kept beside it, for as long as it lives.
class WishesOfModules {
 public:
  static WishesOfModules& all() {
    static auto* value = new WishesOfModules;
    return *value;
  }

  void add(const torch::nn::Module& module, CallWish wish) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return entry.second.module.expired(); });
    Entry& entry = entries_[&module];
    entry.module = module.weak_from_this();
    WishList list = entry.wishes ? *entry.wishes : WishList();
    list.push_back(std::move(wish));
    entry.wishes = std::make_shared<const WishList>(std::move(list));
  }

  std::shared_ptr<const WishList> find(const torch::nn::Module& module) {
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(&module);
    if (entry == entries_.end() || entry->second.module.expired()) return nullptr;
    return entry->second.wishes;
  }

 private:
  struct Entry {
    std::weak_ptr<const torch::nn::Module> module;
    std::shared_ptr<const WishList> wishes;
  };
  std::mutex mutex_;
  std::map<const torch::nn::Module*, Entry> entries_;
};

Tensor as_local(const CallWish& wish, const Tensor& tensor) {
  const DeviceMesh mesh = mesh_of(tensor);
  const std::optional<size_t> own = axis_in(mesh, wish.mesh);
  for (size_t axis = 0; axis < placements_of(tensor).size(); ++axis) {
    if (axis == own || is_replicate(placements_of(tensor)[axis])) continue;
    throw_value_error(ErrorText("call", "a local tensor would hide that it is cut over another axis")
                          .fact("asked by", wish.who)
                          .fact("tensor", to_string(tensor))
                          .fact("axis", mesh.mesh().axis_label(static_cast<int64_t>(axis)))
                          .help("leave use_local_output away: a DTensor goes on as it is"));
  }
  return to_local(tensor);
}

void prepare(const CallWish& wish, const CallSide& side, const char* what, const CallTensors& tensors) {
  if (side.every && side.desired.size() != tensors.size()) {
    throw_value_error(ErrorText("call", fmt::format("there must be one layout for each {}", what))
                          .fact("asked by", wish.who)
                          .fact("layouts", std::to_string(side.desired.size()))
                          .fact(fmt::format("{}s", what), std::to_string(tensors.size()))
                          .help("std::nullopt for those that are left alone"));
  }
  const auto at = [](const ArgumentLayouts& layouts, size_t i) {
    return i < layouts.size() ? layouts[i] : std::optional<Placement>();
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] == nullptr || !tensors[i]->defined()) continue;
    Tensor& tensor = *tensors[i];
    const std::optional<Placement> desired = at(side.desired, i);
    if (!is_dtensor(tensor)) {
      const std::optional<Placement> plain = at(side.plain, i);
      if (!plain && !desired) continue;
      tensor = from_local(tensor, wish.mesh, {plain.value_or(Replicate())});
    }
    if (desired) tensor = bring(wish.who, tensor, wish.mesh, *desired);
    if (side.local && (desired || side.desired.empty())) tensor = as_local(wish, tensor);
  }
  if (!side.function) return;
  std::vector<Tensor> given;
  for (const Tensor* tensor : tensors) {
    if (tensor != nullptr) given.push_back(*tensor);
  }
  const size_t count = given.size();
  side.function(given, wish.mesh);
  if (given.size() != count) {
    throw_value_error(ErrorText("call", fmt::format("the number of {}s was changed", what))
                          .fact("asked by", wish.who)
                          .fact("before", std::to_string(count))
                          .fact("after", std::to_string(given.size()))
                          .help("assign to the tensors of the list; add and remove none"));
  }
  auto next = given.begin();
  for (Tensor* tensor : tensors) {
    if (tensor != nullptr) *tensor = *next++;
  }
}

}  // namespace

void require_callable(const char* operation, const torch::nn::Module& module) {
  if (!module.weak_from_this().expired()) return;
  throw_value_error(ErrorText(operation, "the module must be held by a shared_ptr, as sherd::call finds it by that")
                        .fact("module", module.name())
                        .help("auto module = std::make_shared<NetImpl>(), or a ModuleHolder"));
}

void add_call_wish(const torch::nn::Module& module, CallWish wish) {
  WishesOfModules::all().add(module, std::move(wish));
}

void before_call(const torch::nn::Module& module, const CallTensors& arguments) {
  const auto wishes = WishesOfModules::all().find(module);
  if (!wishes) return;
  for (const CallWish& wish : *wishes) prepare(wish, wish.inputs, "argument", arguments);
}

void after_call(const torch::nn::Module& module, const CallTensors& results) {
  const auto wishes = WishesOfModules::all().find(module);
  if (!wishes) return;
  for (const CallWish& wish : *wishes) prepare(wish, wish.outputs, "result", results);
}

}  // namespace sherd::detail
