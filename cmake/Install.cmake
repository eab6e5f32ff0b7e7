# `cmake --install` gives a package: the command, the headers, and
#   find_package(sherd)                    sherd::sherd and sherd::core; asks for Torch
#   find_package(sherd COMPONENTS core)    sherd::core alone; asks for nothing
#                                          but the shared libraries that it was built with

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/sherd)

install(TARGETS sherd_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(NOT SKBUILD)  # a wheel is no place where shells and man look
  set(generated ${PROJECT_BINARY_DIR}/share)
  install(FILES ${generated}/sherd.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${generated}/sherd.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME sherd)
  install(FILES ${generated}/_sherd DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${generated}/sherd.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
install(TARGETS sherd_core EXPORT sherdCoreTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT sherdCoreTargets NAMESPACE sherd:: DESTINATION ${package_folder})
if(SHERD_TORCH_ROOMS)
  install(TARGETS sherd_calibrate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS sherd EXPORT sherdTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT sherdTargets NAMESPACE sherd:: DESTINATION ${package_folder})
endif()
install(DIRECTORY include/sherd DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/sherd)

get_property(SHERD_CORE_NEEDS GLOBAL PROPERTY SHERD_CORE_NEEDS)
configure_package_config_file(cmake/sherdConfig.cmake.in ${PROJECT_BINARY_DIR}/sherdConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sherdConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sherdConfig.cmake ${PROJECT_BINARY_DIR}/sherdConfigVersion.cmake
        DESTINATION ${package_folder})
