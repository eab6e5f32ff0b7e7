// LocalShardsWrappers: ordinary tensors of Python, and the functions on them.

#include "sherd/local_shards.h"

#include "bindings.h"

namespace sherd::python {

void bind_local_shards(py::module_& parent) {
  py::module_ module = parent.def_submodule("local_shards");
  module.def("make",
             [](std::vector<at::Tensor> shards, const std::vector<Dims>& offsets, std::optional<Dims> size,
                std::optional<c10::ScalarType> dtype, std::optional<c10::Device> device) -> at::Tensor {
               return LocalShardsWrapper(std::move(shards), offsets,
                                         {.global_size = std::move(size), .dtype = dtype, .device = device});
             });
  module.def("is_local_shards", &is_local_shards);
  module.def("shards", [](const at::Tensor& tensor) { return LocalShardsWrapper(tensor).local_shards(); });
  module.def("sizes", [](const at::Tensor& tensor) { return LocalShardsWrapper(tensor).local_sizes(); });
  module.def("offsets", [](const at::Tensor& tensor) { return LocalShardsWrapper(tensor).local_offsets(); });
  module.def("is_empty_shard", [](const at::Tensor& tensor) { return LocalShardsWrapper(tensor).is_empty_shard(); });
  module.def("size_bytes", [](const at::Tensor& tensor) { return LocalShardsWrapper(tensor).size_bytes(); });
  module.def("describe", [](const at::Tensor& tensor) { return to_string(LocalShardsWrapper(tensor)); });
}

}  // namespace sherd::python
