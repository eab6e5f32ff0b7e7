# The launcher, the command, the package, the rooms and the documents.

sherd_test(launch_test LABEL unit LINK core
  SOURCES unit/launch/line_writer_test.cpp unit/launch/rank_variables_test.cpp)

sherd_test(command_test LABEL unit LINK core SOURCES unit/tools/command_test.cpp)
target_compile_definitions(command_test PRIVATE SHERD_VERSION="${PROJECT_VERSION}")
add_dependencies(command_test sherd_command)

sherd_test(run_test LABEL multiprocess LINK core SOURCES multiprocess/run_test.cpp)
add_dependencies(run_test sherd_command)

# sherd_script_test(<name> LABEL <label> COMMAND <word>...): a test that is no GoogleTest program.
function(sherd_script_test name)
  cmake_parse_arguments(TEST "" "LABEL" "COMMAND" ${ARGN})
  add_test(NAME ${name} COMMAND ${TEST_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS ${TEST_LABEL} TIMEOUT 300)
endfunction()

sherd_script_test(check_rooms LABEL docs COMMAND ${SHERD_PYTHON} ${PROJECT_SOURCE_DIR}/tools/check_rooms.py)
sherd_script_test(check_links LABEL docs COMMAND ${SHERD_PYTHON} ${PROJECT_SOURCE_DIR}/tools/check_links.py)
sherd_script_test(check_scripts_test LABEL unit
  COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/unit/tools/check_rooms_test.py)

# An outside project against the installed package.
set(components core)
if(SHERD_TORCH_ROOMS AND NOT SHERD_TORCH_BY_HAND)
  list(APPEND components sherd)
endif()
foreach(component IN LISTS components)
  sherd_script_test(consume_${component} LABEL consume
    COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DWORK=${PROJECT_BINARY_DIR}/consume_${component}
            -DCOMPONENT=${component} -DTORCH=${TORCH_INSTALL_PREFIX}
            -P ${CMAKE_CURRENT_SOURCE_DIR}/consume/run.cmake)
endforeach()

# The programs printed in the documents.
if(SHERD_TORCH_ROOMS)
  set(documents README.md docs/moving.md docs/random.md docs/sharded.md docs/local_shards.md docs/checkpoint.md
                docs/checkpoint_own.md docs/parallel.md docs/pictures.md docs/seeing.md docs/training.md docs/xla.md)
  if(SHERD_RPC)
    list(APPEND documents docs/remote.md)
  endif()
  foreach(document IN LISTS documents)
    set_property(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} APPEND PROPERTY
                 CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${document})
    execute_process(COMMAND ${SHERD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/extract_programs.py
                            ${PROJECT_SOURCE_DIR}/${document} ${PROJECT_BINARY_DIR}/docs
                    OUTPUT_VARIABLE programs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE "\n" ";" programs "${programs}")
    foreach(program IN LISTS programs)
      cmake_path(GET program STEM name)
      add_executable(docs_${name} ${program})
      set_target_properties(docs_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/docs)
      sherd_use_test_header(docs_${name})
      # GCC 13 sees uninitialized values in torch's data loader.
      target_compile_options(docs_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
      sherd_script_test(docs_${name} LABEL docs COMMAND docs_${name})
    endforeach()
  endforeach()
endif()
