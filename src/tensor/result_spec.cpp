// What a local result is a part of, and whether it is what the rule says.

#include <fmt/format.h>

#include "comm/call.h"
#include "comm/errors.h"
#include "rules/registry.h"
#include "tensor/dispatch.h"
#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;

void check_kind(const OpInfo& info, const DeviceMesh& mesh, const Tensor& local) {
  if (local.layout() != c10::kStrided) {
    throw c10::NotImplementedError(ErrorText(info.short_name(), "the result is not a strided tensor")
                                       .fact("layout", fmt::format("{}", c10::str(local.layout())))
                                       .help("sherd::full_tensor(tensor) first")
                                       .str());
  }
  // What rests in the host's memory makes results there: an optimizer's state.
  if (local.device().type() != mesh.device_type() && !local.device().is_meta() && !local.is_cpu()) {
    refuse_device(info, mesh, local.device());
  }
}

// A rule that does not describe its operator would give wrong numbers without a word.
void check_rule(const OpInfo& info, const DeviceMesh& mesh, const Dims& sizes, const Tensor& local,
                const OutputPlan& output) {
  if (!mesh.coordinate()) return;
  const bool same_ndim = output.sizes.empty() || output.sizes.size() == sizes.size();
  const Dims expected = same_ndim ? local_shape({mesh.mesh(), sizes, output.placements}, *mesh.coordinate()) : Dims();
  if (same_ndim && local.sizes() == at::IntArrayRef(expected)) return;
  throw_value_error(ErrorText(info.short_name(), "its rule does not describe it")
                        .fact("rule", rules::first_rule_text(info.name))
                        .fact("result", to_string(local.sizes().vec()))
                        .fact("rule says", to_string(expected) + " for placements " + to_string(output.placements))
                        .help("sherd::register_rule(\"" + info.name + "\", \"...\")"));
}

}  // namespace

void refuse_device(const OpInfo& info, const DeviceMesh& mesh, c10::Device asked) {
  throw c10::NotImplementedError(
      ErrorText(info.short_name(), "a distributed tensor stays on the devices of its mesh")
          .fact("mesh", to_string(mesh) + " on " + c10::DeviceTypeName(mesh.device_type(), true))
          .fact("asked", asked.str())
          .help("sherd::full_tensor(tensor).to(device), or distribute it over a mesh of that device")
          .str());
}

const SpecPtr& find_spec(const OpInfo& info, OpPlan& plan, const Tensor& local, size_t i, size_t k) {
  OutputPlan& output = plan.outputs[std::min(i, plan.outputs.size() - 1)];
  // Some operators return other sizes than they say without data. Where nothing is sharded the result speaks for
  // itself.
  const bool whole = std::none_of(output.placements.begin(), output.placements.end(), is_shard);
  const bool known = k < output.known.size() && output.known[k];
  if (known && (!whole || local.sizes() == at::IntArrayRef(output.known[k]->sizes))) {
    check_kind(info, *plan.mesh, local);
    check_rule(info, *plan.mesh, output.known[k]->sizes, local, output);
    output.checked = output.known.size() == 1;
    return output.known[k];
  }
  const bool same = output.spec && std::equal(output.local_sizes.begin(), output.local_sizes.end(),
                                              local.sizes().begin(), local.sizes().end());
  if (same) return output.spec;
  check_kind(info, *plan.mesh, local);
  Dims sizes = local.sizes().vec();
  for (size_t d = 0; d < sizes.size() && d < output.sizes.size(); ++d) {
    if (output.sizes[d] != -1) sizes[d] = output.sizes[d];
  }
  check_rule(info, *plan.mesh, sizes, local, output);
  output.spec = spec_for(*plan.mesh, output.placements, sizes, local);
  if (output.gathers != 0) {
    output.spec = intern_spec(*plan.mesh, output.placements, sizes, output.spec->strides, nullptr, output.gathers);
  }
  output.local_sizes = local.sizes().vec();
  return output.spec;
}

}  // namespace sherd::detail
