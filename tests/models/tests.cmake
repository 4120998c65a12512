# The explorer, and the library's own code over it. Less optimised, since what a compiler leaves in registers makes states differ
# that are alike.
file(GLOB explorer CONFIGURE_DEPENDS models/explore*.c)
foreach(test IN LISTS tests)
    string(REPLACE "models." "test_models_" program ${test})
    target_sources(${program} PRIVATE ${explorer} models/library.c models/ranks.c models/scenes.c)
    target_compile_options(${program} PRIVATE -O1)
endforeach()
