#include <ATen/core/Tensor.h>

#include <map>

#include "comm/errors.h"
#include "parallel/call_wishes.h"
#include "parallel/place.h"
#include "parallel/same_modules.h"
#include "sherd/dtensor.h"
#include "sherd/parallel.h"

namespace sherd {
namespace {

struct Entry {
  std::string name;
  at::Tensor tensor;
  Placements placements;
};

}  // namespace

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const PartitionFunction& partition,
                       const TensorsFunction& input, const TensorsFunction& output) {
  constexpr const char* kOperation = "distribute_module";
  detail::compare_modules(kOperation, outline_of(module), mesh);
  if (input || output) detail::require_callable(kOperation, module);
  std::vector<Entry> entries;
  std::map<const c10::TensorImpl*, size_t> known;  // a tensor may be a parameter of two modules
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      if (!item.value().defined()) continue;
      if (is_dtensor(item.value()) && !detail::is_born_on(item.value(), mesh)) {
        detail::throw_value_error(ErrorText(kOperation, "the module is distributed already")
                                      .fact("parameter", item.key())
                                      .fact("it is", to_string(item.value()))
                                      .help("distribute a module once; sherd::redistribute moves a tensor"));
      }
      Placements placements =
          partition ? partition(item.key(), item.value()) : Placements(static_cast<size_t>(mesh.ndim()), Replicate());
      placements = detail::as_c10_errors([&] {
        return checked_placements("distribute_module " + item.key(), mesh.mesh(), item.value().sizes().vec(),
                                  std::move(placements));
      });
      const auto [same, fresh] = known.emplace(item.value().unsafeGetTensorImpl(), entries.size());
      if (fresh) {
        entries.push_back({item.key(), item.value(), std::move(placements)});
      } else if (const Entry& entry = entries[same->second]; entry.placements != placements) {
        detail::throw_value_error(ErrorText(kOperation, "a tensor that two modules share is to be placed in two ways")
                                      .fact(entry.name, to_string(entry.placements))
                                      .fact(item.key(), to_string(placements))
                                      .help("the same placements under both names"));
      }
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  for (Entry& entry : entries) detail::place(entry.tensor, mesh, entry.placements);
  if (input || output) {
    detail::add_call_wish(
        module, {.who = kOperation, .mesh = mesh, .inputs = {.function = input}, .outputs = {.function = output}});
  }
}

}  // namespace sherd
