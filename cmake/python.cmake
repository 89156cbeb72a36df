# The extension module shardwright._core and its stub, for the package under python/. `make python` builds and installs it.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB python_sources CONFIGURE_DEPENDS src/python/*.cc)
# STABLE_ABI: one wheel for Python 3.12 and later; nothing before.
nanobind_add_module(shardwright_python STABLE_ABI NB_STATIC ${python_sources})
set_target_properties(shardwright_python PROPERTIES OUTPUT_NAME _core
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/shardwright)
target_link_libraries(shardwright_python PRIVATE shardwright shardwright_flags)
target_include_directories(shardwright_python SYSTEM PRIVATE ${NB_DIR}/include)
target_compile_definitions(shardwright_python PRIVATE SHARDWRIGHT_VERSION="${PROJECT_VERSION}")

nanobind_add_stub(shardwright_python_stub MODULE _core PYTHON_PATH ${CMAKE_BINARY_DIR}/python/shardwright
  OUTPUT ${CMAKE_BINARY_DIR}/python/shardwright/_core.pyi DEPENDS shardwright_python)

# By the wheel only: `cmake --install` of the library has no business in a Python's folders.
install(TARGETS shardwright_python LIBRARY DESTINATION shardwright COMPONENT python EXCLUDE_FROM_ALL)
install(FILES ${CMAKE_BINARY_DIR}/python/shardwright/_core.pyi DESTINATION shardwright COMPONENT python EXCLUDE_FROM_ALL)
