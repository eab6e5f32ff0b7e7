#pragma once
// The two halves of sherd._C.sharded: how a tensor is cut, and the tensors.

#include <pybind11/pybind11.h>

#include "sherd/sharding_spec.h"

namespace sherd::python {

void bind_sharding_specs(pybind11::module_& module);

/// Layouts as Python has them: torch 2.11 does not convert them by itself.
c10::Layout layout_of(const pybind11::object& layout);
pybind11::object layout_object(c10::Layout layout);

/// A spec as the Python class that fits.
pybind11::object spec_object(const sharded::ShardingSpec& spec);

}  // namespace sherd::python
