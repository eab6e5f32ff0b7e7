// Placements, meshes as values, boxes, layouts, and their pictures.

#include "sherd/layout.h"

#include <fmt/format.h>

#include "bindings.h"
#include "reduce_op.h"
#include "sherd/error.h"
#include "sherd/picture.h"

namespace sherd::python {
namespace {

constexpr ReduceOp kReduceOps[] = {ReduceOp::sum,     ReduceOp::avg,  ReduceOp::min, ReduceOp::max,
                                   ReduceOp::product, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};

// What all placements have.
template <class T>
py::class_<T> placement_class(py::module_& module, const char* name) {
  return py::class_<T>(module, name)
      .def(
          "is_shard",
          [](const T& self, std::optional<int64_t> dim) {
            return is_shard(Placement(self)) && (!dim || *dim == sharded_dim(Placement(self)));
          },
          py::arg("dim") = py::none())
      .def("is_replicate", [](const T& self) { return is_replicate(Placement(self)); })
      .def("is_partial", [](const T& self) { return is_partial(Placement(self)); })
      .def("__eq__",
           [](const T& self, const py::object& other) { return py::isinstance<T>(other) && self == other.cast<T>(); })
      .def("__hash__", [](const T& self) { return std::hash<std::string>()(to_string(Placement(self))); })
      .def("__str__", [](const T& self) { return to_string(Placement(self)); });
}

template <class T>
void pickle_placement(py::class_<T>& type) {
  type.def(py::pickle([](const T& self) { return to_string(Placement(self)); },
                      [](const std::string& text) { return std::get<T>(parse_placement(text)); }));
}

void bind_placements(py::module_& module) {
  auto replicate =
      placement_class<Replicate>(module, "Replicate").def(py::init<>()).def("__repr__", [](const Replicate&) {
        return "Replicate()";
      });
  pickle_placement(replicate);
  auto shard = placement_class<Shard>(module, "Shard")
                   .def(py::init<int64_t>(), py::arg("dim"))
                   .def_readonly("dim", &Shard::dim)
                   .def("__repr__", [](const Shard& self) { return fmt::format("Shard({})", self.dim); });
  pickle_placement(shard);
  auto strided = placement_class<StridedShard>(module, "StridedShard")
                     .def(py::init<int64_t, int64_t>(), py::arg("dim"), py::arg("split"))
                     .def_readonly("dim", &StridedShard::dim)
                     .def_readonly("split", &StridedShard::split)
                     .def("__repr__", [](const StridedShard& self) {
                       return fmt::format("StridedShard({}, split={})", self.dim, self.split);
                     });
  pickle_placement(strided);
  auto ragged = placement_class<Ragged>(module, "Ragged")
                    .def(py::init<int64_t, std::vector<int64_t>>(), py::arg("dim"), py::arg("cuts"))
                    .def_readonly("dim", &Ragged::dim)
                    .def_readonly("cuts", &Ragged::cuts)
                    .def("__repr__", [](const Ragged& self) {
                      return fmt::format("Ragged({}, cuts={})", self.dim, to_string(Dims(self.cuts)));
                    });
  pickle_placement(ragged);
  auto partial =
      placement_class<Partial>(module, "Partial")
          .def(py::init([](const std::string& op) { return Partial(reduce_op_of("Partial", op)); }),
               py::arg("reduce_op") = "sum")
          .def_property_readonly("reduce_op", [](const Partial& self) { return to_string(self.op); })
          .def("__repr__", [](const Partial& self) { return fmt::format("Partial(\"{}\")", to_string(self.op)); });
  pickle_placement(partial);
  module.def("parse_placements", [](const std::string& text) { return parse_placements(text); });
}

void bind_values(py::module_& module) {
  py::class_<Box>(module, "Box")
      .def(py::init([](Dims offset, Dims size) {
             return Box{std::move(offset), std::move(size)};
           }),
           py::arg("offset"), py::arg("size"))
      .def_readonly("offset", &Box::offset)
      .def_readonly("size", &Box::size)
      .def("numel", [](const Box& self) { return numel(self); })
      .def("intersect", [](const Box& self, const Box& other) { return intersect(self, other); })
      .def("contains", [](const Box& self, const Box& inner) { return contains(self, inner); })
      .def("__eq__", [](const Box& self, const Box& other) { return self == other; })
      .def("__hash__", [](const Box& self) { return std::hash<std::string>()(to_string(self)); })
      .def("__repr__", [](const Box& self) { return to_string(self); });
  py::class_<Mesh>(module, "Mesh")
      .def(py::init([](const std::string& text) { return parse_mesh(text); }), py::arg("text"))
      .def_property_readonly("shape", [](const Mesh& self) { return py::tuple(py::cast(self.shape())); })
      .def_property_readonly("ndim", &Mesh::ndim)
      .def_property_readonly("ranks", &Mesh::ranks)
      .def("size", [](const Mesh& self) { return self.size(); })
      .def("coordinate_of", &Mesh::coordinate_of, py::arg("rank"))
      .def("__eq__", [](const Mesh& self, const Mesh& other) { return self == other; })
      .def("__hash__", [](const Mesh& self) { return std::hash<std::string>()(to_string(self)); })
      .def("__repr__", [](const Mesh& self) { return to_string(self); })
      .def(py::pickle([](const Mesh& self) { return to_string(self); },
                      [](const std::string& text) { return parse_mesh(text); }));
  module.def(
      "check_tiling",
      [](const std::vector<Box>& boxes, const Dims& shape) { check_tiling("check_tiling", boxes, shape); },
      py::arg("boxes"), py::arg("shape"));
}

void bind_layouts(py::module_& module) {
  const auto coordinate = [](const Layout& self, int64_t rank) {
    if (auto place = self.mesh.coordinate_of(rank)) return *place;
    throw std::invalid_argument(ErrorText("layout", "the rank is not in the mesh")
                                    .fact("rank", std::to_string(rank))
                                    .fact("mesh", to_string(self.mesh))
                                    .help("layout.mesh.ranks lists those that are")
                                    .str());
  };
  py::class_<Layout>(module, "Layout")
      .def(py::init([](const Mesh& mesh, const Dims& shape, Placements placements) {
             return Layout{mesh, shape, checked_placements("Layout", mesh, shape, std::move(placements))};
           }),
           py::arg("mesh"), py::arg("shape"), py::arg("placements"))
      .def_readonly("mesh", &Layout::mesh)
      .def_property_readonly("shape", [](const Layout& self) { return py::tuple(py::cast(self.shape)); })
      .def_property_readonly("placements", [](const Layout& self) { return py::tuple(py::cast(self.placements)); })
      .def(
          "boxes", [coordinate](const Layout& self, int64_t rank) { return local_boxes(self, coordinate(self, rank)); },
          py::arg("rank"))
      .def(
          "local_shape",
          [coordinate](const Layout& self, int64_t rank) {
            return py::tuple(py::cast(local_shape(self, coordinate(self, rank))));
          },
          py::arg("rank"))
      .def(
          "local_offset",
          [coordinate](const Layout& self, int64_t rank) {
            return py::tuple(py::cast(local_offset(self, coordinate(self, rank))));
          },
          py::arg("rank"))
      .def(
          "global_row",
          [coordinate](const Layout& self, int64_t rank, int64_t dim, int64_t local_row) {
            return global_row(self, dim, coordinate(self, rank), local_row);
          },
          py::arg("rank"), py::arg("dim"), py::arg("local_row"))
      .def("same_boxes", [](const Layout& self, const Layout& other) { return same_boxes(self, other); })
      .def(
          "draw", [](const Layout& self, bool color) { return draw_text(self, {.color = color}); },
          py::arg("color") = false)
      .def(
          "svg", [](const Layout& self, int64_t width) { return draw_svg(self, {.width = width}); },
          py::arg("width") = 640)
      .def("_repr_svg_", [](const Layout& self) { return draw_svg(self); })
      .def("__eq__", [](const Layout& self, const Layout& other) { return self == other; })
      .def("__repr__", [](const Layout& self) {
        return to_string(TensorText{"", self.shape, self.placements}, self.mesh) + " on " + to_string(self.mesh);
      });
  module.def(
      "draw_html",
      [](const std::vector<std::pair<std::string, Layout>>& pictures) {
        std::vector<TitledLayout> titled;
        for (const auto& [title, layout] : pictures) titled.push_back({title, layout});
        return draw_html(titled);
      },
      py::arg("pictures"));
}

}  // namespace

ReduceOp reduce_op_of(const char* operation, const std::string& name) {
  std::string names;
  for (const ReduceOp op : kReduceOps) {
    if (to_string(op) == name) return op;
    names += (names.empty() ? "" : ", ") + to_string(op);
  }
  throw std::invalid_argument(
      ErrorText(operation, "no reduction has this name").fact("given", name).help("one of " + names).str());
}

void bind_layout(py::module_& module) {
  bind_placements(module);
  bind_values(module);
  bind_layouts(module);
}

}  // namespace sherd::python
