// What a local result is a part of, and whether it is what the rule says.

#include <c10/core/MemoryFormat.h>
#include <fmt/format.h>

#include <algorithm>

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

// Whether the strides of every rank's part tell the order of dims in memory: those of a dim with one row, or none, do
// not.
bool parts_tell_order(const DeviceMesh& mesh, const Dims& sizes, const Placements& placements) {
  if (std::none_of(placements.begin(), placements.end(), is_shard)) return true;
  const Layout layout{mesh.mesh(), sizes, placements};
  for (int64_t i = 0; i < mesh.size(); ++i) {
    const Dims local = local_shape(layout, mesh.mesh().coordinate_at(i));
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (local[d] < 2 && local[d] != sizes[d]) return false;
    }
  }
  return true;
}

// The memory format that operators take from their first tensor.
Dims strides_by_format(const OpPlan& plan, const Dims& sizes) {
  const auto like = std::find_if(plan.specs.begin(), plan.specs.end(),
                                 [&](const SpecPtr& spec) { return spec->sizes.size() == sizes.size(); });
  if (like != plan.specs.end()) {
    if (c10::is_channels_last_strides_2d((*like)->sizes, (*like)->strides)) {
      return c10::get_channels_last_strides_2d(sizes);
    }
    if (c10::is_channels_last_strides_3d((*like)->sizes, (*like)->strides)) {
      return c10::get_channels_last_strides_3d(sizes);
    }
  }
  return contiguous_strides(sizes);
}

// Where no result without data tells the strides: they must be the same on every rank.
SpecPtr spec_of_result(const OpPlan& plan, const OutputPlan& output, const Dims& sizes, const Tensor& local) {
  if (parts_tell_order(*plan.mesh, sizes, output.placements)) {
    return spec_for(*plan.mesh, output.placements, sizes, local);
  }
  return intern_spec(*plan.mesh, output.placements, sizes, strides_by_format(plan, sizes));
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
  output.spec = spec_of_result(plan, output, sizes, local);
  if (output.gathers != 0) {
    output.spec = intern_spec(*plan.mesh, output.placements, sizes, output.spec->strides, nullptr, output.gathers);
  }
  output.local_sizes = local.sizes().vec();
  return output.spec;
}

}  // namespace sherd::detail
