# `cmake --install`: library, public headers, program, its man page and completions, and the package that
# find_package(shardwright) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The contracts. Other headers under src/ are ours alone.
set(public_headers
  base/arena.h base/bytes.h base/checksum.h base/error_table.h base/json.h base/memory_budget.h base/regex.h base/result.h base/text.h
  tensor/box.h tensor/convert.h tensor/dtype.h
  codec/codec.h
  store/ocdbt.h store/ocdbt_format.h store/store.h store/zip.h
  comm/comm.h comm/mpi_comm.h
  layout/device_mesh.h layout/distribution.h layout/gspmd.h layout/layout_file.h layout/layout_map.h layout/layout_report.h
  layout/orbax_sharding.h layout/partition_spec.h layout/shardy.h layout/tensor_layout.h layout/torch_placements.h
  format/catalog.h format/format.h
  engine/device.h engine/execute.h engine/jobs.h engine/mesh_load.h engine/plan.h engine/relayout.h
  manager/claim.h manager/manager.h manager/retention.h manager/snapshot.h manager/step_name.h manager/steps.h manager/write_step.h)
foreach(header ${public_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES src/shardwright/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardwright/${folder})
endforeach()

install(TARGETS shardwright EXPORT shardwright ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shardwright)
if(TARGET shardwright_mpi)
  # A set of its own: who has no MPI still finds the rest.
  install(TARGETS shardwright_mpi EXPORT shardwright_mpi ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT shardwright_mpi NAMESPACE shardwright:: FILE shardwrightMpiTargets.cmake DESTINATION ${package_dir})
endif()
install(EXPORT shardwright NAMESPACE shardwright:: FILE shardwrightTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/shardwrightConfig.cmake.in ${CMAKE_BINARY_DIR}/package/shardwrightConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor release may change an interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/shardwrightConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/shardwrightConfig.cmake ${CMAKE_BINARY_DIR}/package/shardwrightConfigVersion.cmake
  DESTINATION ${package_dir})

if(TARGET shardwright_program)
  install(TARGETS shardwright_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The program writes its own manual and completions from its table of verbs: page -> arguments, file.
  set(generated "")
  foreach(page "man|share/man/man1/shardwright.1"
      "completion bash|share/bash-completion/completions/shardwright"
      "completion zsh|share/zsh/site-functions/_shardwright"
      "completion fish|share/fish/vendor_completions.d/shardwright.fish")
    string(REPLACE "|" ";" page ${page})
    list(GET page 0 arguments)
    list(GET page 1 file)
    separate_arguments(arguments)
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/${file}
      COMMAND ${CMAKE_COMMAND} -E make_directory $<PATH:GET_PARENT_PATH,${CMAKE_BINARY_DIR}/${file}>
      COMMAND shardwright_program ${arguments} > ${CMAKE_BINARY_DIR}/${file}
      DEPENDS shardwright_program VERBATIM)
    list(APPEND generated ${CMAKE_BINARY_DIR}/${file})
    get_filename_component(folder ${file} DIRECTORY)
    install(FILES ${CMAKE_BINARY_DIR}/${file} DESTINATION ${folder})
  endforeach()
  add_custom_target(shardwright_manual ALL DEPENDS ${generated})
endif()
