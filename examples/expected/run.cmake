# cmake -DPROGRAM=<program> -DEXPECTED=<file> [-DBEFORE=<script> -DPYTHON=<python> -DWORK=<folder>] -P run.cmake
# Runs a lesson, after a Python script where there is one (both with the folder as their argument), and compares what it
# prints with a file.

set(argument)
if(BEFORE)
  file(REMOVE_RECURSE ${WORK})
  execute_process(COMMAND ${PYTHON} ${BEFORE} ${WORK} COMMAND_ERROR_IS_FATAL ANY)
  set(argument ${WORK})
endif()
execute_process(COMMAND ${PROGRAM} ${argument} OUTPUT_VARIABLE printed RESULT_VARIABLE result)
file(READ ${EXPECTED} expected)
if(NOT result EQUAL 0 OR NOT printed STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} ended with ${result} and printed\n${printed}\nwhere ${EXPECTED} has\n${expected}")
endif()
