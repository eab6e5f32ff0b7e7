# The models of examples/: trained on meshes as on one device, and the program around them.

if(NOT TARGET train_resnet OR NOT TARGET train_gpt)
  return()
endif()

sherd_test(models_test LABEL property LINK sherd SOURCES property/models_test.cpp ENVIRONMENT OMP_NUM_THREADS=1)
target_link_libraries(models_test PRIVATE train_gpt train_resnet)

sherd_test(models_program_test LABEL multiprocess LINK core SOURCES multiprocess/models_program_test.cpp
           TIMEOUT 600 ENVIRONMENT OMP_NUM_THREADS=1)
add_dependencies(models_program_test sherd_command train_gpt_program train_resnet_program)

# The commands of docs/guide.md for several hosts.
find_program(SHERD_TORCHRUN torchrun HINTS ${SHERD_TORCH}/bin ${TORCH_INSTALL_PREFIX}/../../../../bin NO_DEFAULT_PATH)
if(SHERD_TORCHRUN)
  set(out ${PROJECT_BINARY_DIR}/tests/two_hosts_torchrun)
  add_test(NAME two_hosts_torchrun_test
           COMMAND bash -c "rm -rf ${out}; exec ${CMAKE_CURRENT_SOURCE_DIR}/multiprocess/two_hosts.sh ${SHERD_TORCHRUN} \
$<TARGET_FILE:train_gpt_program> --tp 2 --steps 2 --layers 1 --width 16 --length 8 --out ${out}")
  set_tests_properties(two_hosts_torchrun_test PROPERTIES LABELS multiprocess TIMEOUT 300 PROCESSORS 4 SKIP_RETURN_CODE 77
                       ENVIRONMENT OMP_NUM_THREADS=1)
endif()
