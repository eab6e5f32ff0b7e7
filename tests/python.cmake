# The Python package: its examples, what it does with ranks as threads and as processes, and the wheel.

if(NOT SHERD_PYTHON_PACKAGE)
  return()
endif()

set(python_environment "PYTHONPATH=${PROJECT_BINARY_DIR}/python:${CMAKE_CURRENT_SOURCE_DIR}/python"
                       PYTHONDONTWRITEBYTECODE=1)

# sherd_python_test(<name> [<argument>...]): python/<name>.py
function(sherd_python_test name)
  add_test(NAME python_${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/python/${name}.py ${ARGN})
  set_tests_properties(python_${name} PROPERTIES LABELS python TIMEOUT 600
                       ENVIRONMENT "${python_environment}")
endfunction()

sherd_python_test(doctests)
sherd_python_test(test_checkpoint)
sherd_python_test(test_formats)
sherd_python_test(test_package)
sherd_python_test(test_pictures)
sherd_python_test(test_processes)
sherd_python_test(test_data_parallel)
sherd_python_test(test_sharded)
sherd_python_test(test_sharded_tensors)
sherd_python_test(test_tensor_parallel)

# A small part of the sweep over torch's list of operators.
execute_process(COMMAND ${Python3_EXECUTABLE} -c "import expecttest" RESULT_VARIABLE no_sweep ERROR_QUIET)
if(NOT no_sweep)
  add_test(NAME python_sweep COMMAND ${Python3_EXECUTABLE} -m sweep --quick)
  set_tests_properties(python_sweep PROPERTIES LABELS python TIMEOUT 900
    ENVIRONMENT "${python_environment}")
endif()

execute_process(COMMAND ${Python3_EXECUTABLE} -c "import scikit_build_core" RESULT_VARIABLE no_wheel ERROR_QUIET)
if(NOT no_wheel AND NOT SHERD_TORCH_BY_HAND)
  sherd_python_test(test_wheel ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/wheel ${CMAKE_CXX_COMPILER})
  set_tests_properties(python_test_wheel PROPERTIES TIMEOUT 3600 RUN_SERIAL TRUE)  # it builds the library again, on all cores
endif()

# The programs printed in the documents.
foreach(document README.md docs/python.md docs/checkpoint.md docs/pictures.md docs/seeing.md)
  cmake_path(GET document STEM name)
  string(TOLOWER docs_python_${name} name)
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/docs/run_python_programs.py
                               ${PROJECT_SOURCE_DIR}/${document})
  set_tests_properties(${name} PROPERTIES LABELS docs TIMEOUT 600
                       ENVIRONMENT "${python_environment}")
endforeach()
