# Every dependency comes from its own package. `./dev deps` unpacks the Debian packages into .deps/ for machines that
# have neither them nor a network.

set(deps ${PROJECT_SOURCE_DIR}/.deps/usr)
if(EXISTS ${deps})
  list(PREPEND CMAKE_PREFIX_PATH ${deps} ${deps}/lib/x86_64-linux-gnu)
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
if(SHERD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(SHERD_BENCH)
  find_package(benchmark REQUIRED)
endif()

# Optional: checksums.
find_path(XXHASH_INCLUDE_DIR xxhash.h)
find_library(XXHASH_LIBRARY xxhash)
if(XXHASH_INCLUDE_DIR AND XXHASH_LIBRARY)
  add_library(sherd_xxhash INTERFACE)
  target_include_directories(sherd_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
  target_link_libraries(sherd_xxhash INTERFACE ${XXHASH_LIBRARY})
endif()

if(SHERD_TORCH_ROOMS)
  include(Libtorch)
endif()

# Optional: the MPI transport. Open MPI leaks by design, which sanitizers do not forgive.
if(SHERD_MPI AND SHERD_TORCH_ROOMS AND NOT SHERD_SANITIZE)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI 3.0 COMPONENTS CXX)
endif()
if(NOT MPI_CXX_FOUND)
  set(SHERD_MPI OFF)
endif()
message(STATUS "sherd: MPI ${SHERD_MPI}")

# Optional: RPC. The wheels for Linux have TensorPipe.
foreach(header torch/csrc/distributed/rpc/tensorpipe_agent.h tensorpipe/transport/uv/factory.h)
  if(NOT SHERD_TORCH_ROOMS OR NOT EXISTS ${TORCH_INSTALL_PREFIX}/include/${header})
    set(SHERD_RPC OFF)
  endif()
endforeach()
message(STATUS "sherd: RPC ${SHERD_RPC}")

# For the scripts among the tests; beside torch where there is one, so that tests may import it.
if(SKBUILD)
  set(SHERD_PYTHON ${Python3_EXECUTABLE})
endif()
find_program(SHERD_PYTHON NAMES python3 HINTS ${SHERD_TORCH}/bin ${TORCH_INSTALL_PREFIX}/../../../../bin)

# The Python package needs Python's headers, and the torch of a Python.
if(SHERD_PYTHON_PACKAGE)
  set(Python3_EXECUTABLE ${SHERD_PYTHON})
  find_package(Python3 COMPONENTS Interpreter Development.Module)
  if(NOT Python3_Development.Module_FOUND OR NOT SHERD_TORCH_ROOMS OR SHERD_SANITIZE
     OR NOT EXISTS ${TORCH_INSTALL_PREFIX}/lib/libtorch_python.so)
    set(SHERD_PYTHON_PACKAGE OFF)
  endif()
  message(STATUS "sherd: Python package ${SHERD_PYTHON_PACKAGE}")
endif()
