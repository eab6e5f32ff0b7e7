// LocalShardsWrappers: ordinary tensors of Python, and the functions on them. And what a checkpoint asks of any tensor.

#include "sherd/local_shards.h"

#include "bindings.h"

namespace sherd::python {
namespace {

std::string text_of(const ChunkMetadata& chunk) { return "ChunkMetadata(" + to_string(chunk.box()) + ")"; }

void bind_checkpointable(py::module_& module) {
  py::class_<ChunkMetadata>(module, "ChunkMetadata")
      .def(py::init([](Dims offsets, Dims sizes) {
             return ChunkMetadata{std::move(offsets), std::move(sizes)};
           }),
           py::arg("offsets"), py::arg("sizes"))
      .def_readonly("offsets", &ChunkMetadata::offsets)
      .def_readonly("sizes", &ChunkMetadata::sizes)
      .def("__eq__", [](const ChunkMetadata& self, const ChunkMetadata& other) { return self == other; })
      .def("__repr__", &text_of);
  py::class_<TensorStorageMetadata>(module, "TensorStorageMetadata")
      .def_readonly("properties", &TensorStorageMetadata::properties)
      .def_readonly("size", &TensorStorageMetadata::size)
      .def_readonly("chunks", &TensorStorageMetadata::chunks)
      .def("__eq__",
           [](const TensorStorageMetadata& self, const TensorStorageMetadata& other) { return self == other; });
  py::class_<ShardIndex>(module, "ShardIndex")
      .def(py::init([](std::string name, std::optional<Dims> offsets, std::optional<size_t> hint) {
             return ShardIndex{std::move(name), std::move(offsets), hint};
           }),
           py::arg("name"), py::arg("offsets") = py::none(), py::arg("hint") = py::none())
      .def_readonly("name", &ShardIndex::name)
      .def_readonly("offsets", &ShardIndex::offsets)
      .def_readonly("hint", &ShardIndex::hint)
      .def("__eq__", [](const ShardIndex& self, const ShardIndex& other) { return self == other; });
  py::class_<WriteItem>(module, "WriteItem")
      .def_readonly("name", &WriteItem::name)
      .def_readonly("chunk", &WriteItem::chunk)
      .def_readonly("global_size", &WriteItem::global_size)
      .def_readonly("properties", &WriteItem::properties)
      .def_readonly("tensor", &WriteItem::tensor)
      .def("index", &WriteItem::index)
      .def("__repr__", [](const WriteItem& self) {
        return "WriteItem(" + self.name + to_string(self.chunk.box()) + " of " + to_string(self.global_size) + ")";
      });
  py::class_<Checkpointable>(module, "Checkpointable")
      .def(
          "write_items",
          [](const Checkpointable& self, const std::string& name, bool every_copy) {
            return self.write_items(name, {.every_copy = every_copy});
          },
          py::arg("name"), py::kw_only(), py::arg("every_copy") = false)
      .def("chunk_list", &Checkpointable::chunk_list)
      .def("shard", &Checkpointable::shard, py::arg("index"))
      .def("global_size", &Checkpointable::global_size)
      .def("copies", [](const Checkpointable& self) { return self.copies().ranks; });
  module.def("checkpointable", &checkpointable);
}

}  // namespace

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
  module.def("chunks", [](const at::Tensor& tensor) { return LocalShardsWrapper(tensor).local_chunks(); });
  module.def("storage_metadata",
             [](const at::Tensor& tensor) { return LocalShardsWrapper(tensor).storage_metadata(); });
  module.def("describe", [](const at::Tensor& tensor) { return to_string(LocalShardsWrapper(tensor)); });
  bind_checkpointable(module);
}

}  // namespace sherd::python
