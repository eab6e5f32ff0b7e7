# A room is a folder of src/ with one idea. It is built once, as an object library; the libraries below collect rooms.
#
#   sherd_room(plan [TORCH]
#     PUBLIC  cost.h redistribute.h    # the headers of include/sherd/ that this room implements
#     SOURCES cost.cpp propagate.cpp
#     USES    layout rules)            # the rooms it may include; tools/check_rooms.py compares the #includes
#
# TORCH marks a room that needs libtorch. Such rooms go into libsherd only, the others also into libsherd_core.

function(sherd_room name)
  cmake_parse_arguments(ROOM "TORCH" "" "PUBLIC;SOURCES;USES" ${ARGN})
  if(ROOM_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "sherd_room(${name}): unknown words: ${ROOM_UNPARSED_ARGUMENTS}")
  endif()
  add_library(sherd_${name} OBJECT ${ROOM_SOURCES})
  target_include_directories(sherd_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(sherd_${name} PRIVATE sherd_flags fmt::fmt-header-only)
  if(ROOM_TORCH)
    target_link_libraries(sherd_${name} PRIVATE sherd_torch)
    set_property(GLOBAL APPEND PROPERTY SHERD_TORCH_ROOM_NAMES ${name})
  else()
    target_link_libraries(sherd_${name} PRIVATE nlohmann_json::nlohmann_json)
    set_property(GLOBAL APPEND PROPERTY SHERD_CORE_ROOM_NAMES ${name})
  endif()
endfunction()

function(sherd_add_rooms)
  foreach(room IN LISTS ARGN)
    add_subdirectory(${PROJECT_SOURCE_DIR}/src/${room})
  endforeach()
endfunction()

# What both libraries tell their users.
function(sherd_library_properties target export)
  add_library(sherd::${export} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${export})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
endfunction()

# libsherd_core.a: the rooms without libtorch. Static, so that the command installs as one file.
function(sherd_core_library)
  get_property(rooms GLOBAL PROPERTY SHERD_CORE_ROOM_NAMES)
  add_library(sherd_core STATIC)
  foreach(room IN LISTS rooms)
    target_sources(sherd_core PRIVATE $<TARGET_OBJECTS:sherd_${room}>)
  endforeach()
  set_target_properties(sherd_core PROPERTIES LINKER_LANGUAGE CXX)
  if(SHERD_SANITIZE)
    target_link_options(sherd_core PUBLIC -fsanitize=${SHERD_SANITIZE})
  endif()
  sherd_library_properties(sherd_core core)
endfunction()

# libsherd.so: all rooms.
function(sherd_library)
  get_property(core_rooms GLOBAL PROPERTY SHERD_CORE_ROOM_NAMES)
  get_property(torch_rooms GLOBAL PROPERTY SHERD_TORCH_ROOM_NAMES)
  add_library(sherd SHARED)
  foreach(room IN LISTS core_rooms torch_rooms)
    target_sources(sherd PRIVATE $<TARGET_OBJECTS:sherd_${room}>)
  endforeach()
  get_property(kernels GLOBAL PROPERTY SHERD_KERNELS)
  foreach(target IN LISTS kernels)
    target_sources(sherd PRIVATE $<TARGET_OBJECTS:${target}>)
  endforeach()
  set_target_properties(sherd PROPERTIES LINKER_LANGUAGE CXX)
  if(SKBUILD)  # a wheel holds no links, and stands beside torch
    set_target_properties(sherd PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
  else()
    set_target_properties(sherd PROPERTIES VERSION ${PROJECT_VERSION}
                                           SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                                           INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  # An installed sherd links the Torch that its user's find_package found: see sherdConfig.cmake.in.
  target_link_libraries(sherd PUBLIC $<BUILD_INTERFACE:sherd_libtorch> PRIVATE $<BUILD_INTERFACE:sherd_flags>)
  if(SHERD_MPI)
    target_link_libraries(sherd PRIVATE $<BUILD_INTERFACE:MPI::MPI_CXX>)
  endif()
  if(SHERD_SANITIZE)
    target_link_options(sherd PUBLIC -fsanitize=${SHERD_SANITIZE})
  endif()
  sherd_library_properties(sherd sherd)
endfunction()
