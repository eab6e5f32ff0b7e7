sherd_test(training_test LABEL property LINK sherd
  SOURCES property/clip_grad_test.cpp property/ema_test.cpp property/grad_scaler_test.cpp property/local_map_test.cpp
          property/optimizers_test.cpp property/recompute_test.cpp property/sharded_data_test.cpp)
# GCC 13 sees uninitialized values in torch's data loader.
set_source_files_properties(property/sharded_data_test.cpp PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
