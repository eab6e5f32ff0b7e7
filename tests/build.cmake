# The launcher, the command, and the build itself.

sherd_test(launch_test LABEL unit LINK core
  SOURCES unit/launch/line_writer_test.cpp unit/launch/rank_variables_test.cpp)

sherd_test(command_test LABEL unit LINK core SOURCES unit/tools/command_test.cpp)
target_compile_definitions(command_test PRIVATE SHERD_VERSION="${PROJECT_VERSION}")
add_dependencies(command_test sherd_command)

sherd_test(run_test LABEL multiprocess LINK core SOURCES multiprocess/run_test.cpp)
add_dependencies(run_test sherd_command)
