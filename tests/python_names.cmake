# Names of the Python package with a test program of their own.

if(SHERD_PYTHON_PACKAGE)
  sherd_python_test(test_local_shards)
  sherd_python_test(test_pipeline)
endif()
