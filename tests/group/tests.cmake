# It builds the library's lower rooms with ThreadSanitizer, and once more for each plant.
set_tests_properties(group.race PROPERTIES TIMEOUT 240)
# Three backends, up to 8 ranks, every collective, type and op.
set_tests_properties(group.table PROPERTIES TIMEOUT 300)
# The oracle's arithmetic.
foreach(test collectives reduce table subgroups messages algorithms algorithms_choice hosts_plan bits)
    target_link_libraries(test_group_${test} PRIVATE m)
endforeach()
# What nothing but the environment's backend tells apart runs over connections too.
foreach(test async collectives messages several subgroups)
    add_test(NAME group.${test}_over_tcp COMMAND test_group_${test})
    set_tests_properties(group.${test}_over_tcp PROPERTIES
        TIMEOUT ${limit_s} LABELS group PROCESSORS 2 SKIP_RETURN_CODE 77 ENVIRONMENT LOCKSTEP_BACKEND=tcp)
endforeach()
