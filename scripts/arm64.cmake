# The cross build for arm64: Debian's cross compiler with its C library, and beside them a folder of the other libraries
# (scripts/arm64-sysroot.sh), given as -DLS_SYSROOT=FOLDER. Tests run under qemu's emulation of a processor.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LS_SYSROOT)

# Libraries and headers come from the folder alone: this machine's are of another architecture.
set(CMAKE_FIND_ROOT_PATH ${LS_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_C_STANDARD_INCLUDE_DIRECTORIES ${LS_SYSROOT}/usr/include/aarch64-linux-gnu) # a native compiler looks there itself
set(ENV{PKG_CONFIG_LIBDIR} ${LS_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${LS_SYSROOT})
set(CMAKE_DISABLE_FIND_PACKAGE_MPI ON) # mpicc would answer with this machine's

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
