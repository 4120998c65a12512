# Each test starts jobs one after the other, for every MPI family; several ranks share a processor.
set_tests_properties(${tests} PROPERTIES TIMEOUT 400 PROCESSORS 2)
foreach(test IN LISTS tests)
    string(REPLACE . _ target test_${test})
    if(TARGET ${target})
        target_compile_definitions(${target} PRIVATE LS_LIBRARY_FOLDER="${CMAKE_INSTALL_LIBDIR}")
    endif()
endforeach()
foreach(family openmpi mpich)
    if(TARGET mpi-${family})
        ls_test_program(own_mpi_${family} mpi/own_mpi.c ${all_rooms} PkgConfig::${family})
        # By hand, since it takes 2 GiB a rank: more elements than an int counts.
        add_custom_target(huge-mpi-${family}
                          COMMAND ${CMAKE_COMMAND} -E env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
                                  mpirun.${family} -n 2 $<TARGET_FILE:worker_mpi> huge
                          DEPENDS worker_mpi mpi-${family} USES_TERMINAL VERBATIM)
    endif()
endforeach()
