/* worker_traps.c: a rank, as a process, for test_traps.c: worker_traps MODE ...
 *
 *   open              opens the group of the environment and closes it
 *   reopen            opens, all-reduces and closes a hundred times; prints what is left in the store and in this
 *                     process
 *   large MEMORY      all-reduces 64 MiB again and again, in "group" or "ordinary" memory
 *   stopped           rank 1 stops; rank 0 closes all it has meanwhile, says how long that took, and wakes rank 1
 *   exit              trains a little and ends without closing anything
 *
 * A call that fails is printed as "error STATUS: SENTENCE", and the exit code is 3.                                  */
#include "support/faults.h"

#include "base/clock.h"
#include "base/wait.h"

#include <lockstep/lockstep.h>

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(ls_status status) {
    if (status == LS_OK) return;
    printf("error %s: %s\n", ls_status_name(status), ls_last_error());
    fflush(stdout);
    exit(3);
}

static void say(const char *text) {
    puts(text);
    fflush(stdout);
}

static ls_group *open_group(void) {
    ls_group *group = NULL;
    check(ls_group_open(&group, NULL));
    return group;
}

/* --- reopen ------------------------------------------------------------------------------------------------------- */

static int count_descriptors(void) {
    DIR *entries = opendir("/proc/self/fd");
    int count = 0;
    while (entries && readdir(entries)) count++;
    if (entries) closedir(entries);
    return count;
}

static void open_and_sum(void) {
    ls_group *group = open_group();
    float value = 1;
    check(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL));
    if (value != (float)ls_group_world_size(group)) check(LS_ERR_INTERNAL);
    ls_group_close(&group);
}

/* Counted by all between two barriers, when no rank has a group of its own under way. */
static void count_left(ls_group *group, ls_store *store, int64_t *keys, int *descriptors) {
    check(ls_group_barrier(group, NULL));
    check(ls_store_count(store, keys));
    *descriptors = count_descriptors();
    check(ls_group_barrier(group, NULL));
}

static int run_reopen(void) {
    ls_store *store = NULL;
    int64_t keys_before, keys_after;
    int descriptors_before, descriptors_after;
    check(ls_store_open_inherited(&store));
    ls_group *around = open_group();
    open_and_sum();
    count_left(around, store, &keys_before, &descriptors_before);
    for (int i = 0; i < 100; i++) open_and_sum();
    count_left(around, store, &keys_after, &descriptors_after);
    printf("keys %+lld, descriptors %+d\n", (long long)(keys_after - keys_before),
           descriptors_after - descriptors_before);
    ls_group_close(&around);
    ls_store_close(&store);
    return 0;
}

/* --- large -------------------------------------------------------------------------------------------------------- */

static int run_large(bool in_group) {
    const size_t count = (size_t)16 << 20;
    ls_group *group = open_group();
    void *data = NULL;
    if (in_group)
        check(ls_group_alloc(group, count * sizeof(float), &data));
    else if (!(data = calloc(count, sizeof(float))))
        return 2;
    check(ls_group_barrier(group, NULL));
    say("ready");
    for (;;) check(ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, NULL));
}

/* --- stopped ------------------------------------------------------------------------------------------------------ */

static bool is_stopped(pid_t process) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d %*s %c", &state) != 1) state = 0;
    if (file) fclose(file);
    return state == 'T';
}

/* A net under a wrap, so that there are a duplicate, group memory and a progress thread too. */
static int run_stopped(void) {
    ls_group *group = open_group();
    ls_module *net = NULL;
    ls_ddp *ddp = NULL;
    int64_t own = getpid(), processes[2];
    check(ls_mlp_create(&net, NULL));
    check(ls_ddp_wrap(&ddp, net, group, NULL));
    check(ls_group_all_gather(group, &own, processes, 1, LS_I64, NULL));
    if (ls_group_rank(group) == 1) {
        raise(SIGSTOP);
    } else {
        while (!is_stopped((pid_t)processes[1])) ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
    }
    const int64_t start_ns = ls_now_ns();
    ls_ddp_close(&ddp);
    ls_group_close(&group);
    ls_module_close(&net);
    printf("closed in %lld ms\n", (long long)((ls_now_ns() - start_ns) / LS_NS_PER_MS));
    fflush(stdout);
    if (own == processes[0]) kill((pid_t)processes[1], SIGCONT);
    return 0;
}

/* --- exit --------------------------------------------------------------------------------------------------------- */

/* Static: what is never closed is no leak as long as it can be reached. */
static int run_exit(void) {
    static float x[64][784];
    static int64_t y[64];
    static ls_group *group;
    static ls_module *net;
    static ls_ddp *ddp;
    static ls_optim *sgd;
    static ls_loader *loader;
    ls_batch batch;
    group = open_group();
    ls_dataset set = {.count = 64, .x_dtype = LS_F32, .y_dtype = LS_I64, .x_ndim = 1, .x_dims = {784}};
    check(ls_dataset_from_arrays(&set, x, y));
    check(ls_loader_create(
        &loader, &set,
        &(ls_loader_options){.batch = 4, .rank = ls_group_rank(group), .world_size = ls_group_world_size(group)}));
    check(ls_mlp_create(&net, NULL));
    check(ls_ddp_wrap(&ddp, net, group, NULL));
    check(ls_sgd_create(&sgd, net, &(ls_sgd_options){.lr = 0.01}));
    for (int step = 0; step < 3; step++) {
        check(ls_loader_next(loader, &batch));
        ls_step_begin();
        ls_backward(ls_cross_entropy_loss(ls_module_forward(net, batch.x), batch.y));
        ls_optim_step(sgd);
        check(ls_step_end());
    }
    say("done");
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "open") == 0) {
        ls_group *group = open_group();
        ls_group_close(&group);
        return 0;
    }
    if (strcmp(mode, "reopen") == 0) return run_reopen();
    if (strcmp(mode, "large") == 0 && argc == 3) return run_large(strcmp(argv[2], "group") == 0);
    if (strcmp(mode, "stopped") == 0) return run_stopped();
    if (strcmp(mode, "exit") == 0) return run_exit();
    fprintf(stderr, "unknown mode \"%s\"\n", mode);
    return 2;
}
