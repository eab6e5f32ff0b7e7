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
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)  # digests, as a header alone
if(SHERD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(SHERD_BENCH)
  find_package(benchmark REQUIRED)
endif()

# Optional libraries of C, each from one package. sherd_<name> is there where the library is; a room that may use it says
# sherd_room_libraries(<room> <name>) and chooses its sources by if(TARGET sherd_<name>).
#
# The static archive is taken where it can become part of a shared library: then neither libsherd.so nor libsherd_core.a
# asks its users for anything. Otherwise it is the shared library, which a wheel does without, since the machines that it
# goes to may not have it.
function(sherd_optional_library name)
  cmake_parse_arguments(OPTIONAL "" "HEADER" "" ${ARGN})
  string(TOUPPER ${name} upper)
  find_path(${upper}_INCLUDE_DIR ${OPTIONAL_HEADER})
  find_library(${upper}_ARCHIVE lib${name}.a)
  find_library(${upper}_LIBRARY ${name})
  if(${upper}_INCLUDE_DIR AND ${upper}_ARCHIVE)
    set(probe ${PROJECT_BINARY_DIR}/CMakeFiles/lib${name}.probe.so)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -shared -nostdlib -o ${probe} -Wl,--whole-archive ${${upper}_ARCHIVE}
                    RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    file(REMOVE ${probe})
    if(result EQUAL 0)
      set(kind static)
      set(file ${${upper}_ARCHIVE})
    endif()
  endif()
  if(NOT kind AND ${upper}_INCLUDE_DIR AND ${upper}_LIBRARY AND NOT SKBUILD)
    set(kind shared)
    set(file ${${upper}_LIBRARY})
  endif()
  if(kind)
    add_library(sherd_${name} INTERFACE)
    target_include_directories(sherd_${name} SYSTEM INTERFACE ${${upper}_INCLUDE_DIR})
    set_target_properties(sherd_${name} PROPERTIES SHERD_KIND ${kind} SHERD_FILE ${file})
  else()
    set(kind no)
  endif()
  message(STATUS "sherd: ${name} ${kind} ${file}")
endfunction()

sherd_optional_library(zstd HEADER zstd.h)        # compressed items of checkpoints
sherd_optional_library(uring HEADER liburing.h)  # reads and writes of a disk, many at once

# Optional: object stores. libcurl is loaded by the programs that talk to one, so it is not linked.
find_path(CURL_INCLUDE_DIR curl/curl.h)
if(CURL_INCLUDE_DIR)
  message(STATUS "sherd: curl when it is asked for")
else()
  message(STATUS "sherd: curl no")
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
