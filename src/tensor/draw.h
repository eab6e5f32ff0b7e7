#pragma once
// Random operators on DTensors: every rank draws the numbers of its own elements.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "random/draw.h"
#include "sherd/device_mesh.h"
#include "tensor/op_info.h"

namespace sherd::detail {

class PhiloxGenerator;

/// uniform_, normal_, log_normal_, exponential_, cauchy_, geometric_, random_ and bernoulli_ (self, ..., generator).
bool draw_in_place(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// The same without the underscore: a tensor like self.
bool draw_anew(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// rand_like, randn_like and randint_like.
bool draw_like(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// randperm into a plain tensor, by a generator of sherd's.
bool draw_permutation(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// normal of tensors.
bool draw_normal_around(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// bernoulli, poisson and binomial of tensors.
bool draw_by_element(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool draw_multinomial(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool draw_dropout(const c10::OperatorHandle& op, torch::jit::Stack& stack);
bool draw_rrelu(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// The form with out=.
bool draw_into_out(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Fills a DTensor or a plain tensor. Throws c10::ValueError for a dtype that does not fit.
void fill_drawn(const char* operation, const at::Tensor& self, Draw draw, PhiloxGenerator& generator);

/// The mesh of the first DTensor among the arguments; null where all are plain.
const DeviceMesh* mesh_of_call(const torch::jit::Stack& arguments);

/// The generator that a call was given: the argument of that name.
std::optional<at::Generator> generator_given(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace sherd::detail
