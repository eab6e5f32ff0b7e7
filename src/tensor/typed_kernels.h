#pragma once
// Kernels for the operators that programs call most, one per C++ signature: they do what OpKernel does, without
// boxing the arguments, where nothing has to be moved. Everything else they leave to it.

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/CppSignature.h>
#include <ATen/core/operator_name.h>

#include <optional>

namespace sherd::detail {

struct TypedKernel {
  c10::KernelFunction kernel;
  c10::impl::CppSignature signature;
};

/// The typed kernel of an operator, where there is one.
std::optional<TypedKernel> typed_kernel_for(const c10::OperatorName& name);

}  // namespace sherd::detail
