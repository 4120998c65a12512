/* tools.h: the subcommands of `lockstep`. Each gets its own name as argv[0] and returns the exit code. */
#ifndef LS_TOOLS_TOOLS_H
#define LS_TOOLS_TOOLS_H

#include <lockstep/base.h>

int run_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int doctor_main(int argc, char **argv);

#endif
