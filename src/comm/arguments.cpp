#include "comm/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/call.h"
#include "comm/errors.h"
#include "sherd/box.h"

namespace sherd::detail {

void check_tensor(const char* operation, const char* what, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    throw_value_error(ErrorText(operation, fmt::format("{} is undefined", what))
                          .fact(what, "a tensor without contents")
                          .help("torch::empty(sizes)"));
  }
  if (tensor.layout() != c10::kStrided) {
    throw_value_error(ErrorText(operation, fmt::format("{} is not dense", what))
                          .fact("sizes", to_string(tensor.sizes().vec()))
                          .help("tensor.to_dense()"));
  }
  if (!tensor.is_contiguous()) {
    throw_value_error(ErrorText(operation, fmt::format("{} is not contiguous", what))
                          .fact("sizes", to_string(tensor.sizes().vec()))
                          .fact("strides", to_string(tensor.strides().vec()))
                          .help("tensor.contiguous()"));
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    throw_value_error(
        ErrorText(operation, fmt::format("{} is a conjugate or negative that is still to be computed", what))
            .fact("sizes", to_string(tensor.sizes().vec()))
            .help("tensor.resolve_conj().resolve_neg()"));
  }
}

void check_pair(const char* operation, const at::Tensor& out, const at::Tensor& in) {
  if (out.scalar_type() != in.scalar_type()) {
    throw_value_error(ErrorText(operation, "in and out have different dtypes")
                          .fact("in", dtype_name(in.scalar_type()))
                          .fact("out", dtype_name(out.scalar_type()))
                          .help("out = torch::empty(sizes, in.options())"));
  }
  if (out.device() != in.device()) {
    throw_value_error(ErrorText(operation, "in and out are on different devices")
                          .fact("in", in.device().str())
                          .fact("out", out.device().str())
                          .help("out = torch::empty(sizes, in.options())"));
  }
}

void check_numel(const char* operation, const char* what, int64_t given, int64_t needed) {
  if (given == needed) return;
  throw_value_error(ErrorText(operation, fmt::format("{} has the wrong number of elements", what))
                        .fact("given", std::to_string(given))
                        .fact("needed", std::to_string(needed))
                        .help("one block per rank of the group, in the group's order"));
}

void check_blocks(const char* operation, const Group& group, c10::IntArrayRef numels) {
  if (static_cast<int>(numels.size()) != group.size()) {
    throw_value_error(ErrorText(operation, "one block size for each rank is needed")
                          .fact("given", to_string(numels.vec()))
                          .fact("group", group.name())
                          .help("give a size for every rank of the group, 0 where a rank has nothing"));
  }
  if (std::any_of(numels.begin(), numels.end(), [](int64_t n) { return n < 0; })) {
    throw_value_error(ErrorText(operation, "a block size is negative")
                          .fact("given", to_string(numels.vec()))
                          .help("give a size for every rank of the group, 0 where a rank has nothing"));
  }
}

void check_members(const char* operation, const std::vector<int64_t>& ranks, int members) {
  if (static_cast<int>(ranks.size()) == members) return;
  throw_value_error(ErrorText(operation, "one rank for each member is needed")
                        .fact("ranks", to_string(ranks))
                        .fact("backend", std::to_string(members) + " members")
                        .help("give the world's rank of each member, in the backend's order"));
}

void check_place(const char* operation, const Group& group, int place) {
  if (place >= 0 && place < group.size()) return;
  throw_value_error(ErrorText(operation, "there is no such place in the group")
                        .fact("place", std::to_string(place))
                        .fact("group", fmt::format("{}, places 0 to {}", group.name(), group.size() - 1))
                        .help("count places in the group from 0; they are not the world's ranks"));
}

void check_tag(const char* operation, int tag) {
  if (tag >= 0 && tag <= kMaxTag) return;
  throw_value_error(ErrorText(operation, "the tag is out of range")
                        .fact("tag", std::to_string(tag))
                        .help(fmt::format("tags go from 0 to {}", kMaxTag)));
}

}  // namespace sherd::detail
