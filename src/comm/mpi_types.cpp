#include "comm/mpi_types.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "comm/call.h"
#include "comm/errors.h"

namespace sherd::detail {
namespace {

// The smaller or larger of each two; NaN above all, as in torch. (What MPI's own do with NaN depends on the order.)
template <class T, bool kMax>
void extreme(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const T*>(in);
  auto* b = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) {
    if (std::isnan(b[i])) continue;
    if (std::isnan(a[i]) || (kMax ? a[i] > b[i] : a[i] < b[i])) b[i] = a[i];
  }
}

template <class T, bool kMax>
MPI_Op extreme_op() {
  static const MPI_Op made = [] {
    MPI_Op op = MPI_OP_NULL;
    check_mpi(MPI_Op_create(&extreme<T, kMax>, /*commute=*/1, &op), "MPI_Op_create");
    return op;
  }();
  return made;
}

// Bytes that are 0 or 1: a sum says whether any is true, a product whether all are.
MPI_Op reduction_of_bools(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::max:
    case ReduceOp::bor:
      return MPI_BOR;
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::band:
      return MPI_BAND;
    case ReduceOp::bxor:
      return MPI_BXOR;
  }
  return MPI_BOR;
}

}  // namespace

c10::ScalarType reduced_in(c10::ScalarType type) {
  return type == c10::kHalf || type == c10::kBFloat16 ? c10::kFloat : type;
}

MPI_Datatype element_of(c10::ScalarType type) {
  switch (type) {
    case c10::kBool:
    case c10::kByte:
      return MPI_UINT8_T;
    case c10::kChar:
      return MPI_INT8_T;
    case c10::kShort:
      return MPI_INT16_T;
    case c10::kInt:
      return MPI_INT32_T;
    case c10::kLong:
      return MPI_INT64_T;
    case c10::kFloat:
      return MPI_FLOAT;
    case c10::kDouble:
      return MPI_DOUBLE;
    case c10::kComplexFloat:
      return MPI_C_FLOAT_COMPLEX;
    case c10::kComplexDouble:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      throw_value_error(ErrorText("reduce", "tensors of this dtype can only be moved")
                            .fact("dtype", dtype_name(type))
                            .help("tensor.to(torch::kFloat)"));
  }
}

MPI_Op reduction_of(c10::ScalarType type, ReduceOp op) {
  if (type == c10::kBool) return reduction_of_bools(op);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return MPI_SUM;
    case ReduceOp::product:
      return MPI_PROD;
    case ReduceOp::min:
      return type == c10::kFloat    ? extreme_op<float, false>()
             : type == c10::kDouble ? extreme_op<double, false>()
                                    : MPI_MIN;
    case ReduceOp::max:
      return type == c10::kFloat    ? extreme_op<float, true>()
             : type == c10::kDouble ? extreme_op<double, true>()
                                    : MPI_MAX;
    case ReduceOp::band:
      return MPI_BAND;
    case ReduceOp::bor:
      return MPI_BOR;
    case ReduceOp::bxor:
      return MPI_BXOR;
  }
  return MPI_SUM;
}

MPI_Datatype memory_of(const at::Tensor& block, int64_t most) {
  const auto bytes = static_cast<int64_t>(block.nbytes());
  MPI_Aint begin = 0;
  MPI_Get_address(block.const_data_ptr(), &begin);
  std::vector<int> lengths;
  std::vector<MPI_Aint> places;
  for (int64_t at = 0; at < bytes; at += most) {
    lengths.push_back(static_cast<int>(std::min(most, bytes - at)));
    places.push_back(MPI_Aint_add(begin, at));
  }
  MPI_Datatype type = MPI_DATATYPE_NULL;
  check_mpi(MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), MPI_BYTE, &type),
            "MPI_Type_create_hindexed");
  check_mpi(MPI_Type_commit(&type), "MPI_Type_commit");
  return type;
}

}  // namespace sherd::detail
