// Checkpoints as they lie in files: looked at, compared, and written anew.

#include <fmt/format.h>

#include "bindings.h"
#include "sherd/convert.h"
#include "sherd/inspect.h"
#include "told.h"

namespace sherd::python {
namespace {

CheckpointFormat format_named(const std::optional<std::string>& name) {
  for (const auto format : {CheckpointFormat::dcp, CheckpointFormat::safetensors, CheckpointFormat::torch_save}) {
    if (name == to_string(format)) return format;
  }
  if (!name) return CheckpointFormat::automatic;
  throw std::invalid_argument(fmt::format(
      "rewrite_checkpoint: no such format\n  format: {}\n  help: \"dcp\", \"safetensors\" or \"torch.save\"", *name));
}

void bind_infos(py::module_& module) {
  py::class_<ChunkInfo>(module, "ChunkInfo")
      .def_readonly("box", &ChunkInfo::box)
      .def_readonly("file", &ChunkInfo::file)
      .def_readonly("offset", &ChunkInfo::offset)
      .def_readonly("bytes", &ChunkInfo::bytes);
  py::class_<TensorInfo>(module, "TensorInfo")
      .def_readonly("name", &TensorInfo::name)
      .def_readonly("dtype", &TensorInfo::dtype)
      .def_property_readonly("size", [](const TensorInfo& self) { return py::tuple(py::cast(self.size)); })
      .def_readonly("bytes", &TensorInfo::bytes)
      .def_readonly("chunks", &TensorInfo::chunks)
      .def("__repr__", [](const TensorInfo& self) {
        return fmt::format("<tensor {} {}{}>", self.name, self.dtype, to_string(self.size));
      });
  py::class_<ObjectInfo>(module, "ObjectInfo")
      .def_readonly("name", &ObjectInfo::name)
      .def_readonly("text", &ObjectInfo::text)
      .def_readonly("bytes", &ObjectInfo::bytes)
      .def("__repr__", [](const ObjectInfo& self) { return fmt::format("<object {} = {}>", self.name, self.text); });
  py::class_<FileInfo>(module, "FileInfo")
      .def_readonly("name", &FileInfo::name)
      .def_readonly("bytes", &FileInfo::bytes)
      .def_readonly("there", &FileInfo::there);
  py::class_<BaseInfo>(module, "BaseInfo")
      .def_readonly("path", &BaseInfo::path)
      .def_readonly("id", &BaseInfo::id)
      .def_readonly("there", &BaseInfo::there);
  py::class_<CheckpointInfo>(module, "CheckpointInfo")
      .def_readonly("path", &CheckpointInfo::path)
      .def_readonly("format", &CheckpointInfo::format)
      .def_readonly("tensors", &CheckpointInfo::tensors)
      .def_readonly("objects", &CheckpointInfo::objects)
      .def_readonly("files", &CheckpointInfo::files)
      .def_readonly("bases", &CheckpointInfo::bases)
      .def_readonly("of_each_rank", &CheckpointInfo::of_each_rank)
      .def_readonly("tensor_bytes", &CheckpointInfo::tensor_bytes);
}

void bind_results(py::module_& module) {
  py::class_<Damage>(module, "Damage")
      .def_readonly("problem", &Damage::problem)
      .def_readonly("file", &Damage::file)
      .def_property_readonly("bytes",
                             [](const Damage& self) {
                               return self.bytes ? std::optional(std::pair(self.bytes->begin, self.bytes->end))
                                                 : std::nullopt;
                             })
      .def_readonly("names", &Damage::names)
      .def("__str__", [](const Damage& self) { return to_string(self); });
  py::class_<VerifyResult>(module, "VerifyResult")
      .def_readonly("damage", &VerifyResult::damage)
      .def_readonly("tensors", &VerifyResult::tensors)
      .def_readonly("objects", &VerifyResult::objects)
      .def_readonly("files", &VerifyResult::files)
      .def_readonly("bytes", &VerifyResult::bytes)
      .def_readonly("unchecked", &VerifyResult::unchecked);
  py::class_<TensorDifference>(module, "TensorDifference")
      .def_readonly("name", &TensorDifference::name)
      .def_readonly("elements", &TensorDifference::elements)
      .def_readonly("max_absolute", &TensorDifference::max_absolute)
      .def_readonly("max_relative", &TensorDifference::max_relative);
  py::class_<ObjectDifference>(module, "ObjectDifference")
      .def_readonly("name", &ObjectDifference::name)
      .def_readonly("text", &ObjectDifference::text)
      .def_readonly("other_text", &ObjectDifference::other_text);
  py::class_<DiffResult>(module, "DiffResult")
      .def_readonly("only_here", &DiffResult::only_here)
      .def_readonly("only_there", &DiffResult::only_there)
      .def_readonly("tensors", &DiffResult::tensors)
      .def_readonly("objects", &DiffResult::objects)
      .def("equal", &DiffResult::equal);
  py::class_<RewriteResult>(module, "RewriteResult")
      .def_property_readonly("format", [](const RewriteResult& self) { return to_string(self.format); })
      .def_readonly("tensors", &RewriteResult::tensors)
      .def_readonly("objects", &RewriteResult::objects)
      .def_readonly("files", &RewriteResult::files)
      .def_readonly("bytes", &RewriteResult::bytes)
      .def_readonly("objects_as_json", &RewriteResult::objects_as_json)
      .def_readonly("of_each_rank", &RewriteResult::of_each_rank)
      .def_property_readonly("damaged", [](const RewriteResult& self) {
        std::vector<std::pair<std::string, std::string>> damaged;
        for (const auto& left_out : self.damaged) damaged.emplace_back(left_out.name, left_out.why);
        return damaged;
      });
}

RewriteResult rewrite(const std::vector<std::string>& from, const std::string& to,
                      const std::optional<std::string>& format, std::vector<std::string> only,
                      std::vector<std::string> drop, const std::vector<std::pair<std::string, std::string>>& rename,
                      const std::optional<Mesh>& mesh,
                      const std::vector<std::pair<std::string, Placements>>& placements, int64_t ranks,
                      int64_t file_bytes, bool overwrite, bool verify, bool skip_damaged,
                      const std::optional<py::function>& progress) {
  RewriteOptions options;
  options.operation = "rewrite_checkpoint";
  options.format = format_named(format);
  options.only = std::move(only);
  options.drop = std::move(drop);
  for (const auto& [pattern, replacement] : rename) options.rename.push_back({pattern, replacement});
  if (ranks != 0) options.layouts = sharded_over(ranks);
  if (mesh) options.layouts = laid_out(*mesh, placements);
  options.file_bytes = file_bytes;
  options.overwrite = overwrite;
  options.verify = verify;
  options.skip_damaged = skip_damaged;
  options.progress = told(progress);
  const py::gil_scoped_release released;
  return rewrite_checkpoint(from, to, options);
}

}  // namespace

void bind_checkpoint_files(py::module_& module) {
  py::register_exception<DamagedCheckpoint>(module, "DamagedCheckpoint", PyExc_RuntimeError);
  bind_infos(module);
  bind_results(module);
  module.def(
      "inspect_checkpoint",
      [](const std::string& path) { return inspect_checkpoint(path, {.operation = "inspect_checkpoint"}); },
      ReleaseGil());
  module.def("verify_checkpoint", [](const std::string& path, const std::optional<py::function>& progress) {
    const VerifyOptions options{.operation = "verify_checkpoint", .progress = told(progress)};
    const py::gil_scoped_release released;
    return verify_checkpoint(path, options);
  });
  module.def("diff_checkpoints", [](const std::string& path, const std::string& other, double absolute, double relative,
                                    bool ignore_dtypes, const std::optional<py::function>& progress) {
    const DiffOptions options{.operation = "diff_checkpoints",
                              .absolute = absolute,
                              .relative = relative,
                              .ignore_dtypes = ignore_dtypes,
                              .progress = told(progress)};
    const py::gil_scoped_release released;
    return diff_checkpoints(path, other, options);
  });
  module.def("rewrite_checkpoint", &rewrite);
}

}  // namespace sherd::python
