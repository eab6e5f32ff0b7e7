#pragma once
// What is asked of the inputs and outputs of a module, for sherd::call.

#include <torch/nn/module.h>

#include <string>

#include "sherd/device_mesh.h"
#include "sherd/parallel.h"
#include "sherd/tensor_parallel.h"

namespace sherd::detail {

/// For the arguments or the results of a call.
struct CallSide {
  ArgumentLayouts plain = {};    // what plain tensors are
  ArgumentLayouts desired = {};  // where they are brought
  bool every = false;            // one layout for each, or an error; otherwise for the first ones
  bool local = false;            // local tensors in the end
  TensorsFunction function = {};
};

struct CallWish {
  std::string who;  // for errors: "PrepareModuleInput of layers.0"
  DeviceMesh mesh;
  CallSide inputs = {};
  CallSide outputs = {};
};

/// Throws c10::ValueError where nobody holds the module by a shared_ptr: it could not be told from another one that
/// comes to lie in its place.
void require_callable(const char* operation, const torch::nn::Module& module);
/// After those that the module has already.
void add_call_wish(const torch::nn::Module& module, CallWish wish);

}  // namespace sherd::detail
