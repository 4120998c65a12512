# support/threads.h, whose assertions they use, opens groups.
foreach(test file interfaces meaning prove secrets tcp)
    target_link_libraries(test_store_${test} PRIVATE ls_group)
endforeach()
set_tests_properties(store.tcp PROPERTIES PROCESSORS 2 TIMEOUT 300)
