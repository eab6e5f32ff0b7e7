# The room stored.

sherd_test(stored_unit LABEL unit LINK core SOURCES
  unit/stored/block_file_test.cpp
  unit/stored/open_checkpoint_test.cpp
  unit/stored/retention_test.cpp
  unit/stored/safetensors_checkpoint_test.cpp
  unit/stored/torch_checkpoint_test.cpp
  unit/stored/write_files_test.cpp)

sherd_test(rewrite_test LABEL property LINK core SOURCES property/rewrite_test.cpp)
