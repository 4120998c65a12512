/* Failures while a checkpoint is saved or loaded: a full disk, a kill, a reader at the same moment, a fault at every
 * call. */
#include "checkpoint/models.h"
#include "support/faults.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Two states of one model, `old` of which is in the file. */
typedef struct pair {
    ls_module *old, *new;
    ls_optim *old_sgd, *new_sgd;
} pair;

static pair make_pair(void) {
    pair made;
    ls_seed_set(1);
    made.old = make_net(60);
    ls_seed_set(2);
    made.new = make_net(60);
    made.old_sgd = make_sgd(made.old);
    made.new_sgd = make_sgd(made.new);
    assert_int_equal(ls_checkpoint_save(path, made.old, made.old_sgd, &(ls_checkpoint_state){.lr = 1}), LS_OK);
    return made;
}

static void close_pair(pair *made) {
    ls_optim_close(&made->old_sgd);
    ls_optim_close(&made->new_sgd);
    ls_module_close(&made->old);
    ls_module_close(&made->new);
}

static void assert_file_holds(ls_module *expected) {
    ls_module *read = make_net(60);
    ls_optim *sgd = make_sgd(read);
    ls_checkpoint_state at;
    assert_int_equal(ls_checkpoint_load(path, read, sgd, &at), LS_OK);
    assert_same_weights(read, expected);
    ls_optim_close(&sgd);
    ls_module_close(&read);
}

static void a_full_disk_leaves_the_old_checkpoint(void **state) {
    (void)state;
    pair both = make_pair();
    const struct rlimit full = {.rlim_cur = 2000, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    const ls_status status = ls_checkpoint_save(path, both.new, both.new_sgd, &(ls_checkpoint_state){.lr = 1});
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, LS_ERR_IO);
    assert_said(path);
    assert_int_equal(access(partial, F_OK), -1);
    assert_file_holds(both.old);
    close_pair(&both);
}

/* The same on a file system that is really full. */
static void a_full_file_system_leaves_the_old_checkpoint(void **state) {
    (void)state;
    if (mount("tmpfs", directory, "tmpfs", 0, "size=64k") != 0)
        LS_SKIP("mounting a small file system needs root; the limit on file sizes stood in for it");
    pair both = make_pair();
    char filler[128];
    snprintf(filler, sizeof filler, "%s/filler", directory);
    FILE *file = fopen(filler, "w");
    assert_non_null(file);
    while (fputc('x', file) != EOF && fflush(file) == 0) {}
    fclose(file);
    const ls_status status = ls_checkpoint_save(path, both.new, both.new_sgd, &(ls_checkpoint_state){.lr = 1});
    const bool is_clean = access(partial, F_OK) == -1;
    if (status == LS_ERR_IO) assert_file_holds(both.old);
    close_pair(&both);
    assert_int_equal(status, LS_ERR_IO);
    assert_said("No space left");
    assert_true(is_clean);
}

static void die(void *argument) {
    (void)argument;
    kill(getpid(), SIGKILL);
}

static void killed_at_any_point_leaves_the_old_checkpoint_or_the_new(void **state) {
    (void)state;
    static const struct {
        const char *point;
        int count;
        bool is_new;
    } points[] = {{"checkpoint.save.tensor", 1, false},
                  {"checkpoint.save.tensor", 8, false},
                  {"file.replace.written", 1, false},
                  {"file.replace.synced", 1, false},
                  {"file.replace.renamed", 1, true}};
    pair both = make_pair();
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        assert_int_equal(ls_checkpoint_save(path, both.old, both.old_sgd, &(ls_checkpoint_state){.lr = 1}), LS_OK);
        const pid_t child = fork();
        if (child == 0) {
            ls_at_point(points[i].point, -1, points[i].count, die, NULL);
            ls_checkpoint_save(path, both.new, both.new_sgd, &(ls_checkpoint_state){.lr = 1});
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_file_holds(points[i].is_new ? both.new : both.old);
    }
    /* And the next one clears up. */
    assert_int_equal(ls_checkpoint_save(path, both.new, both.new_sgd, &(ls_checkpoint_state){.lr = 1}), LS_OK);
    assert_int_equal(access(partial, F_OK), -1);
    close_pair(&both);
}

static void a_reader_never_sees_a_part(void **state) {
    (void)state;
    pair both = make_pair();
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 60; i++) {
            const bool is_new = i % 2 == 0;
            if (ls_checkpoint_save(path, is_new ? both.new : both.old, is_new ? both.new_sgd : both.old_sgd, NULL))
                _exit(1);
        }
        _exit(0);
    }
    ls_module *read = make_net(60);
    size_t size;
    uint8_t *old = snapshot(both.old, &size), *new = snapshot(both.new, &size);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        assert_int_equal(ls_checkpoint_load(path, read, NULL, NULL), LS_OK);
        uint8_t *seen = snapshot(read, &size);
        assert_true(memcmp(seen, old, size) == 0 || memcmp(seen, new, size) == 0);
        test_free(seen);
    }
    assert_int_equal(status, 0);
    test_free(old);
    test_free(new);
    ls_module_close(&read);
    close_pair(&both);
}

static void a_fault_at_any_call_of_saving_leaves_the_old_checkpoint(void **state) {
    (void)state;
    pair both = make_pair();
    assert_file_holds(both.old); /* so that the arena's free lists are as long as they get */
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        const ls_status status = ls_checkpoint_save(path, both.new, both.new_sgd, &(ls_checkpoint_state){.lr = 1});
        const bool was_met = ls_fault_was_met(), is_last = strstr(ls_last_error(), "cannot be synced") != NULL;
        ls_fault_disarm();
        if (!was_met)
            assert_int_equal(status, LS_OK);
        else {
            assert_fault_reported(status);
            assert_file_holds(is_last ? both.new : both.old);
            assert_int_equal(access(partial, F_OK), -1);
            assert_int_equal(ls_checkpoint_save(path, both.old, both.old_sgd, &(ls_checkpoint_state){.lr = 1}), LS_OK);
        }
    }
    assert_nothing_left();
    close_pair(&both);
}

static void a_fault_at_any_call_of_loading_changes_nothing(void **state) {
    (void)state;
    pair both = make_pair();
    size_t size;
    uint8_t *before = snapshot(both.new, &size);
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        ls_checkpoint_state at;
        const ls_status status = ls_checkpoint_load(path, both.new, both.new_sgd, &at);
        if (!ls_fault_was_met())
            assert_int_equal(status, LS_OK);
        else {
            assert_fault_reported(status);
            uint8_t *after = snapshot(both.new, &size);
            assert_memory_equal(before, after, size);
            test_free(after);
        }
    }
    assert_same_weights(both.old, both.new);
    assert_nothing_left();
    test_free(before);
    close_pair(&both);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_leaves_the_old_checkpoint),
        TEST(a_full_file_system_leaves_the_old_checkpoint),
        TEST(killed_at_any_point_leaves_the_old_checkpoint_or_the_new),
        TEST(a_reader_never_sees_a_part),
        TEST(a_fault_at_any_call_of_saving_leaves_the_old_checkpoint),
        TEST(a_fault_at_any_call_of_loading_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
