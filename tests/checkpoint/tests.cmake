# Resuming is tested as a program does it, with the loader's position.
target_link_libraries(test_checkpoint_checkpoint PRIVATE ls_data)
