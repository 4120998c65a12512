/* What the launcher's tests start, by its first argument:
 *
 *   meet             a barrier over the inherited store, in which the ranks of this job alone may take part
 *   lines COUNT      COUNT numbered lines on each of standard output and error, the last without a newline
 *   long BYTES       one line of that length
 *   wrap PROGRAM ... runs a program after closing every descriptor past standard error, as careful wrappers do
 *   meet-full BYTES  writes BYTES of lines, then meets: the store has to work while nobody reads the lines           */
#include <lockstep/store.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what) {
    fprintf(stderr, "rank %s: %s: %s\n", getenv("RANK"), what, ls_last_error());
    return 1;
}

static int meet(void) {
    ls_store *store = NULL;
    int64_t arrived = 0;
    const char *world = getenv("WORLD_SIZE");
    const int64_t ranks = world ? atoll(world) : 0;
    if (ls_store_open_inherited(&store) != LS_OK) return fail("open");
    if (ls_store_add(store, "arrived", 1, &arrived) != LS_OK) return fail("add");
    if (arrived > ranks) return fail("somebody else is in our store");
    if (arrived == ranks && ls_store_set(store, "gate", "open", 4) != LS_OK) return fail("set");
    if (ls_store_wait(store, "gate", 40000) != LS_OK) return fail("wait");
    ls_store_close(&store);
    return 0;
}

static int lines(int count) {
    for (int i = 0; i < count; i++) {
        const char *end = i + 1 < count ? "\n" : "";
        fprintf(stdout, "out %d of rank %s, and some more so that buffers end within lines%s", i, getenv("RANK"), end);
        fprintf(stderr, "err %d of rank %s%s", i, getenv("RANK"), end);
    }
    return 0;
}

static int long_line(size_t bytes) {
    for (size_t i = 0; i < bytes; i++) putchar('a' + (int)(i % 26));
    putchar('\n');
    return 0;
}

static int meet_full(size_t bytes) {
    for (size_t written = 0; written < bytes; written += 64) printf("%063zu\n", written);
    fflush(stdout);
    return meet();
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "meet") == 0) return meet();
    if (argc < 3) return 2;
    if (strcmp(mode, "wrap") == 0) {
        closefrom(3);
        return execv(argv[2], argv + 2);
    }
    if (strcmp(mode, "lines") == 0) return lines(atoi(argv[2]));
    if (strcmp(mode, "long") == 0) return long_line((size_t)atoll(argv[2]));
    if (strcmp(mode, "meet-full") == 0) return meet_full((size_t)atoll(argv[2]));
    return 2;
}
