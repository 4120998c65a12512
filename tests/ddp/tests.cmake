# Scenarios train: the optimizers' room too, and the loader's.
foreach(test gradients failures wrap memory buffers options refusals)
    target_link_libraries(test_ddp_${test} PRIVATE ls_optim)
endforeach()
target_link_libraries(test_ddp_traps PRIVATE ls_optim ls_data)
# ThreadSanitizer cannot see the locks and barriers inside oneDNN's library, which is not built with it: our own kernels
# then, so that what is seen is ours.
if(LS_SANITIZE MATCHES thread)
    set_tests_properties(ddp.memory ddp.wrap ddp.traps PROPERTIES ENVIRONMENT LOCKSTEP_KERNELS=reference)
endif()
