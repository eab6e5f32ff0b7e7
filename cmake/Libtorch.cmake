# Finds libtorch and wraps it as sherd_torch, the target that sherd's own files link. Sets SHERD_CUDA, TORCH_LIBRARIES
# and TORCH_INSTALL_PREFIX.

# Where it is: a virtual environment, its site-packages, a torch folder in one, or an unpacked libtorch.
# Torch_DIR and CMAKE_PREFIX_PATH work as everywhere.
if(DEFINED ENV{SHERD_TORCH})
  set(default_torch $ENV{SHERD_TORCH})
elseif(SKBUILD)
  # pip: the torch of the environment that the package is installed into, which pip hides from the build itself.
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
                  OUTPUT_VARIABLE default_torch OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
else()
  set(default_torch ${PROJECT_SOURCE_DIR}/.venv)
endif()
set(SHERD_TORCH "${default_torch}" CACHE PATH "Where libtorch is: a virtual environment or a libtorch folder")
option(SHERD_CPU_ONLY "Use a CUDA build of libtorch for the CPU alone (implied where there is no nvcc)" OFF)
option(SHERD_REQUIRE_CUDA "Refuse a libtorch without CUDA" OFF)

file(GLOB torch_folders ${SHERD_TORCH} ${SHERD_TORCH}/torch ${SHERD_TORCH}/lib/python3.*/site-packages/torch)
find_path(torch_folder share/cmake/Torch/TorchConfig.cmake HINTS ${torch_folders} NO_CACHE)
find_program(nvcc nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin NO_CACHE)

set(SHERD_CUDA OFF)
if(EXISTS ${torch_folder}/lib/libtorch_cuda.so AND (SHERD_CPU_ONLY OR NOT nvcc))
  # TorchConfig insists on the CUDA toolkit, which programs for the CPU do not need. Name the libraries by hand.
  include(${torch_folder}/share/cmake/Torch/TorchConfigVersion.cmake)
  set(Torch_VERSION ${PACKAGE_VERSION})
  set(TORCH_INSTALL_PREFIX ${torch_folder})
  set(SHERD_TORCH_BY_HAND ON)
  set(TORCH_LIBRARIES torch)
  add_library(torch INTERFACE IMPORTED)
  target_include_directories(torch INTERFACE ${torch_folder}/include ${torch_folder}/include/torch/csrc/api/include)
  target_link_libraries(torch INTERFACE ${torch_folder}/lib/libtorch.so ${torch_folder}/lib/libtorch_cpu.so
                                        ${torch_folder}/lib/libc10.so)
  target_link_options(torch INTERFACE -Wl,--allow-shlib-undefined)  # the CUDA libraries are found when it runs
else()
  # TorchConfig warns that a static library is absent which no wheel carries, and asks the GPU for its architecture,
  # though sherd chooses those of its kernels itself. It looks at these first.
  set(kineto_LIBRARY inside-libtorch)
  if(NOT DEFINED TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
    set(TORCH_CUDA_ARCH_LIST "9.0")
  endif()
  if(SKBUILD AND NOT torch_folder)
    message(FATAL_ERROR "sherd is built against the torch that is installed, and there is none in ${SHERD_TORCH}\n"
                        "  help: pip install torch, or SHERD_TORCH=<environment with torch> pip install .")
  endif()
  find_package(Torch 2.11 REQUIRED HINTS ${torch_folder})
  list(REMOVE_ITEM TORCH_LIBRARIES inside-libtorch)
  if(EXISTS ${TORCH_INSTALL_PREFIX}/lib/libtorch_cuda.so)
    set(SHERD_CUDA ON)
    # Machine code for the GPUs that most have, and code that the driver compiles for the others.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 75-virtual 80-real 90-real)
    endif()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the one that torch loads
    enable_language(CUDA)
  endif()
endif()

if(Torch_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "sherd needs libtorch 2.11 or newer\n  found: ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX}")
endif()
if(SHERD_REQUIRE_CUDA AND NOT SHERD_CUDA)
  message(FATAL_ERROR "cuda preset: no CUDA here\n  libtorch: ${TORCH_INSTALL_PREFIX}\n  nvcc: ${nvcc}\n"
                      "  help: SHERD_TORCH=<environment with a CUDA build of torch> ./dev build cuda")
endif()
message(STATUS "sherd: torch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX}, CUDA ${SHERD_CUDA}")

# What programs that use sherd link, and what sherd's own files see beyond that: torch's headers hide the Gloo and NCCL
# groups behind these names.
add_library(sherd_libtorch INTERFACE)
# The C++ library comes first: wheels have copies of some of its functions, and programs that take those crash in
# std::filesystem::remove_all (torch 2.11).
target_link_libraries(sherd_libtorch INTERFACE -lstdc++ ${TORCH_LIBRARIES})
add_library(sherd_torch INTERFACE)
target_compile_definitions(sherd_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_libraries(sherd_torch INTERFACE sherd_libtorch)
