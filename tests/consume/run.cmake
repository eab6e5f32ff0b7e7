# cmake -DBUILD=<sherd's build folder> -DWORK=<scratch folder> -DCOMPONENT=core|sherd -DTORCH=<libtorch folder>
#       -P run.cmake
# Installs sherd, builds the outside project against it, and runs the result.

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
# Moved, as a package is: nothing may remember where it was built.
file(RENAME ${WORK}/prefix ${WORK}/moved)
step(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build -DCOMPONENT=${COMPONENT}
     -DCMAKE_PREFIX_PATH=${WORK}/moved -DTorch_DIR=${TORCH}/share/cmake/Torch
     -DTORCH_CUDA_ARCH_LIST=9.0)  # for a libtorch with CUDA, on a machine without a GPU
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH ${WORK}/build/consume)
step(${WORK}/moved/bin/sherd --version)
file(REMOVE_RECURSE ${WORK})
