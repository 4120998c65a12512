/* A program outside the tree, built against the installed library by test_install.sh. */
#include <lockstep/lockstep.h>

#include <stdio.h>

int main(void) {
    puts(ls_version());
    return 0;
}
