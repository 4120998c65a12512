# Scenarios train: the optimizers' room too.
foreach(test gradients failures wrap memory)
    target_link_libraries(test_ddp_${test} PRIVATE ls_optim)
endforeach()
