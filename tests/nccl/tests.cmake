# The backend's declarations against the real headers, where they are. Other places: -DLS_NCCL_INCLUDE=, -DLS_CUDA_INCLUDE=.
find_path(LS_CUDA_INCLUDE cuda.h HINTS /usr/local/cuda/include)
find_path(LS_NCCL_INCLUDE nccl.h HINTS ${LS_CUDA_INCLUDE} /usr/local/cuda/include)
if(LS_CUDA_INCLUDE AND LS_NCCL_INCLUDE)
    add_library(nccl-agreement OBJECT nccl/agreement.c)
    target_include_directories(nccl-agreement PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_include_directories(nccl-agreement SYSTEM PRIVATE ${LS_NCCL_INCLUDE} ${LS_CUDA_INCLUDE})
else()
    message(STATUS "nccl.h and cuda.h are not both here: the nccl backend's declarations are not compared with them")
endif()

# One library stands in for NCCL and for CUDA's driver, under both names. Tests have its folder first in their search path
# (an old-style RPATH comes before LD_LIBRARY_PATH), so that they never meet a real one.
set(stand_in_folder ${CMAKE_BINARY_DIR}/tests/nccl-stand-in)
add_library(nccl-stand-in SHARED nccl/stand_in_cuda.c nccl/stand_in_memory.c nccl/stand_in_nccl.c nccl/stand_in_carry.c)
target_include_directories(nccl-stand-in PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(nccl-stand-in PRIVATE ls_base m)
set_target_properties(nccl-stand-in PROPERTIES C_VISIBILITY_PRESET default LIBRARY_OUTPUT_DIRECTORY ${stand_in_folder})
add_custom_command(TARGET nccl-stand-in POST_BUILD VERBATIM
                   COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE_NAME:nccl-stand-in> libnccl.so.2
                   COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE_NAME:nccl-stand-in> libcuda.so.1
                   WORKING_DIRECTORY ${stand_in_folder})
foreach(test collectives memory failures opening)
    if(NOT TARGET test_nccl_${test})
        continue()
    endif()
    target_link_libraries(test_nccl_${test} PRIVATE nccl-stand-in m)
    target_link_options(test_nccl_${test} PRIVATE -Wl,--disable-new-dtags)
endforeach()
if(TARGET test_nccl_absent)
add_dependencies(test_nccl_absent nccl-stand-in)
target_compile_definitions(test_nccl_absent PRIVATE LS_STAND_IN="${stand_in_folder}/libnccl.so.2")
endif()
# Thousands of collectives between threads, which a sanitizer on a busy machine makes slow.
set_tests_properties(nccl.collectives PROPERTIES TIMEOUT 240)
