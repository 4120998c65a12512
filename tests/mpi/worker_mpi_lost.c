/* Ranks over MPI that do not do as the others, as part.h runs it. What MPI has begun of a lost group's operation it may still
 * do, so buffers are static. */
#include "group/post.h"
#include "mpi/part.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* A message of another length; one to a rank that has left, and one from anyone when all have. */
static void check_lost_messages(void) {
    ls_group *group = open_group(0), *second = open_group(0), *third = open_group(0);
    static int64_t values[2] = {0};
    if (rank == 0)
        MUST(ls_group_send(group, values, 1, LS_I64, 1, 3, NULL) == LS_OK);
    else if (rank == 1)
        MUST_FAIL(ls_group_receive(group, values, 2, LS_I64, 0, 3, NULL, NULL), LS_ERR_MISMATCH,
                  "a message of 8 bytes came from rank 0, not 16");
    if (rank == 1) ls_group_close(&second);
    if (rank != 0) ls_group_close(&third);
    if (rank == 0) {
        MUST_FAIL(ls_group_receive(second, values, 1, LS_I64, 1, 0, NULL, NULL), LS_ERR_PEER_LOST, "rank 1 left");
        MUST_FAIL(ls_group_receive(third, values, 1, LS_I64, LS_ANY_RANK, 0, NULL, NULL), LS_ERR_PEER_LOST, "left");
    }
    ends_lost = true;
    ls_group_close(&group);
    ls_group_close(&second);
    ls_group_close(&third);
}

static void check_mismatch(void) {
    ls_group *group = open_group(0);
    static float values[8] = {0};
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    const ls_status status = rank == 1 ? ls_group_all_reduce(group, values, 8, LS_F32, LS_SUM, NULL)
                                       : ls_group_broadcast(group, values, 7, LS_F32, 0, NULL);
    MUST_FAIL(status, LS_ERR_MISMATCH,
              "rank 0 called broadcast of 7 f32 from rank 0, rank 1 all-reduce of 8 f32 sum, operation 2");
    ls_group_close(&group);
    ends_lost = true;
}

static void check_mismatched_tags(void) {
    ls_group *group = open_group(0);
    static float value;
    const group_call call = {.kind = GROUP_ALL_REDUCE,
                             .dtype = LS_F32,
                             .count = 1,
                             .data = &value,
                             .tag = rank == 0 ? 0x302 : 0x402,
                             .name = "bucket 0"};
    MUST_FAIL(group_post(group, &call, NULL), LS_ERR_MISMATCH, "tag 0x302");
    ls_group_close(&group);
    ends_lost = true;
}

/* Rank 0 sends rank 2 less than that expects: all ranks learn it. */
static void check_uneven(void) {
    ls_group *group = open_group(0);
    static uint8_t send[8] = {0}, receive[8] = {0};
    const size_t one[] = {1, 1, 1}, two[] = {2, 1, 1};
    const ls_status status = ls_group_all_to_all_uneven(group, send, one, receive, rank == 2 ? two : one, LS_U8, NULL);
    const char *sentence = "rank 0 sends 1 elements to rank 2, which expects 2 of it";
    if (status == LS_OK)
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_MISMATCH, sentence);
    else
        MUST_FAIL(status, LS_ERR_MISMATCH, sentence);
    ends_lost = true;
    ls_group_close(&group);
}

static void check_left(void) {
    ls_group *group = open_group(0);
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    if (rank != 1) {
        const int64_t start_ns = ls_now_ns();
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_PEER_LOST, "rank 1 (");
        MUST(strstr(ls_last_error(), "left the group before it had done its part of operation 2, barrier"));
        MUST(ls_now_ns() - start_ns < 20 * LS_NS_PER_S);
    }
    ls_group_close(&group);
    ends_lost = true;
}

/* The last operation of a rank that closes counts, also for those that come to it late. */
static void check_early_leaver(void) {
    for (int i = 0; i < 20; i++) {
        ls_group *group = open_group(0);
        float value = 1;
        if (rank == 2) nap_ms(20);
        MUST(ls_group_broadcast(group, &value, 1, LS_F32, 0, NULL) == LS_OK);
        MUST(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL) == LS_OK);
        ls_group_close(&group);
    }
}

static void *abort_it(void *argument) {
    nap_ms(200);
    ls_group_abort(argument, "the test says so");
    return NULL;
}

/* Rank 0 aborts while its other thread, and all peers, wait for rank 1. */
static void check_abort(void) {
    ls_group *group = open_group(0);
    pthread_t thread = 0;
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    if (rank == 0) pthread_create(&thread, NULL, abort_it, group);
    if (rank != 1)
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_ABORTED, "rank 0 aborted the group: the test says so");
    else
        nap_ms(1000);
    /* The others had done their part of the operation that they waited for; of no later one. */
    if (rank == 1 && ls_group_barrier(group, NULL) == LS_OK)
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_ABORTED, "the test says so");
    if (rank == 0) pthread_join(thread, NULL);
    ls_group_close(&group);
    ends_lost = true;
}

static void check_limit(void) {
    ls_group *group = open_group(500);
    if (rank != 1)
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_ABORTED,
                  "operation 1, barrier, was not complete within 500 ms");
    else
        nap_ms(1500);
    ls_group_close(&group);
    ends_lost = true;
}

static void check_absent(void) {
    ls_group *group = NULL;
    const char *own_rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!own_rank) own_rank = getenv("PMI_RANK");
    MUST(own_rank != NULL);
    rank = own_rank ? atoi(own_rank) : 0;
    if (rank == 1) {
        /* MPI is up, but the group is not opened. */
        setenv("LOCKSTEP_BACKEND", "carrier pigeon", 1);
        MUST_FAIL(ls_group_open(&group, NULL), LS_ERR_ENVIRONMENT, "LOCKSTEP_BACKEND is \"carrier pigeon\"");
        setenv("LOCKSTEP_BACKEND", "mpi", 1);
        MUST_FAIL(ls_group_open(&group, &(ls_group_options){.rank = 5, .world_size = 77}), LS_ERR_ARGUMENT,
                  "to MPI this process is rank 1 of");
        nap_ms(1500);
    } else {
        MUST_FAIL(ls_group_open(&group, &(ls_group_options){.timeout_ms = 500}), LS_ERR_TIMEOUT, "opened the group");
    }
    MUST(!group);
    ends_lost = true;
}

/* Rank 1 goes while rank 0 waits for it, in two ways. MPI's launcher ends the job. */
static void check_death(void) {
    ls_group *group = open_group(0);
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    if (rank == 1) kill(getpid(), SIGKILL);
    ls_group_barrier(group, NULL);
    nap_ms(90000);
}

static void check_exit(void) {
    ls_group *group = open_group(0);
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    if (rank == 1) exit(3);
    ls_group_barrier(group, NULL);
    nap_ms(90000);
}

/* Of two groups, which lack another rank each, every rank that waits writes a file. */
static void check_flight(void) {
    ls_group *first = open_group(500), *second = open_group(500);
    static float narrow[10] = {0};
    static double wide[20] = {0};
    MUST(ls_group_barrier(second, NULL) == LS_OK);
    if (rank != 1)
        MUST_FAIL(ls_group_all_reduce(first, narrow, 10, LS_F32, LS_SUM, NULL), LS_ERR_ABORTED, "operation 1, all-red");
    if (rank != 2)
        MUST_FAIL(ls_group_all_reduce(second, wide, 20, LS_F64, LS_SUM, NULL), LS_ERR_ABORTED, "operation 2, all-red");
    ends_lost = true;
}

int main(int argc, char **argv) {
    static const part parts[] = {
        {"messages", check_lost_messages},
        {"mismatch", check_mismatch},
        {"mismatched-tags", check_mismatched_tags},
        {"uneven", check_uneven},
        {"left", check_left},
        {"early-leaver", check_early_leaver},
        {"abort", check_abort},
        {"limit", check_limit},
        {"absent", check_absent},
        {"death", check_death},
        {"exit", check_exit},
        {"flight", check_flight},
    };
    return run_part(parts, sizeof parts / sizeof parts[0], argc, argv);
}
