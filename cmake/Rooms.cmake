# A room is a folder of src/ with one idea. It is built once, as an object library; the libraries below collect rooms.
#
#   sherd_room(plan [TORCH]
#     PUBLIC  cost.h redistribute.h    # the headers of include/sherd/ that this room implements
#     SOURCES cost.cpp propagate.cpp
#     USES    layout rules)            # the rooms it may include; tools/check_rooms.py compares the #includes
#   sherd_room_libraries(plan zstd)    # optional libraries: cmake/Dependencies.cmake
#
# TORCH marks a room that needs libtorch. Such rooms go into libsherd only, the others also into libsherd_core.

include(CheckLinkerFlag)

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

# The optional libraries that a room uses where they are there: names of sherd_optional_library.
function(sherd_room_libraries room)
  foreach(name IN LISTS ARGN)
    if(TARGET sherd_${name})
      target_link_libraries(sherd_${room} PRIVATE sherd_${name})
      get_property(names GLOBAL PROPERTY SHERD_LIBRARY_NAMES)
      if(NOT name IN_LIST names)
        set_property(GLOBAL APPEND PROPERTY SHERD_LIBRARY_NAMES ${name})
      endif()
    endif()
  endforeach()
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

# Links the optional libraries of all rooms. An archive goes into libsherd_core.a object by object; in libsherd.so its
# symbols are hidden, since a program may have the same library of another version.
function(sherd_link_libraries target)
  get_property(names GLOBAL PROPERTY SHERD_LIBRARY_NAMES)
  get_target_property(type ${target} TYPE)
  set(archives)
  foreach(name IN LISTS names)
    get_target_property(kind sherd_${name} SHERD_KIND)
    get_target_property(file sherd_${name} SHERD_FILE)
    if(kind STREQUAL "shared" AND type STREQUAL "STATIC_LIBRARY")
      target_link_libraries(${target} INTERFACE $<BUILD_INTERFACE:${file}>)
      set_property(GLOBAL APPEND PROPERTY SHERD_CORE_NEEDS ${name})
    elseif(type STREQUAL "STATIC_LIBRARY")
      list(APPEND archives "ADDLIB ${file}")
    else()
      target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${file}>)
      cmake_path(GET file FILENAME file_name)
      target_link_options(${target} PRIVATE -Wl,--exclude-libs,${file_name})
    endif()
  endforeach()
  if(archives)  # LLVM's ar has no OPEN
    set(file $<TARGET_FILE_NAME:${target}>)
    add_custom_command(TARGET ${target} POST_BUILD WORKING_DIRECTORY $<TARGET_FILE_DIR:${target}> VERBATIM
                       COMMAND sh -c "printf '%s\\n' \"$@\" | '${CMAKE_AR}' -M" sh
                               "CREATE ${file}.whole" "ADDLIB ${file}" ${archives} SAVE END
                       COMMAND ${CMAKE_COMMAND} -E rename ${file}.whole ${file})
  endif()
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
  target_link_libraries(sherd_core INTERFACE ${CMAKE_DL_LIBS})  # of its own where libc has no dlopen
  sherd_link_libraries(sherd_core)
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
  # The library calls its own functions directly and not by way of a table: of what a small training step adds to
  # libtorch's, that was a tenth.
  check_linker_flag(CXX LINKER:--dynamic-list-data SHERD_LINKER_HAS_LISTS)
  if(SHERD_LINKER_HAS_LISTS)
    set(list ${PROJECT_SOURCE_DIR}/cmake/left_to_others.list)
    target_link_options(sherd PRIVATE LINKER:--dynamic-list-data LINKER:--dynamic-list=${list})
    set_property(TARGET sherd APPEND PROPERTY LINK_DEPENDS ${list})
  endif()
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
  target_link_libraries(sherd PRIVATE ${CMAKE_DL_LIBS})
  sherd_link_libraries(sherd)
  sherd_library_properties(sherd sherd)
endfunction()
