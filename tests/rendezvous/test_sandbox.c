/* Ranks in sandboxes that refuse what others allow: they work, or say at once what is missing and what to do. */
#include "rendezvous/job.h"

static const char worker[] = LS_TEST_BIN_DIR "/worker_sandbox", command[] = LS_TEST_BIN_DIR "/../bin/lockstep";

/* All of them end at once with `code`, and each says both. */
static void assert_at_once(const job *self, int code, const char *one, const char *other) {
    assert_job(self, code, one);
    assert_job(self, code, other);
    for (int i = 0; i < self->count; i++) assert_true(self->ranks[i].seconds < 20);
}

/* `ranks` of them by the launcher, whose output has what all say. */
static void launch(job *self, const char *backend, const char *ranks, const char *what, const char *which) {
    char settings[64];
    snprintf(settings, sizeof settings, "LOCKSTEP_BACKEND=%s", backend);
    *self = (job){.count = 0};
    job_start(self, settings, (const char *[]){command, "run", "-n", ranks, worker, what, which, NULL});
    job_finish(self);
}

static void what_a_sandbox_refuses_is_named_with_a_way_round(void **state) {
    (void)state;
    static const char *const calls[] = {"pidfd_open", "memfd_create"};
    for (int i = 0; i < 2; i++) {
        job self;
        launch(&self, "shm", "2", "refuse", calls[i]);
        if (self.ranks[0].exit_code == 77) LS_SKIP("the kernel takes no filter of system calls");
        assert_at_once(&self, 3, calls[i], "set LOCKSTEP_BACKEND=tcp");
        launch(&self, "tcp", "2", "refuse", calls[i]);
        assert_at_once(&self, 0, "[0] LS_OK", "[1] LS_OK");
    }
}

/* Of 4 ranks each has a dozen connections over tcp; of shared memory less. */
static void too_few_descriptors_are_named_with_the_limit_to_raise(void **state) {
    (void)state;
    job self;
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        launch(&self, is_tcp ? "tcp" : "shm", "4", "files", is_tcp ? "14" : "6");
        assert_at_once(&self, 3, "LS_ERR_IO: ", "ulimit -n");
        launch(&self, is_tcp ? "tcp" : "shm", "4", "files", "64");
        assert_at_once(&self, 0, "[0] LS_OK", "[3] LS_OK");
    }
}

/* Rank 0 alone has too few for the four connections of rank 1, which only accepts: one more each time. */
static void a_rank_that_cannot_accept_says_so_at_once(void **state) {
    (void)state;
    for (int files = 18; files <= 22; files++) {
        const int port = free_port();
        char text[8];
        job self = {.count = 0};
        snprintf(text, sizeof text, "%d", files);
        for (int rank = 0; rank < 2; rank++)
            job_start_rank(&self, rank, 2, "127.0.0.1", port, "LOCKSTEP_BACKEND=tcp",
                           (const char *[]){worker, rank ? "nothing" : "files", rank ? NULL : text, NULL});
        job_finish(&self);
        assert_non_null(strstr(self.ranks[0].text, "ulimit -n"));
        for (int rank = 0; rank < 2; rank++) assert_true(self.ranks[rank].seconds < 20);
    }
}

/* libuv, which serves the store, would abort the process. */
static void a_program_without_descriptors_is_told_so_and_not_aborted(void **state) {
    (void)state;
    for (int files = 4; files <= 6; files++) {
        char text[8];
        job self = {.count = 0};
        snprintf(text, sizeof text, "%d", files);
        job_start_rank(&self, 0, 2, "127.0.0.1", free_port(), "", (const char *[]){worker, "soft", text, NULL});
        job_finish(&self);
        assert_at_once(&self, 3, "LS_ERR_IO: ", "ulimit -n");
    }
}

/* In a network of its own whose loopback is down: what listens there is never reached. */
static void a_loopback_that_is_down_is_named(void **state) {
    (void)state;
    job self = {.count = 0};
    const char *const words[] = {"unshare", "-n", command, "run", "-n", "2", worker, "nothing", NULL};
    job_start(&self, "LOCKSTEP_BACKEND=tcp", words);
    job_finish(&self);
    if (strstr(self.ranks[0].text, "unshare failed")) LS_SKIP("no network of its own can be made here (needs root)");
    assert_at_once(&self, 3, "cannot reach rank 0 over loopback; bring this host's interface lo up", "[1] LS_ERR_IO");
    self = (job){.count = 0};
    job_start_rank(&self, 0, 2, "::1", free_port(), "", (const char *[]){"unshare", "-n", worker, "nothing", NULL});
    job_finish(&self);
    assert_at_once(&self, 3, "LS_ERR_ENVIRONMENT: ", "\"::1\" is loopback, but no address that this host has");
}

int main(void) {
    clear_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_sandbox_refuses_is_named_with_a_way_round),
        cmocka_unit_test(too_few_descriptors_are_named_with_the_limit_to_raise),
        cmocka_unit_test(a_rank_that_cannot_accept_says_so_at_once),
        cmocka_unit_test(a_program_without_descriptors_is_told_so_and_not_aborted),
        cmocka_unit_test(a_loopback_that_is_down_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
