#pragma once
// Elements, reductions and blocks of memory, as MPI names them.

#include "comm/mpi_process.h"
#include "sherd/placement.h"

namespace sherd::detail {

/// The dtype in which MPI reduces tensors of `type`: another one for 16-bit floats, which are reduced in 32 bits.
c10::ScalarType reduced_in(c10::ScalarType type);
/// For a dtype that reduced_in() gave, and a reduction that sherd allows for it. An average is a sum.
MPI_Datatype element_of(c10::ScalarType type);
MPI_Op reduction_of(c10::ScalarType type, ReduceOp op);

/// The bytes of a block, wherever it lies and however many they are, for a buffer that begins at MPI_BOTTOM; told in
/// runs of at most `most`. To be freed by the caller.
MPI_Datatype memory_of(const at::Tensor& block, int64_t most);

}  // namespace sherd::detail
