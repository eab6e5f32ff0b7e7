#pragma once
// What goes from one stage of a pipeline to the next, and its gradient back.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "sherd/device_mesh.h"
#include "sherd/placement.h"

namespace sherd::detail {

/// What the next stage must know of a tensor to receive it.
struct ActivationForm {
  c10::ScalarType dtype = c10::ScalarType::Float;
  Dims shape;                     // global
  std::vector<std::string> axes;  // of a DTensor's mesh, by name; none for a plain tensor
  Placements placements;
  bool needs_grad = false;
  bool operator==(const ActivationForm&) const = default;
};

/// The form of a tensor that leaves a stage. Throws c10::ValueError where its mesh is no slice of the pipeline's root
/// by names, or where it lies on the pipeline's axis itself.
ActivationForm form_of(const at::Tensor& tensor, const DeviceMesh& pipeline);

/// For people: "f32[8@dp, 16]".
std::string describe(const ActivationForm& form);
/// For messages.
std::string to_text(const ActivationForm& form);
ActivationForm parse_form(const std::string& text);

/// A tensor as it is sent: a DTensor without Partials. Differentiable.
at::Tensor sendable(const at::Tensor& tensor);
/// This rank's part, contiguous, without gradient.
at::Tensor part_to_send(const at::Tensor& tensor);

/// An empty tensor for this rank's part of a tensor of that form, and the tensor made of it.
at::Tensor place_for(const ActivationForm& form, const DeviceMesh& pipeline);
at::Tensor activation_of(const at::Tensor& part, const ActivationForm& form, const DeviceMesh& pipeline);

}  // namespace sherd::detail
