# Scenarios train: the optimizers' room too, and the loader's.
foreach(test gradients failures wrap memory buffers options refusals)
    target_link_libraries(test_ddp_${test} PRIVATE ls_optim)
endforeach()
target_link_libraries(test_ddp_traps PRIVATE ls_optim ls_data)
# ThreadSanitizer cannot see the barriers of OpenMP's threads, on which oneDNN runs: one thread then.
if(LS_SANITIZE MATCHES thread)
    set_tests_properties(ddp.memory ddp.wrap ddp.traps PROPERTIES ENVIRONMENT OMP_NUM_THREADS=1)
endif()
