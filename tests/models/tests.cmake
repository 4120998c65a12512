# The explorer. Less optimised, since what a compiler leaves in registers makes states differ that are alike.
target_sources(test_models_handover PRIVATE models/explore.c)
target_compile_options(test_models_handover PRIVATE -O1)
