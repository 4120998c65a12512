/* A rank that combines everything in several ways and says the digest of what came out: worker_bits SEED */
#include "group/bits.h"

int main(int argc, char **argv) {
    ls_group *group = NULL;
    if (argc != 2) return 2;
    BITS_MUST(ls_group_open(&group, NULL) == LS_OK);
    printf("%llx\n", (unsigned long long)bits_of_all(group, strtoull(argv[1], NULL, 10)));
    ls_group_close(&group);
    return 0;
}
