# It builds the library's lower rooms with ThreadSanitizer, and once more for each plant.
set_tests_properties(group.race PROPERTIES TIMEOUT 240)
# Three backends, up to 8 ranks, every collective, type and op.
set_tests_properties(group.table PROPERTIES TIMEOUT 300)
# The oracle's arithmetic.
foreach(test reduce table subgroups messages algorithms algorithms_choice hosts_plan bits)
    target_link_libraries(test_group_${test} PRIVATE m)
endforeach()
