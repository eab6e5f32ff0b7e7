// How a ShardedTensor is cut: devices, shards and specs, as values of Python. What is read of one is a copy.

#include "sherd/sharding_spec.h"

#include <fmt/format.h>

#include <variant>

#include "bindings.h"
#include "sharded.h"

namespace sherd::python {
namespace {

using namespace sherd::sharded;

// Text is turned into a device here, not by an implicit conversion: that would hide what is wrong with the text.
using DeviceText = std::variant<RemoteDevice, std::string>;
RemoteDevice device_of(const DeviceText& given) {
  if (const auto* text = std::get_if<std::string>(&given)) return RemoteDevice(*text);
  return std::get<RemoteDevice>(given);
}
std::optional<RemoteDevice> device_of(const std::optional<DeviceText>& given) {
  return given ? std::optional(device_of(*given)) : std::nullopt;
}

py::object torch_size(const Dims& size) { return py::module_::import("torch").attr("Size")(py::cast(size)); }

// A spec of Python is a handle with the class of what it holds.
struct ChunkHandle : ShardingSpec {
  explicit ChunkHandle(const ShardingSpec& spec) : ShardingSpec(spec) {}
  const ChunkShardingSpec& chunks() const { return *as<ChunkShardingSpec>(); }
};
struct EnumerableHandle : ShardingSpec {
  explicit EnumerableHandle(const ShardingSpec& spec) : ShardingSpec(spec) {}
  const EnumerableShardingSpec& enumerated() const { return *as<EnumerableShardingSpec>(); }
};

template <class T>
void add_equality(py::class_<T>& type) {
  type.def("__eq__",
           [](const T& self, const py::object& other) { return py::isinstance<T>(other) && self == other.cast<T>(); });
}

void bind_devices(py::module_& module) {
  auto device =
      py::class_<RemoteDevice>(module, "RemoteDevice")
          .def(py::init([](const DeviceText& given) { return device_of(given); }), py::arg("remote_device"))
          .def("worker_name",
               [](const RemoteDevice& self) { return self.worker.empty() ? std::nullopt : std::optional(self.worker); })
          .def("rank", [](const RemoteDevice& self) { return self.rank; })
          .def("device", [](const RemoteDevice& self) { return self.device; })
          .def("__hash__", [](const RemoteDevice& self) { return std::hash<RemoteDevice>()(self); })
          .def("__str__", [](const RemoteDevice& self) { return to_string(self); })
          .def("__repr__",
               [](const RemoteDevice& self) { return fmt::format("RemoteDevice(\"{}\")", to_string(self)); })
          .def(py::pickle([](const RemoteDevice& self) { return to_string(self); },
                          [](const std::string& text) { return RemoteDevice(text); }));
  add_equality(device);
  auto placement =
      py::class_<DevicePlacementSpec>(module, "DevicePlacementSpec")
          .def(py::init([](const DeviceText& given) { return DevicePlacementSpec{device_of(given)}; }),
               py::arg("device"))
          .def_property_readonly("device", [](const DevicePlacementSpec& self) { return self.device; })
          .def("__repr__",
               [](const DevicePlacementSpec& self) {
                 return fmt::format("DevicePlacementSpec(\"{}\")", to_string(self.device));
               })
          .def(py::pickle([](const DevicePlacementSpec& self) { return to_string(self.device); },
                          [](const std::string& text) { return DevicePlacementSpec{RemoteDevice(text)}; }));
  add_equality(placement);
}

py::tuple tuple_of(const TensorProperties& properties) {
  const auto [dtype, layout, requires_grad, memory_format, pin_memory] = properties.to_tuple();
  return py::make_tuple(dtype, layout_object(layout), requires_grad, memory_format, pin_memory);
}

TensorProperties properties_of(const py::tuple& tuple) {
  return TensorProperties::from_tuple({tuple[0].cast<c10::ScalarType>(), layout_of(tuple[1]), tuple[2].cast<bool>(),
                                       tuple[3].cast<int>(), tuple[4].cast<bool>()});
}

void bind_metadata(py::module_& module) {
  auto shard = py::class_<ShardMetadata>(module, "ShardMetadata")
                   .def(py::init([](Dims offsets, Dims sizes, const std::optional<DeviceText>& placement) {
                          return ShardMetadata(std::move(offsets), std::move(sizes), device_of(placement));
                        }),
                        py::arg("shard_offsets"), py::arg("shard_sizes"), py::arg("placement") = py::none())
                   .def_property_readonly("shard_offsets", [](const ShardMetadata& self) { return self.shard_offsets; })
                   .def_property_readonly("shard_sizes", [](const ShardMetadata& self) { return self.shard_sizes; })
                   .def_property_readonly("placement", [](const ShardMetadata& self) { return self.placement; })
                   .def("box", &ShardMetadata::box)
                   .def("__hash__", [](const ShardMetadata& self) { return std::hash<ShardMetadata>()(self); })
                   .def("__repr__", [](const ShardMetadata& self) { return to_string(self); })
                   .def(py::pickle(
                       [](const ShardMetadata& self) {
                         return py::make_tuple(self.shard_offsets, self.shard_sizes, self.placement);
                       },
                       [](const py::tuple& state) {
                         return ShardMetadata(state[0].cast<Dims>(), state[1].cast<Dims>(),
                                              state[2].cast<std::optional<RemoteDevice>>());
                       }));
  add_equality(shard);

  auto properties =
      py::class_<TensorProperties>(module, "TensorProperties")
          .def(py::init([](std::optional<c10::ScalarType> dtype, const py::object& layout, bool requires_grad,
                           c10::MemoryFormat memory_format, bool pin_memory) {
                 TensorProperties made;
                 if (dtype) made.dtype = *dtype;
                 made.layout = layout_of(layout);
                 made.requires_grad = requires_grad;
                 made.memory_format = memory_format;
                 made.pin_memory = pin_memory;
                 return made;
               }),
               py::arg("dtype") = py::none(), py::arg("layout") = layout_object(c10::kStrided),
               py::arg("requires_grad") = false, py::arg("memory_format") = c10::MemoryFormat::Contiguous,
               py::arg("pin_memory") = false)
          .def_static("create_from_tensor", &TensorProperties::create_from_tensor, py::arg("tensor"))
          .def_static("from_tuple", &properties_of, py::arg("tuple"))
          .def("to_tuple", &tuple_of)
          .def_property_readonly("dtype", [](const TensorProperties& self) { return self.dtype; })
          .def_property_readonly("layout", [](const TensorProperties& self) { return layout_object(self.layout); })
          .def_property_readonly("requires_grad", [](const TensorProperties& self) { return self.requires_grad; })
          .def_property_readonly("memory_format", [](const TensorProperties& self) { return self.memory_format; })
          .def_property_readonly("pin_memory", [](const TensorProperties& self) { return self.pin_memory; })
          .def("__repr__",
               [](const py::object& self) {
                 py::list parts;
                 for (const char* name : {"dtype", "layout", "requires_grad", "memory_format", "pin_memory"}) {
                   parts.append(py::str("{}={!r}").format(name, self.attr(name)));
                 }
                 return py::str("TensorProperties({})").format(py::str(", ").attr("join")(parts));
               })
          .def(py::pickle(&tuple_of, &properties_of));
  add_equality(properties);

  auto metadata =
      py::class_<ShardedTensorMetadata>(module, "ShardedTensorMetadata")
          .def(py::init([](std::vector<ShardMetadata> shards, Dims size, const std::optional<TensorProperties>& of) {
                 return ShardedTensorMetadata{std::move(shards), std::move(size), of.value_or(TensorProperties())};
               }),
               py::arg("shards_metadata"), py::arg("size"), py::arg("tensor_properties") = py::none())
          .def_property_readonly("shards_metadata",
                                 [](const ShardedTensorMetadata& self) { return self.shards_metadata; })
          .def_property_readonly("size", [](const ShardedTensorMetadata& self) { return torch_size(self.size); })
          .def_property_readonly("tensor_properties",
                                 [](const ShardedTensorMetadata& self) { return self.tensor_properties; })
          .def("__repr__", [](const ShardedTensorMetadata& self) { return to_string(self); })
          .def(py::pickle(
              [](const ShardedTensorMetadata& self) {
                return py::make_tuple(self.shards_metadata, self.size, self.tensor_properties);
              },
              [](const py::tuple& state) {
                return ShardedTensorMetadata{state[0].cast<std::vector<ShardMetadata>>(), state[1].cast<Dims>(),
                                             state[2].cast<TensorProperties>()};
              }));
  add_equality(metadata);
}

void bind_specs(py::module_& module) {
  auto any = py::class_<ShardingSpec>(module, "ShardingSpec")
                 .def(
                     "build_metadata",
                     [](const ShardingSpec& self, const Dims& size, const std::optional<TensorProperties>& of) {
                       return self.build_metadata(size, of.value_or(TensorProperties()));
                     },
                     py::arg("tensor_sizes"), py::arg("tensor_properties") = py::none())
                 .def("__repr__", [](const ShardingSpec& self) { return to_string(self); });
  add_equality(any);
  py::class_<ChunkHandle, ShardingSpec>(module, "ChunkShardingSpec")
      .def(py::init([](int64_t dim, const std::vector<DeviceText>& placements) {
             std::vector<RemoteDevice> devices;
             for (const DeviceText& given : placements) devices.push_back(device_of(given));
             return ChunkHandle(ChunkShardingSpec(dim, std::move(devices)));
           }),
           py::arg("dim"), py::arg("placements"))
      .def_property_readonly("dim", [](const ChunkHandle& self) { return self.chunks().dim(); })
      .def_property_readonly("placements", [](const ChunkHandle& self) { return self.chunks().placements(); })
      .def(py::pickle(
          [](const ChunkHandle& self) { return py::make_tuple(self.chunks().dim(), self.chunks().placements()); },
          [](const py::tuple& state) {
            return ChunkHandle(ChunkShardingSpec(state[0].cast<int64_t>(), state[1].cast<std::vector<RemoteDevice>>()));
          }));
  py::class_<EnumerableHandle, ShardingSpec>(module, "EnumerableShardingSpec")
      .def(py::init([](std::vector<ShardMetadata> shards) {
             return EnumerableHandle(EnumerableShardingSpec(std::move(shards)));
           }),
           py::arg("shards"))
      .def_property_readonly("shards", [](const EnumerableHandle& self) { return self.enumerated().shards(); })
      .def(py::pickle([](const EnumerableHandle& self) { return py::make_tuple(self.enumerated().shards()); },
                      [](const py::tuple& state) {
                        return EnumerableHandle(EnumerableShardingSpec(state[0].cast<std::vector<ShardMetadata>>()));
                      }));

  module.def(
      "infer_sharding_spec",
      [](const std::vector<ShardMetadata>& shards, const Dims& size) {
        return spec_object(infer_sharding_spec(shards, size));
      },
      py::arg("shards_metadata"), py::arg("size"));
  module.def("check_tensor", &check_tensor, py::arg("shards_metadata"), py::arg("size"));
  module.def("validate_non_overlapping_shards_metadata", &validate_non_overlapping_shards_metadata,
             py::arg("shards_metadata"));
  module.def("get_split_size", &get_split_size, py::arg("dim_size"), py::arg("chunks"));
  module.def("get_chunked_dim_size", &get_chunked_dim_size, py::arg("dim_size"), py::arg("split_size"),
             py::arg("index"));
  module.def(
      "get_chunk_sharding_params",
      [](int64_t dim_size, int64_t chunks, const ChunkHandle& spec, int64_t rank) {
        return get_chunk_sharding_params(dim_size, chunks, spec.chunks(), rank);
      },
      py::arg("dim_size"), py::arg("chunks"), py::arg("spec"), py::arg("rank"));
}

constexpr std::pair<c10::Layout, const char*> kLayouts[] = {
    {c10::kStrided, "strided"},      {c10::kSparse, "sparse_coo"},    {c10::kSparseCsr, "sparse_csr"},
    {c10::kSparseCsc, "sparse_csc"}, {c10::kSparseBsr, "sparse_bsr"}, {c10::kSparseBsc, "sparse_bsc"},
    {c10::kMkldnn, "_mkldnn"},       {c10::kJagged, "jagged"}};

}  // namespace

py::object layout_object(c10::Layout layout) {
  for (const auto& [known, name] : kLayouts) {
    if (known == layout) return py::module_::import("torch").attr(name);
  }
  return py::none();
}

c10::Layout layout_of(const py::object& layout) {
  for (const auto& [known, name] : kLayouts) {
    if (layout.is(layout_object(known))) return known;
  }
  throw py::type_error("layout: a torch.layout is needed, torch.strided for example");
}

py::object spec_object(const ShardingSpec& spec) {
  if (spec.as<ChunkShardingSpec>() != nullptr) return py::cast(ChunkHandle(spec));
  if (spec.as<EnumerableShardingSpec>() != nullptr) return py::cast(EnumerableHandle(spec));
  return py::cast(spec);
}

void bind_sharding_specs(py::module_& module) {
  bind_devices(module);
  bind_metadata(module);
  bind_specs(module);
}

}  // namespace sherd::python
