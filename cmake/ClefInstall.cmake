# Install rules: headers, both libraries, the program that tries drivers, the tool, its man page, examples, and what CMake and pkg-config look for.
include(CMakePackageConfigHelpers)

if(TARGET clef_shared)
  install(TARGETS clef_shared EXPORT ClefTargets
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# An export of its own: a program that links the shared library needs no OpenCL package at build time.
install(TARGETS clef_static EXPORT ClefStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET clef_mpi)
  install(TARGETS clef_mpi EXPORT ClefMpiTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(TARGETS clef_probe RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/clef)
if(TARGET clef_tool)
  install(TARGETS clef_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES cmake/clef.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(FILES include/clef.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/clef ${generated_include}/clef DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples FILES_MATCHING PATTERN "*.c" PATTERN "*.cpp")
install(FILES LICENSE CHANGELOG.md README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Clef)
if(TARGET clef_shared)
  install(EXPORT ClefTargets NAMESPACE Clef:: DESTINATION ${config_dir})
endif()
install(EXPORT ClefStaticTargets NAMESPACE Clef:: DESTINATION ${config_dir})
if(TARGET clef_mpi)
  install(EXPORT ClefMpiTargets NAMESPACE Clef:: DESTINATION ${config_dir})
endif()
string(FIND "${CLEF_COMPONENTS}" zlib CLEF_USES_ZLIB)
configure_package_config_file(cmake/ClefConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ClefConfig.cmake
  INSTALL_DESTINATION ${config_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ClefConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ClefConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ClefConfigVersion.cmake
  DESTINATION ${config_dir})

# Absolute install folders (some distributions use them) stay as they are; others hang from the prefix, which pkg-config
# finds from where clef.pc lies, so that `cmake --install build --prefix ANYWHERE` and a moved package work.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(CLEF_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH CLEF_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" CLEF_PC_PREFIX "\${pcfiledir}/${CLEF_PC_PREFIX}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
    set(CLEF_PC_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(CLEF_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
# Whoever links the only, static library has to link what it needs.
if(TARGET clef_shared)
  set(CLEF_PC_MORE "Requires.private: ${CLEF_PC_PRIVATE}\nLibs: -L\${libdir} -lclef\nLibs.private: ${CLEF_PC_LIBS}\nCflags: -I\${includedir}")
else()
  set(CLEF_PC_MORE "Requires: ${CLEF_PC_PRIVATE}\nLibs: -L\${libdir} -lclef ${CLEF_PC_LIBS}\nCflags: -I\${includedir} -DCLEF_STATIC")
endif()
configure_file(cmake/clef.pc.in ${CMAKE_CURRENT_BINARY_DIR}/clef.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/clef.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
