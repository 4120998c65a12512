# Several ranks each, and waits for limits to pass.
set_tests_properties(${tests} PROPERTIES PROCESSORS 2)
if(NOT LS_SANITIZE)
    set_tests_properties(${tests} PROPERTIES TIMEOUT 240)
endif()
# The oracle's numbers.
target_link_libraries(worker_bits PRIVATE m)
