# The room storage.

sherd_test(storage_conformance LABEL conformance LINK core
  SOURCES conformance/storage.cpp conformance/storage_test.cpp conformance/storage_drivers.cpp)
sherd_test(storage_crash LABEL crash LINK core
  SOURCES conformance/storage.cpp crash/simulated_disk.cpp crash/storage_crash_test.cpp)
sherd_test(storage_errors LABEL error LINK core
  SOURCES conformance/storage.cpp error/storage_errors_test.cpp)
sherd_test(storage_unit LABEL unit LINK core
  SOURCES conformance/storage.cpp unit/storage/io_uring_test.cpp unit/storage/paths_test.cpp
          unit/storage/s3_sign_test.cpp)
target_compile_definitions(storage_unit PRIVATE SHERD_HAS_URING=$<BOOL:$<TARGET_EXISTS:sherd_uring>>)

# Against a server that the test starts; without libcurl there is no client.
if(CURL_INCLUDE_DIR)
  sherd_test(storage_s3 LABEL conformance LINK core
    SOURCES conformance/storage.cpp conformance/storage_test.cpp s3/server.cpp s3/storage_s3_test.cpp)
  target_compile_definitions(storage_s3 PRIVATE SHERD_PYTHON="${SHERD_PYTHON}")
endif()
