#pragma once
// The two halves of sherd._C.sharded: how a tensor is cut, and the tensors.

#include <pybind11/pybind11.h>

#include "sherd/sharding_spec.h"

namespace sherd::python {

void bind_sharding_specs(pybind11::module_& module);

/// A spec as the Python class that fits.
pybind11::object spec_object(const sharded::ShardingSpec& spec);

}  // namespace sherd::python
