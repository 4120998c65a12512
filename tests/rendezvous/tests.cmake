# They start several processes, many times over, and wait for limits to pass.
set_tests_properties(${tests} PROPERTIES PROCESSORS 2)
set_tests_properties(rendezvous.by_hand PROPERTIES TIMEOUT 300)
