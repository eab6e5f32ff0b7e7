# What the operators are tried on; compiled once for both tests.
set(sherd_op_samples property/op_samples.cpp property/linear_algebra_samples.cpp property/spatial_samples.cpp
  property/along_sharded_samples.cpp property/table_samples.cpp property/distribute_any.cpp)
sherd_test(ops_test LABEL property LINK sherd TIMEOUT 600 SOURCES property/ops_test.cpp ${sherd_op_samples})
sherd_test(audit_test LABEL property LINK sherd TIMEOUT 300 SOURCES property/audit_test.cpp ${sherd_op_samples})
sherd_test(redistribute_test LABEL property LINK sherd TIMEOUT 300
  SOURCES property/redistribute_test.cpp property/distribute_any.cpp)
sherd_test(views_test LABEL property LINK sherd SOURCES property/views_test.cpp property/distribute_any.cpp)
sherd_test(moving_test LABEL property LINK sherd TIMEOUT 300
  SOURCES property/moving_test.cpp property/distribute_any.cpp)
# Skips without a GPU.
sherd_test(gpu_test LABEL property LINK sherd
  SOURCES property/gpu_test.cpp property/distribute_any.cpp)
sherd_test(modules_test LABEL property LINK sherd SOURCES property/modules_test.cpp)
sherd_test(joint_mesh_test LABEL property LINK sherd SOURCES property/joint_mesh_test.cpp)
sherd_test(register_rule_test LABEL unit LINK sherd SOURCES unit/tensor/register_rule_test.cpp)
sherd_test(allocation_test LABEL unit LINK sherd SOURCES unit/tensor/allocation_test.cpp)
sherd_test(dispatch_test LABEL unit LINK sherd SOURCES unit/tensor/dispatch_test.cpp)
sherd_test(dtensor_test LABEL unit LINK sherd SOURCES unit/tensor/dtensor_test.cpp)
sherd_test(tensor_errors_test LABEL error LINK sherd SOURCES error/tensor_errors_test.cpp)
sherd_test(moving_errors_test LABEL error LINK sherd SOURCES error/moving_errors_test.cpp)
sherd_test(rules_test LABEL unit LINK core
  SOURCES unit/rules/rule_test.cpp unit/plan/explain_test.cpp unit/plan/propagate_test.cpp
          unit/plan/redistribution_test.cpp unit/plan/save_test.cpp)
sherd_test(communication_test LABEL property LINK sherd
  SOURCES property/communication_test.cpp property/explained_bytes_test.cpp property/distribute_any.cpp)
sherd_test(along_sharded_test LABEL property LINK sherd SOURCES property/along_sharded_test.cpp property/distribute_any.cpp)

# The ranks of `sherd calibrate` measure, and one prints a line for the shell.
if(SHERD_TORCH_ROOMS)
  add_test(NAME calibrate COMMAND sherd_command calibrate -n 2)
  set_tests_properties(calibrate PROPERTIES LABELS multiprocess TIMEOUT 120
    PASS_REGULAR_EXPRESSION "SHERD_COSTS=call=[-0-9.e]+,message=[-0-9.e]+,byte=[-0-9.e]+")
endif()

sherd_test(philox_test LABEL unit LINK sherd SOURCES unit/random/philox_test.cpp)
sherd_test(random_test LABEL property LINK sherd TIMEOUT 300
  SOURCES property/random_test.cpp property/distribute_any.cpp)
sherd_test(random_cuda_test LABEL property LINK sherd
  SOURCES property/random_cuda_test.cpp property/distribute_any.cpp)
sherd_test(distributions_test LABEL property LINK sherd SOURCES property/distributions_test.cpp)
sherd_test(random_errors_test LABEL error LINK sherd SOURCES error/random_errors_test.cpp)
# GCC 12 sees an uninitialized value in the generators that calls leave out.
set_source_files_properties(property/distributions_test.cpp property/random_cuda_test.cpp error/random_errors_test.cpp
  PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)

sherd_test(loss_test LABEL property LINK sherd SOURCES property/loss_test.cpp)
