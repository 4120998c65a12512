set_tests_properties(ranks.equality PROPERTIES TIMEOUT 600)
