# Checkpoints of a run, from Python. (Included after python.cmake, which has the function.)

if(SHERD_PYTHON_PACKAGE)
  sherd_python_test(test_checkpoint_manager)
  sherd_python_test(test_checkpoint_states)
endif()
