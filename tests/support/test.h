/* test.h: cmocka with the headers that it wants first, and the way a test says that it cannot run. */
#ifndef LS_TEST_H
#define LS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Ends the test as skipped; `make test` lists the reason. */
#define LS_SKIP(reason)                         \
    do {                                        \
        print_message("skipped: %s\n", reason); \
        skip();                                 \
    } while (0)

#endif
