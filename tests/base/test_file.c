/* Whole files: read as they are, replaced so that no moment and no failure shows half of one. */
#include "support/faults.h"
#include "support/test.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[64], path[96], partial[128];

static void write_old(void) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("the old content", file);
    fclose(file);
}

static int make_directory(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/lockstep-file-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/file", directory);
    snprintf(partial, sizeof partial, "%s.partial", path);
    write_old();
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static void assert_content(const char *expected) {
    uint8_t *bytes;
    size_t size;
    assert_int_equal(ls_file_read(path, &bytes, &size), LS_OK);
    assert_int_equal(size, strlen(expected));
    assert_memory_equal(bytes, expected, size);
    ls_free(bytes);
}

static ls_status replace(const char *content) {
    ls_replacement file;
    ls_status status = ls_replacement_open(&file, path);
    if (status) return status;
    status = ls_replacement_write(&file, content, strlen(content));
    if (!status) return ls_replacement_commit(&file);
    ls_replacement_discard(&file);
    return status;
}

static void a_file_is_replaced(void **state) {
    (void)state;
    assert_int_equal(replace("new"), LS_OK);
    assert_content("new");
    assert_int_equal(access(partial, F_OK), -1);
    unlink(path);
    assert_int_equal(replace("first"), LS_OK);
    assert_content("first");
    assert_int_equal(replace(""), LS_OK);
    assert_content("");

    /* A name without a directory lies in the current one. */
    char before[512];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(directory), 0);
    ls_replacement file;
    assert_int_equal(ls_replacement_open(&file, "file"), LS_OK);
    assert_int_equal(ls_replacement_write(&file, "here", 4), LS_OK);
    assert_int_equal(ls_replacement_commit(&file), LS_OK);
    assert_int_equal(chdir(before), 0);
    assert_content("here");
}

static void what_was_not_committed_is_not_seen(void **state) {
    (void)state;
    ls_replacement file;
    assert_int_equal(ls_replacement_open(&file, path), LS_OK);
    assert_int_equal(ls_replacement_write(&file, "half", 4), LS_OK);
    assert_content("the old content");
    ls_replacement_discard(&file);
    assert_content("the old content");
    assert_int_equal(access(partial, F_OK), -1);
}

static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    const struct rlimit full = {.rlim_cur = 1000, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    static char large[100000];
    memset(large, 'x', sizeof large - 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    const ls_status status = replace(large);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), path));
    assert_content("the old content");
    assert_int_equal(access(partial, F_OK), -1);
}

static void what_a_killed_writer_left_is_taken_over(void **state) {
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        ls_replacement file;
        if (ls_replacement_open(&file, path) || ls_replacement_write(&file, "a long part of a file", 21)) _exit(1);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_content("the old content");
    assert_int_equal(access(partial, F_OK), 0);
    assert_int_equal(replace("short"), LS_OK);
    assert_content("short");
    assert_int_equal(access(partial, F_OK), -1);
}

static void two_writers_at_once_do_not_mix(void **state) {
    (void)state;
    ls_replacement first, second;
    assert_int_equal(ls_replacement_open(&first, path), LS_OK);
    assert_int_equal(ls_replacement_open(&second, path), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "another process is writing it"));
    assert_int_equal(ls_replacement_write(&first, "first", 5), LS_OK);
    assert_int_equal(ls_replacement_commit(&first), LS_OK);
    assert_content("first");
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    uint8_t *bytes;
    size_t size;
    assert_int_equal(ls_file_read("/nowhere/file", &bytes, &size), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "/nowhere/file"));
    assert_null(bytes);
    assert_int_equal(ls_file_read(directory, &bytes, &size), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "is not a file"));
    /* A pipe that nobody writes to is not waited for. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ls_file_read(path, &bytes, &size), LS_ERR_IO);

    ls_replacement file;
    assert_int_equal(ls_replacement_open(&file, "/nowhere/file"), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "its directory"));
    /* A link under the temporary name could lead anywhere. */
    char elsewhere[96];
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", directory);
    assert_int_equal(symlink(elsewhere, partial), 0);
    assert_int_equal(ls_replacement_open(&file, path), LS_ERR_IO);
    assert_int_equal(access(elsewhere, F_OK), -1);
}

static void a_fault_at_any_call_leaves_the_old_file_or_the_new(void **state) {
    (void)state;
    int new_after_error = 0;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL) {
        write_old();
        const ls_status status = replace("new");
        const bool was_met = ls_fault_was_met();
        ls_fault_disarm();
        if (was_met) {
            assert_fault_reported(status);
            struct stat found;
            assert_int_equal(stat(path, &found), 0);
            /* Only the directory's sync comes after the rename. */
            if (found.st_size == 3)
                new_after_error++;
            else
                assert_content("the old content");
        } else {
            assert_int_equal(status, LS_OK);
            assert_content("new");
        }
        assert_int_equal(access(partial, F_OK), -1);
    }
    assert_int_equal(new_after_error, 1);
    assert_nothing_left();
}

/* The kernel's own files say 4096 bytes and hold fewer, as a file does that shrinks while it is read. */
static void a_file_that_ends_early_is_read_as_far_as_it_goes(void **state) {
    (void)state;
    static const char early[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (access(early, R_OK) != 0) LS_SKIP("this kernel shows no transparent_hugepage");
    errno = EIO;
    assert_int_equal(ls_file_read(early, &bytes, &size), LS_OK);
    assert_true(size > 0 && size < 4096);
    ls_free(bytes);
}

static void a_fault_at_any_call_of_reading_leaves_nothing(void **state) {
    (void)state;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL) {
        uint8_t *bytes;
        size_t size;
        const ls_status status = ls_file_read(path, &bytes, &size);
        if (ls_fault_was_met()) {
            assert_fault_reported(status);
            assert_null(bytes);
        }
        ls_free(bytes);
    }
    assert_nothing_left();
}

/* As root, a checkpoint "written" to /dev/null would otherwise put a file in its place. */
static void what_is_no_file_is_not_replaced(void **state) {
    (void)state;
    struct stat there;
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(replace("new"), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), path));
    assert_int_equal(stat(path, &there), 0);
    assert_true(S_ISFIFO(there.st_mode));
    assert_int_equal(access(partial, F_OK), -1);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(replace("new"), LS_ERR_IO);
    rmdir(path);

    /* A pipe under the temporary name is an error, not a wait for its reader. */
    write_old();
    assert_int_equal(mkfifo(partial, 0600), 0);
    alarm(10);
    assert_int_equal(replace("new"), LS_ERR_IO);
    alarm(0);
    assert_content("the old content");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_replaced),
        TEST(what_was_not_committed_is_not_seen),
        TEST(a_full_disk_leaves_the_old_file),
        TEST(what_a_killed_writer_left_is_taken_over),
        TEST(two_writers_at_once_do_not_mix),
        TEST(what_is_no_file_is_refused),
        TEST(what_is_no_file_is_not_replaced),
        TEST(a_file_that_ends_early_is_read_as_far_as_it_goes),
        TEST(a_fault_at_any_call_leaves_the_old_file_or_the_new),
        TEST(a_fault_at_any_call_of_reading_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
