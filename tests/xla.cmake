# The room xla: shardings as XLA writes them. What JAX says of them is in python/test_xla.py.

sherd_test(xla_unit LABEL unit LINK core SOURCES unit/xla/xla_sharding_test.cpp)
sherd_test(xla_property LABEL property LINK core SOURCES property/xla_test.cpp)
sherd_fuzz(xla_fuzz)
