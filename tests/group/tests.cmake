# It builds the library's lower rooms with ThreadSanitizer, and once more for each plant.
set_tests_properties(group.race PROPERTIES TIMEOUT 240)
