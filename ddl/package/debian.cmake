# Debian packages of a build without CUDA, by `cpack --config CPackConfig.cmake`: libddl0, libddl-dev,
# python3-ddl, ddl-tools, ddl-nmt.
# A build with CUDA leaves out ddl-nmt and ddl_cuda, which would need NVIDIA's packages; libddl_c then works on
# devices too and needs none, because its CUDA runtime is static and loads the driver when it is first used.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR ddl)
set(CPACK_PACKAGE_CONTACT "The ddl maintainers <maintainers@ddl.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY >=)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
# Without these two programs, packages do not declare the shared libraries that they need or provide.
find_program(DDL_SHLIBDEPS dpkg-shlibdeps)
find_program(DDL_FILE file)
mark_as_advanced(DDL_SHLIBDEPS DDL_FILE)
set(with_shlibs OFF)
if(DDL_SHLIBDEPS AND DDL_FILE)
  set(with_shlibs ON)
endif()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ${with_shlibs})

# ddl_add_package(COMPONENT NAME name SECTION section SUMMARY line DETAILS text [SHLIBDEPS] [DEPENDS name...]
#   [RECOMMENDS name...]). SHLIBDEPS: depend on the packages of the shared libraries that the files need.
function(ddl_add_package component)
  cmake_parse_arguments(arg "SHLIBDEPS" "NAME;SECTION;SUMMARY;DETAILS" "DEPENDS;RECOMMENDS" ${ARGN})
  string(TOUPPER ${component} variable)
  set(prefix CPACK_DEBIAN_${variable})
  list(JOIN arg_DEPENDS ", " depends)
  list(JOIN arg_RECOMMENDS ", " recommends)
  set(shlibdeps OFF)
  if(arg_SHLIBDEPS)
    set(shlibdeps ${with_shlibs})
  endif()
  set(${prefix}_PACKAGE_NAME ${arg_NAME} PARENT_SCOPE)
  set(${prefix}_PACKAGE_SECTION ${arg_SECTION} PARENT_SCOPE)
  set(${prefix}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(${prefix}_PACKAGE_RECOMMENDS "${recommends}" PARENT_SCOPE)
  set(${prefix}_PACKAGE_SHLIBDEPS ${shlibdeps} PARENT_SCOPE)
  set(${prefix}_DESCRIPTION "${arg_SUMMARY}\n${arg_DETAILS}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  # Only packages get this file; `cmake --install` does not install it.
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/${arg_NAME} RENAME copyright
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

set(mpirun "")
if(DDL_HAVE_MPI)
  set(mpirun openmpi-bin)
endif()
set(CPACK_COMPONENTS_ALL "")

ddl_add_package(ddl_runtime NAME libddl0 SECTION libs SHLIBDEPS
  SUMMARY "topology-aware data-parallel communication (shared libraries)"
  DETAILS "All-reduce and other collectives that follow the wiring of hosts and devices.
This package has libddl_c, the library for C and what can call it, and libddl_mpi,
which serves the collectives of unmodified MPI programs when it is preloaded.")

# The dependencies of ddlConfig.cmake and ddl.pc.
set(dev_depends "libddl0 (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})"
  libexpat1-dev libfmt-dev libhwloc-dev libspdlog-dev pkg-config zlib1g-dev)
if(DDL_HAVE_UCX)
  list(APPEND dev_depends libucx-dev)
endif()
if(DDL_HAVE_MPI)
  list(APPEND dev_depends libopenmpi-dev)
endif()
ddl_add_package(ddl_dev NAME libddl-dev SECTION libdevel DEPENDS ${dev_depends} RECOMMENDS ${mpirun}
  SUMMARY "topology-aware data-parallel communication (development files)"
  DETAILS "Headers, static libraries, and what CMake's find_package(ddl) and pkg-config
need to make a trainer data-parallel in some ten lines, and examples.")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/ddl/examples/ DESTINATION share/doc/libddl-dev/examples
  COMPONENT ddl_dev EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*_trainer.c*")

ddl_add_package(ddl_python NAME python3-ddl SECTION python
  DEPENDS "libddl0 (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})" python3 RECOMMENDS python3-numpy ${mpirun}
  SUMMARY "topology-aware data-parallel communication (Python)"
  DETAILS "The module ddl: collectives and gradient reduction on numpy arrays and torch
tensors in host memory.")

set(tools_depends "")
if(EXISTS ${PROJECT_SOURCE_DIR}/ddl/launcher/ddlrun)
  set(tools_depends python3)
endif()
ddl_add_package(ddl_tools NAME ddl-tools SECTION utils SHLIBDEPS DEPENDS ${tools_depends} RECOMMENDS graphviz ${mpirun}
  SUMMARY "topology-aware data-parallel communication (tools)"
  DETAILS "ddl-topo shows how hosts and devices are wired and measures it. ddl-plan says how
a collective would be done on a machine, why, and how long it would take.")

if(DDL_BUILD_EXAMPLES AND NOT DDL_HAVE_CUDA)
  ddl_add_package(ddl_nmt NAME ddl-nmt SECTION science SHLIBDEPS RECOMMENDS ${mpirun}
    SUMMARY "LSTM translator, trained data-parallel on CPUs"
    DETAILS "Trains neural machine translation with attention on any number of processes,
with the flags of tensorflow/nmt, and translates with what it has learned.")
endif()
include(CPack)
