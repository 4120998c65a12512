/* Ranks as plain processes, each with its variables: they meet, or all say what is wrong. */
#include "rendezvous/job.h"

#include <stdarg.h>

#define WORKER LS_TEST_BIN_DIR "/worker_rendezvous"

static void start(job *self, const char *arguments, const char *format, ...) LS_PRINTF(3, 4);
static void start(job *self, const char *arguments, const char *format, ...) {
    char settings[1024], words[128];
    const char *list[8] = {WORKER};
    va_list values;
    va_start(values, format);
    vsnprintf(settings, sizeof settings, format, values);
    va_end(values);
    snprintf(words, sizeof words, "%s", arguments);
    int count = 1;
    for (char *word = strtok(words, " "); word && count < 7; word = strtok(NULL, " ")) list[count++] = word;
    job_start(self, settings, list);
}

static void start_ranks(job *self, int ranks, const char *host, int port, const char *arguments, const char *more) {
    for (int i = ranks - 1; i >= 0; i--) /* rank 0, whom all look for, comes last */
        start(self, arguments, "RANK=%d WORLD_SIZE=%d MASTER_ADDR=%s MASTER_PORT=%d %s", i, ranks, host, port, more);
}

static void ranks_by_hand_meet_and_reduce(void **state) {
    (void)state;
    const char *const hosts[] = {"127.0.0.1", "localhost", "127.0.1.1"};
    for (size_t i = 0; i < 3; i++) {
        job self = {.count = 0};
        start_ranks(&self, 4, hosts[i], free_port(), "", "");
        job_finish(&self);
        assert_job(&self, 0, " of 4 is done");
    }
}

static void a_hundred_groups_in_turn_on_one_port(void **state) {
    (void)state;
    job self = {.count = 0};
    start_ranks(&self, 2, "127.0.0.1", free_port(), "100", "");
    job_finish(&self);
    assert_job(&self, 0, " of 2 is done");
}

static void two_groups_at_a_time_share_the_server(void **state) {
    (void)state;
    job self = {.count = 0};
    start_ranks(&self, 3, "127.0.0.1", free_port(), "10 30000 both", "");
    job_finish(&self);
    assert_job(&self, 0, " of 3 is done");
}

static void jobs_side_by_side_do_not_meet(void **state) {
    (void)state;
    job self = {.count = 0};
    for (int i = 0; i < 3; i++) start_ranks(&self, 2, "127.0.0.1", free_port(), "", "");
    job_finish(&self);
    assert_job(&self, 0, " of 2 is done");
}

/* Rank 0 serves the store, through which the others still hear and find each other. */
static void rank_0_may_end_when_its_own_part_is_done(void **state) {
    (void)state;
    static const char *const backends[] = {"LOCKSTEP_BACKEND=shm", "LOCKSTEP_BACKEND=tcp"};
    static const char *const lasts[] = {"subgroup", "barrier"};
    for (int i = 0; i < 4; i++) {
        const int port = free_port();
        job self = {.count = 0};
        for (int rank = 0; rank < 3; rank++)
            job_start_rank(&self, rank, 3, "127.0.0.1", port, backends[i % 2],
                           (const char *[]){LS_TEST_BIN_DIR "/worker_early", lasts[i / 2], NULL});
        job_finish(&self);
        assert_job(&self, 0, "LS_OK: done");
    }
}

/* A store that is stopped with it holds the others up no longer than their own limit, and a moment for their last words. */
static void while_rank_0_is_stopped_the_others_end_at_their_limit(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"open", ""},
                                           {"open", "LOCKSTEP_BACKEND=shm"},
                                           {"duplicate", "LOCKSTEP_BACKEND=shm"},
                                           {"alloc", "LOCKSTEP_BACKEND=shm"},
                                           {"barrier", "LOCKSTEP_BACKEND=shm"},
                                           {"open", "LOCKSTEP_BACKEND=tcp"},
                                           {"duplicate", "LOCKSTEP_BACKEND=tcp"}};
    job stopped = {.count = 0}, others = {.count = 0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int port = free_port();
        for (int rank = 0; rank < 3; rank++)
            job_start_rank(rank == 0 ? &stopped : &others, rank, 3, "127.0.0.1", port, cases[i][1],
                           (const char *[]){LS_TEST_BIN_DIR "/worker_stopped", cases[i][0], NULL});
    }
    job_finish(&others);
    for (int i = 0; i < stopped.count; i++) kill(stopped.ranks[i].pid, SIGKILL);
    job_finish(&stopped);
    assert_job(&others, 3, "LS_ERR_TIMEOUT: rank ");
}

/* torchrun's agent listens on MASTER_PORT itself: twice at once, with one run id. */
static void beside_torchruns_agent_another_port_is_found(void **state) {
    (void)state;
    job self = {.count = 0};
    int agents[2];
    for (int i = 0; i < 2; i++) {
        store_addresses addresses;
        assert_int_equal(store_resolve("127.0.0.1", &addresses), LS_OK);
        assert_int_equal(store_address_listen(&addresses.list[0], &agents[i]), LS_OK);
        start_ranks(&self, 2, "127.0.0.1", store_address_port(&addresses.list[0]), "",
                    "TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=none LOCAL_WORLD_SIZE=2");
    }
    job_finish(&self);
    for (int i = 0; i < 2; i++) close(agents[i]);
    assert_job(&self, 0, " of 2 is done");
}

/* --- what is wrong ------------------------------------------------------------------------------------------------ */

/* One process says at once what is wrong. */
static void expect(const char *settings, const char *one, const char *other) {
    job self = {.count = 0};
    start(&self, "", "%s", settings);
    job_finish(&self);
    assert_job(&self, 3, one);
    assert_job(&self, 3, other);
    assert_true(self.ranks[0].seconds < 20);
}

static void wrong_variables_are_named_with_their_values(void **state) {
    (void)state;
    expect("RANK=5 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", "RANK is \"5\"", "WORLD_SIZE is \"4\"");
    expect("RANK=x WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", "RANK is \"x\"", "whole number");
    expect("RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", "RANK is \"1\"", "WORLD_SIZE is not set");
    expect("WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", "WORLD_SIZE is \"4\"", "RANK is not set");
    expect("RANK=1 WORLD_SIZE=2 MASTER_PORT=29500", "MASTER_ADDR is not set", "\"29500\"");
    expect("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1", "MASTER_PORT is not set", "\"127.0.0.1\"");
    expect("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=http", "MASTER_PORT is \"http\"", "whole number");
    expect("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=65536", "MASTER_PORT is \"65536\"", "65535");
    expect("RANK=1 WORLD_SIZE=2 MASTER_ADDR=no-such-host.invalid MASTER_PORT=29500", "no-such-host.invalid", "no host");
    expect("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500",
           "LOCAL_WORLD_SIZE is \"3\"", "WORLD_SIZE is \"2\"");
    expect("RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.1.1 MASTER_PORT=29500", "\"127.0.1.1\"",
           "lo 127.0.0.1");
    expect("RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 MASTER_PORT=29500", "LOCKSTEP_SECRET_FILE",
           "LOCKSTEP_ALLOW_UNAUTHENTICATED=1");
    expect("WORLD_SIZE=3 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=a", "WORLD_SIZE is \"3\"",
           "SLURM_NTASKS is \"2\"");
    expect("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=a[", "SLURM_STEP_NODELIST", "\"a[\"");
    expect("LOCKSTEP_BACKEND=shm PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2", "PMI_SIZE is \"4\"",
           "MASTER_ADDR is not set");
}

static void different_world_sizes_are_named_on_all_ranks(void **state) {
    (void)state;
    job self = {.count = 0};
    const int port = free_port();
    for (int i = 0; i < 3; i++)
        start(&self, "", "RANK=%d WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d", i, i ? 3 : 2, port);
    job_finish(&self);
    assert_job(&self, 3, "WORLD_SIZE is \"");
    assert_job(&self, 3, "\"2\" to");
    assert_job(&self, 3, "all ranks need the same");
    for (int i = 0; i < 3; i++) assert_true(self.ranks[i].seconds < 20);
}

/* One of them would wait for the others where they never come. */
static void different_backends_are_named_on_all_ranks(void **state) {
    (void)state;
    static const char *const pairs[][2] = {{"shm", "tcp"}, {"shm", ""}};
    for (int pair = 0; pair < 2; pair++) {
        job self = {.count = 0};
        const int port = free_port();
        for (int i = 0; i < 3; i++)
            start(&self, "", "RANK=%d WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d LOCKSTEP_BACKEND=%s", i, port,
                  pairs[pair][i == 1]);
        job_finish(&self);
        assert_job(&self, 3, "the backend is to be");
        assert_job(&self, 3, "shm for rank");
        assert_job(&self, 3, pair ? "any for rank 1" : "tcp for rank 1");
        for (int i = 0; i < 3; i++) assert_true(self.ranks[i].seconds < 20);
    }
}

static void a_rank_twice_is_named_on_all_ranks(void **state) {
    (void)state;
    job self = {.count = 0};
    const int port = free_port();
    for (int i = 0; i < 3; i++)
        start(&self, "", "RANK=%d WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d", i ? 1 : 0, port);
    job_finish(&self);
    assert_job(&self, 3, "RANK is \"1\" to two processes");
}

static void a_taken_port_is_named_on_all_ranks(void **state) {
    (void)state;
    store_addresses addresses;
    int listener = -1;
    char text[32];
    assert_int_equal(store_resolve("127.0.0.1", &addresses), LS_OK);
    assert_int_equal(store_address_listen(&addresses.list[0], &listener), LS_OK);
    snprintf(text, sizeof text, "port %d", store_address_port(&addresses.list[0]));
    job self = {.count = 0};
    start_ranks(&self, 3, "127.0.0.1", store_address_port(&addresses.list[0]), "", "");
    job_finish(&self);
    assert_job(&self, 3, text);
    for (int i = 0; i < 3; i++) assert_true(self.ranks[i].seconds < 30);
    close(listener);
}

static void who_does_not_come_is_named(void **state) {
    (void)state;
    job self = {.count = 0};
    const int port = free_port();
    for (int i = 0; i < 4; i++)
        if (i != 2) start(&self, "1 4000", "RANK=%d WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d", i, port);
    job_finish(&self);
    assert_job(&self, 3, "LS_ERR_TIMEOUT");
    assert_job(&self, 3, "missing: rank 2;");
}

/* A rank that knows another secret does not come in; the others say that it is missing. */
static void a_rank_with_another_secret_stays_out(void **state) {
    (void)state;
    char paths[2][64];
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "/tmp/lockstep-secret-%d-%d", (int)getpid(), i);
        const int file = open(paths[i], O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(write(file, i ? "another secret, long enough" : "the secret of the whole job", 27), 27);
        close(file);
    }
    job self = {.count = 0};
    const int port = free_port();
    for (int i = 0; i < 3; i++)
        start(&self, "1 3000", "RANK=%d WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d LOCKSTEP_SECRET_FILE=%s", i,
              port, paths[i == 2]);
    job_finish(&self);
    assert_non_null(strstr(self.ranks[0].text, "missing: rank 2;"));
    assert_non_null(strstr(self.ranks[0].text, "turned away"));
    assert_non_null(strstr(self.ranks[1].text, "missing: rank 2;"));
    assert_non_null(strstr(self.ranks[2].text, "does not accept the secret"));
    for (int i = 0; i < 2; i++) unlink(paths[i]);

    /* With one secret they meet. */
    const int file = open(paths[0], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(file, "the secret of the whole job", 27), 27);
    close(file);
    char more[128];
    snprintf(more, sizeof more, "LOCKSTEP_SECRET_FILE=%s", paths[0]);
    job all = {.count = 0};
    start_ranks(&all, 3, "127.0.0.1", free_port(), "", more);
    job_finish(&all);
    assert_job(&all, 0, "of 3 is done");
    unlink(paths[0]);
}

/* --- deaths ------------------------------------------------------------------------------------------------------- */

/* Each of three ranks in turn, over a backend that is named, or ("") over the one that they find. */
static void kill_each_at(const char *backend, const char *point) {
    for (int killed = 0; killed < 3; killed++) {
        job self = {.count = 0};
        char more[160], name[32];
        snprintf(more, sizeof more, "LOCKSTEP_BACKEND=%s LOCKSTEP_TEST_KILL=%s:%d:1", backend, point, killed);
        snprintf(name, sizeof name, "rank %d", killed);
        /* Of a server that is gone before they found it the others know as little as of one that never was. */
        const bool is_early = killed == 0 && strncmp(point, "rendezvous.", 11) == 0 && !strstr(point, "met");
        start_ranks(&self, 3, "127.0.0.1", free_port(), is_early ? "1 2000" : "", more);
        job_finish(&self);
        for (int process = 0; process < 3; process++) {
            const bool is_killed = 2 - process == killed;
            const job_process *each = &self.ranks[process];
            if (is_killed ? each->exit_code == 128 + SIGKILL
                          : each->exit_code == 3 && strstr(each->text, name) && each->seconds < 20)
                continue;
            job_print(&self);
            fail_msg("rank %d was to be killed at %s", killed, point);
        }
    }
}

static void a_rank_killed_at_any_step_is_named_by_the_others(void **state) {
    (void)state;
    static const char *const met_by_all[] = {"rendezvous.connected", "rendezvous.checked", "rendezvous.arrived",
                                             "rendezvous.met"},
                             *const over_shm[] = {"shm.share.published", "shm.share.mapped"},
                             *const over_tcp[] = {"tcp.meeting.published", "tcp.meeting.listed",
                                                  "tcp.meeting.connected", "tcp.meeting.met"};
    for (int i = 0; i < 4; i++) kill_each_at("", met_by_all[i]);
    for (int i = 0; i < 2; i++) kill_each_at("", over_shm[i]);
    for (int i = 0; i < 4; i++) kill_each_at("tcp", over_tcp[i]);
}

int main(void) {
    clear_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_by_hand_meet_and_reduce),
        cmocka_unit_test(a_hundred_groups_in_turn_on_one_port),
        cmocka_unit_test(two_groups_at_a_time_share_the_server),
        cmocka_unit_test(jobs_side_by_side_do_not_meet),
        cmocka_unit_test(rank_0_may_end_when_its_own_part_is_done),
        cmocka_unit_test(while_rank_0_is_stopped_the_others_end_at_their_limit),
        cmocka_unit_test(beside_torchruns_agent_another_port_is_found),
        cmocka_unit_test(wrong_variables_are_named_with_their_values),
        cmocka_unit_test(different_world_sizes_are_named_on_all_ranks),
        cmocka_unit_test(different_backends_are_named_on_all_ranks),
        cmocka_unit_test(a_rank_twice_is_named_on_all_ranks),
        cmocka_unit_test(a_taken_port_is_named_on_all_ranks),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(a_rank_with_another_secret_stays_out),
        cmocka_unit_test(a_rank_killed_at_any_step_is_named_by_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
