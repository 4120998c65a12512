# The test reads traces back with a JSON parser, which the trace room itself does not need.
target_link_libraries(test_trace_trace PRIVATE PkgConfig::jansson)
