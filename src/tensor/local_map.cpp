#include "sherd/local_map.h"

#include <fmt/format.h>

#include "comm/errors.h"
#include "sherd/dtensor.h"
#include "tensor/checked.h"
#include "tensor/edges.h"
#include "tensor/meta.h"

namespace sherd::detail {
namespace {

using at::Tensor;

std::string count_of(size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

void check_count(const char* what, size_t got, size_t entries, const char* list) {
  if (got == entries) return;
  throw_value_error(ErrorText("local_map", fmt::format("{} for {}",
                                                       entries == 1 ? "1 entry of placements"
                                                                    : fmt::format("{} entries of placements", entries),
                                                       count_of(got, what)))
                        .fact("list", list)
                        .help(fmt::format("one entry per {}, std::nullopt for what is no DTensor", what)));
}

// Axes along which not every rank does the same with the same.
std::vector<bool> shared_axes(const DeviceMesh& mesh, const PlacementsOfEach& in, const PlacementsOfEach& out) {
  std::vector<bool> shared(static_cast<size_t>(mesh.ndim()), false);
  for (const PlacementsOfEach* list : {&in, &out}) {
    for (const auto& entry : *list) {
      for (size_t axis = 0; entry && axis < shared.size() && axis < entry->size(); ++axis) {
        if (!is_replicate((*entry)[axis])) shared[axis] = true;
      }
    }
  }
  return shared;
}

}  // namespace

LocalMapCall::LocalMapCall(const DeviceMesh& mesh, const PlacementsOfEach& in, const PlacementsOfEach& out,
                           const LocalMapOptions& options)
    : mesh_(mesh), in_(in), out_(out), options_(options) {
  const auto check = [&](const PlacementsOfEach& list, const char* name) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (!list[i] || list[i]->size() == static_cast<size_t>(mesh.ndim())) continue;
      throw_value_error(
          ErrorText("local_map", fmt::format("{} for a mesh of {}", count_of(list[i]->size(), "placement"),
                                             mesh.ndim() == 1 ? "1 axis" : fmt::format("{} axes", mesh.ndim())))
              .fact(fmt::format("{}[{}]", name, i), to_string(*list[i]))
              .fact("mesh", to_string(mesh))
              .help("one placement per axis of the mesh"));
    }
  };
  check(in, "in");
  check(out, "out");
  check(options.in_grad_placements, "in_grad_placements");
  if (!options.in_grad_placements.empty()) {
    check_count("argument", in.size(), options.in_grad_placements.size(), "in_grad_placements");
  }
}

void LocalMapCall::check_arguments(size_t count) const { check_count("argument", count, in_.size(), "in"); }
void LocalMapCall::check_results(size_t count) const { check_count("result", count, out_.size(), "out"); }

Placements LocalMapCall::grad_placements(size_t i) const {
  if (i < options_.in_grad_placements.size() && options_.in_grad_placements[i]) return *options_.in_grad_placements[i];
  Placements placements = grad_placements_for(*in_[i]);
  const std::vector<bool> shared = shared_axes(mesh_, in_, out_);
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    // The gradient of a Partial is whole on every rank, and each computes all of it.
    if (shared[axis] && is_replicate((*in_[i])[axis])) placements[axis] = Partial();
  }
  return placements;
}

Tensor LocalMapCall::local_input(const Tensor& tensor, size_t i) const {
  if (!in_[i]) {
    if (!is_dtensor(tensor)) return tensor;
    throw_value_error(ErrorText("local_map", "an argument is a DTensor, and its entry says that it is none")
                          .fact("argument", std::to_string(i))
                          .fact("it is", to_string(tensor))
                          .help(fmt::format("in[{}] = {}", i, to_code(placements_of(tensor)))));
  }
  if (!tensor.defined()) return tensor;
  const Placements wanted = as_c10_errors([&] {
    return checked_placements(fmt::format("local_map, argument {}", i), mesh_.mesh(), tensor.sizes().vec(), *in_[i]);
  });
  Tensor given = tensor;
  if (!is_dtensor(tensor)) {
    given = from_local(tensor, mesh_, Placements(wanted.size(), Replicate()));
  } else if (!(mesh_of(tensor) == mesh_)) {
    throw_value_error(ErrorText("local_map", "an argument lives on another mesh")
                          .fact("argument", std::to_string(i))
                          .fact("it is", to_string(tensor))
                          .fact("mesh", to_string(mesh_))
                          .help("sherd::redistribute(argument, mesh, " + to_code(wanted) + ")"));
  } else if (placements_of(tensor) != wanted && !options_.redistribute_inputs) {
    throw_value_error(ErrorText("local_map", "an argument has other placements than its entry")
                          .fact("argument", std::to_string(i))
                          .fact("it is", to_string(tensor))
                          .fact(fmt::format("in[{}]", i), to_string(wanted))
                          .help("sherd::redistribute(argument, " + to_code(wanted) +
                                "), or LocalMapOptions{.redistribute_inputs = true}"));
  }
  if (placements_of(given) != wanted) given = redistribute(given, wanted);
  const Placements grads = as_c10_errors([&] {
    return checked_placements(fmt::format("local_map, argument {}", i), mesh_.mesh(), tensor.sizes().vec(),
                              grad_placements(i));
  });
  if (!fits_parts(*meta_of(given)->spec, grads)) {
    throw_value_error(ErrorText("local_map", "the gradient's parts would be others than the argument's")
                          .fact("argument", std::to_string(i))
                          .fact("it is", to_string(given))
                          .fact(fmt::format("in_grad_placements[{}]", i), to_string(grads))
                          .help("Partial() or Replicate() where the argument is not cut, its own Shard where it is"));
  }
  return to_local_edge(given, grads);
}

void LocalMapCall::check_other(size_t i) const {
  if (!in_[i]) return;
  throw_value_error(ErrorText("local_map", "an argument has placements and is no tensor")
                        .fact("argument", std::to_string(i))
                        .fact(fmt::format("in[{}]", i), to_string(*in_[i]))
                        .help(fmt::format("in[{}] = std::nullopt", i)));
}

Tensor LocalMapCall::global_result(const Tensor& local, size_t i) const {
  if (!out_[i] || !local.defined()) return local;
  if (is_dtensor(local)) {
    throw_value_error(ErrorText("local_map", "the function returned a DTensor where its part is wanted")
                          .fact("result", std::to_string(i))
                          .fact("it is", to_string(local))
                          .help(fmt::format("return sherd::to_local(result), or out[{}] = std::nullopt", i)));
  }
  return from_local(local, mesh_, *out_[i]);
}

}  // namespace sherd::detail
