# Configures a project outside the tree that takes the library in by add_subdirectory, builds what it needs of it,
# and runs its program. Lost otherwise: everybody who keeps the library's source in their own.
#   cmake -DDDL_SOURCE=... -DSOURCE=... -DWORK=... -DGENERATOR=... -DCXX=... -DLAUNCHER=... -P subdirectory_test.cmake
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
# Outside the tree, even if the build is inside it.
set(outside ${WORK}/project)
get_filename_component(folder ${SOURCE} DIRECTORY)
file(COPY ${SOURCE} ${folder}/consumer.cpp DESTINATION ${outside})
# Unoptimised and without debug information: it is the build that is tested.
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${outside}/subdirectory -B ${WORK}/build -DDDL_SOURCE=${DDL_SOURCE}
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DDDL_WITH_CUDA=OFF)
run(${CMAKE_COMMAND} --build ${WORK}/build --parallel 2 --target consumer)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/build --output-on-failure)
# Objects are in the compiler cache, if there is one; here they would only take space.
file(REMOVE_RECURSE ${WORK}/build)
