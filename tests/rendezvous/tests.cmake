# They start several processes.
set_tests_properties(${tests} PROPERTIES PROCESSORS 2)
