# ThreadSanitizer cannot see the barriers of OpenMP's threads, on which oneDNN runs: one thread then.
if(LS_SANITIZE MATCHES thread)
    set_tests_properties(nn.models PROPERTIES ENVIRONMENT OMP_NUM_THREADS=1)
endif()
