# The room storage.

sherd_test(storage_conformance LABEL conformance LINK core
  SOURCES conformance/storage.cpp conformance/storage_test.cpp conformance/storage_drivers.cpp)
sherd_test(storage_crash LABEL crash LINK core
  SOURCES conformance/storage.cpp crash/simulated_disk.cpp crash/storage_crash_test.cpp)
