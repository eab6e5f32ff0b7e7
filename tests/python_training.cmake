# Training from Python.

if(SHERD_PYTHON_PACKAGE)
  sherd_python_test(test_training)
endif()
