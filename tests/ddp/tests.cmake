# Scenarios train: the optimizers' room too, and the loader's.
foreach(test gradients failures wrap memory buffers options refusals)
    target_link_libraries(test_ddp_${test} PRIVATE ls_optim)
endforeach()
target_link_libraries(test_ddp_traps PRIVATE ls_optim ls_data)
