#include "tensor/compare_plain.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>

#include "comm/answers.h"
#include "comm/call.h"
#include "comm/errors.h"
#include "comm/mesh_group.h"
#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::jit::Stack;

// The tensors of a call but for those that are only written, with the names of their arguments.
template <class F>
void for_each_input(const c10::OperatorHandle& op, const OpInfo& info, const Stack& stack, const F& f) {
  const size_t base = stack.size() - info.arguments.size();
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (info.arguments[i].out) continue;
    const c10::IValue& value = stack[base + i];
    const std::string& name = op.schema().arguments()[i].name();
    if (value.isTensor()) {
      if (value.toTensor().defined()) f(name, value.toTensor());
    } else if (info.arguments[i].kind == ArgumentKind::tensor_list && value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor() && element.toTensor().defined()) f(name, element.toTensor());
      }
    }
  }
}

std::string text_of(const std::string& name, const Tensor& tensor) {
  auto what = fmt::format("{} {}{}", name, dtype_name(tensor.scalar_type()), sherd::to_string(tensor.sizes().vec()));
  if (tensor.is_meta() || tensor.layout() != c10::kStrided) return what;
  const Tensor here = tensor.detach().cpu().contiguous();
  const std::string_view bytes(static_cast<const char*>(here.const_data_ptr()), here.nbytes());
  return fmt::format("{}, digest {:016x}", what, std::hash<std::string_view>()(bytes));
}

}  // namespace

bool compare_plain(const c10::OperatorHandle& op, const OpInfo& info, const Stack& stack) {
  const DTensorMeta* meta = nullptr;
  for_each_input(op, info, stack, [&](const std::string&, const Tensor& tensor) {
    if (meta == nullptr) meta = meta_of(tensor);
  });
  if (meta == nullptr || !meta->spec->mesh.world().checks_calls()) return false;
  const DeviceMesh& mesh = meta->spec->mesh;
  std::string plain;
  for_each_input(op, info, stack, [&](const std::string& name, const Tensor& tensor) {
    // A number of the program's text comes as a tensor, too.
    if (has_meta(tensor.unsafeGetTensorImpl()) || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
    plain += (plain.empty() ? "" : "; ") + text_of(name, tensor);
  });
  if (plain.empty()) return false;
  if (!mesh.coordinate() || mesh.size() == 1) return true;
  if (const auto differs = find_difference(group_of(mesh), plain)) {
    throw_value_error(
        ErrorText(info.short_name(), "a plain tensor that meets a DTensor counts as the same on every rank, and is not")
            .fact(fmt::format("rank {}", differs->rank), differs->text)
            .fact(fmt::format("rank {}", differs->other_rank), differs->other_text)
            .help(
                "sherd::from_local(tensor, mesh, {sherd::Shard(0)}) for a batch of which each rank has its own rows"));
  }
  return true;
}

}  // namespace sherd::detail
