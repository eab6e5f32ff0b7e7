# The room storage.

sherd_test(storage_conformance LABEL conformance LINK core
  SOURCES conformance/storage_test.cpp conformance/storage_drivers.cpp)
