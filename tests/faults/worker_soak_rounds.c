/* worker_soak_rounds.c: the soak of process groups: worker_soak_rounds SECONDS [SEED]
 *
 * Round after round starts 2 to 8 ranks that play a random program (worker_soak.c) over shm or tcp, and in most of them one fault
 * happens at a random moment. Whatever it is: no result is wrong, everyone else ends within the limit and some, with an error
 * that tells whose fault it was, and nothing is left behind. The first round that breaks this prints what each rank said and ends
 * the soak. With a SEED that round alone is run. */
#include "faults/kills.h"

enum { LIMIT_MS = 8000, SLACK_MS = 20000, MOST_RANKS = 8, ENDLESS = 100000000 };
enum { NONE, SHORT_STOP, LEAVE, EXIT, ABORT, KILL, KILL_TOO, LONG_STOP, FAULTS };

static const char *const fault_names[FAULTS] = {"no fault", "short stop", "leave", "exit",
                                                "abort",    "kill",       "kill",  "long stop"};

typedef struct plan {
    unsigned seed;
    const char *backend;
    int ranks, fault, fault_rank, after_ms, step;
} plan;

static plan now;

static void draw(unsigned seed) {
    srand(seed);
    now = (plan){.seed = seed, .backend = rand() % 2 ? "tcp" : "shm", .ranks = 2 + rand() % (MOST_RANKS - 1)};
    now.fault = rand() % FAULTS;
    now.fault_rank = rand() % now.ranks;
    now.after_ms = rand() % 1500;
    now.step = rand() % 60;
    printf("seed %u: %d ranks over %s, %s of rank %d after %d ms or %d steps\n", seed, now.ranks, now.backend,
           fault_names[now.fault], now.fault_rank, now.after_ms, now.step);
    fflush(stdout);
}

static bool is_stop(void) {
    return now.fault == SHORT_STOP || now.fault == LONG_STOP;
}

static void inject(ls_ranks *ranks) {
    if (!is_stop() && now.fault != KILL && now.fault != KILL_TOO) return;
    ls_sleep_until(ls_now_ns() + now.after_ms * LS_NS_PER_MS);
    ls_ranks_kill(ranks, now.fault_rank, is_stop() ? SIGSTOP : SIGKILL);
    if (!is_stop()) return;
    ls_sleep_until(ls_now_ns() + (now.fault == SHORT_STOP ? now.after_ms : 2 * LIMIT_MS) * LS_NS_PER_MS);
    ls_ranks_kill(ranks, now.fault_rank, SIGCONT);
}

/* Whether `rank` ended as it should. Who waits for a stopped rank may be missed in its place. */
static bool ended_well(ls_ranks *ranks, int rank) {
    const int code = ls_ranks_exit_code(ranks, rank);
    const char *said = ls_ranks_output(ranks, rank);
    char process[32];
    snprintf(process, sizeof process, "process %d)", (int)ls_ranks_pid(ranks, now.fault_rank));
    const bool is_own = rank == now.fault_rank;
    /* Only a rank that does not answer costs the limit. */
    if (now.fault != LONG_STOP && strstr(said, "; missing: ")) return false;
    switch (now.fault) {
    case NONE:
    case SHORT_STOP: return code == 0 && strstr(said, "done");
    case LEAVE:
    case EXIT: return is_own ? code == 0 : code == 3 && strstr(said, process);
    case ABORT: return code == 3 && strstr(said, "error LS_ERR_ABORTED") && strstr(said, "the soak's abort");
    case LONG_STOP:
        return code == 3 && (is_own || strstr(said, "error LS_ERR_ABORTED") || strstr(said, "error LS_ERR_TIMEOUT"));
    default: return is_own ? code == 128 + SIGKILL : code == 3 && strstr(said, process);
    }
}

static ls_ranks *start(void) {
    const bool ends = now.fault == NONE || now.fault == SHORT_STOP;
    const bool is_its_own_doing = now.fault == LEAVE || now.fault == EXIT || now.fault == ABORT;
    char numbers[5][16];
    const long long values[] = {now.seed, ends ? 100 : ENDLESS, LIMIT_MS, now.fault_rank, now.step};
    for (int i = 0; i < 5; i++) snprintf(numbers[i], sizeof numbers[i], "%lld", values[i]);
    const char *arguments[] = {numbers[0], numbers[1], numbers[2], is_its_own_doing ? fault_names[now.fault] : "none",
                               numbers[3], numbers[4], NULL};
    assert_int_equal(setenv("LOCKSTEP_BACKEND", now.backend, 1), 0);
    return ls_ranks_start(&(ls_ranks_options){
        .ranks = now.ranks, .program = "worker_soak", .arguments = arguments, .limit_ms = 2 * LIMIT_MS + SLACK_MS});
}

static void assert_ended_well(ls_ranks *ranks) {
    int bad = 0;
    for (int rank = 0; rank < now.ranks; rank++) {
        if (ended_well(ranks, rank)) continue;
        bad++;
        print_error("rank %d (process %d) did not end as it should\n", rank, (int)ls_ranks_pid(ranks, rank));
    }
    if (bad) ls_ranks_print(ranks);
    assert_int_equal(bad, 0);
}

static void a_round_ends_as_it_should(void **state) {
    (void)state;
    const int shared_memory = count_entries("/dev/shm", "lockstep");
    pid_t processes[MOST_RANKS] = {0};
    ls_ranks *ranks = start();
    for (int rank = 0; rank < now.ranks; rank++) processes[rank] = ls_ranks_pid(ranks, rank);
    inject(ranks);
    ls_ranks_finish(ranks);
    assert_ended_well(ranks);
    ls_ranks_close(&ranks);
    for (int rank = 0; rank < now.ranks; rank++) assert_int_equal(kill(processes[rank], 0), -1);
    assert_int_equal(count_entries("/dev/shm", "lockstep"), shared_memory);
    assert_int_equal(count_entries(temporary, ""), 0);
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) return 2;
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_round_ends_as_it_should)};
    const int64_t end_ns = ls_now_ns() + strtoll(argv[1], NULL, 10) * LS_NS_PER_S;
    unsigned seed = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : (unsigned)time(NULL);
    if (!make_temporary()) return 1;
    cmocka_set_message_output(CM_OUTPUT_TAP); /* the shortest */
    int rounds = 0, failed = 0;
    do {
        draw(seed++);
        failed = cmocka_run_group_tests(tests, NULL, NULL);
        rounds++;
    } while (!failed && argc == 2 && ls_now_ns() < end_ns);
    remove_temporary();
    if (failed)
        printf("the soak failed; the same round again: make soak SOAK_SEED=%u\n", now.seed);
    else
        printf("%d rounds ended as they should\n", rounds);
    return failed;
}
