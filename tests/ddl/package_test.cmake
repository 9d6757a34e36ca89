# Installs the build to a fresh prefix, then configures, builds and runs the consumer against it.
# Otherwise nobody could use the library without its source tree.
#   cmake -DBUILD=... -DSOURCE=... -DWORK=... -DLIBDIR=... -DGENERATOR=... -DCXX=... -DFLAGS=... -DWITH_CUDA=... -P package_test.cmake
file(REMOVE_RECURSE ${WORK})
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
# Moves the prefix, so that paths of the original one do not go unnoticed.
file(RENAME ${WORK}/installed ${WORK}/prefix)
set(ENV{PKG_CONFIG_PATH} ${WORK}/prefix/${LIBDIR}/pkgconfig)
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${FLAGS} -DWITH_CUDA=${WITH_CUDA})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/build --output-on-failure)

run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE}/c_only -B ${WORK}/c_build -DCMAKE_PREFIX_PATH=${WORK}/prefix
  -DCMAKE_C_FLAGS=${FLAGS} -DCMAKE_BUILD_RPATH=${WORK}/prefix/${LIBDIR})
run(${CMAKE_COMMAND} --build ${WORK}/c_build)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/c_build --output-on-failure)
