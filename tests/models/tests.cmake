# The explorer. Less optimised, since what a compiler leaves in registers makes states differ that are alike.
file(GLOB explorer CONFIGURE_DEPENDS models/explore*.c)
target_sources(test_models_handover PRIVATE ${explorer})
target_compile_options(test_models_handover PRIVATE -O1)
