/* test_tcp_meeting.c: ranks meet over tcp: with a fault at every call, with strangers at the door, with addresses that lead
 * elsewhere. */
#include "group/tcp_strangers.h"
#include "support/faults.h"
#include "support/said.h"

#include "base/error.h"
#include "store/prove.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* --- faults ----------------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    int64_t limit_ms;
    ls_status status[2];
    char text[2][LS_ERROR_TEXT_BYTES];
} outcome;

static ls_status use_group(const ls_rank *rank, int64_t limit_ms) {
    ls_group *group = NULL;
    void *memory = NULL;
    int64_t value = 1, got = 0;
    ls_work *works[2] = {NULL};
    ls_status status = try_open_tcp(rank, limit_ms, &group);
    if (status == LS_OK) status = ls_group_alloc(group, 70000, &memory);
    if (status == LS_OK) status = ls_group_all_reduce(group, memory, 15000, LS_F32, LS_SUM, NULL);
    if (status == LS_OK) status = ls_group_send(group, &value, 1, LS_I64, 1 - rank->rank, 0, &works[0]);
    if (status == LS_OK) status = ls_group_receive(group, &got, 1, LS_I64, 1 - rank->rank, 0, NULL, &works[1]);
    if (status == LS_OK) status = ls_work_wait_all(works, 2, 0);
    for (int i = 0; i < 2; i++) ls_work_close(&works[i]);
    ls_group_close(&group);
    return status;
}

static void use_and_note(const ls_rank *rank) {
    outcome *all = rank->argument;
    all->status[rank->rank] = use_group(rank, all->limit_ms);
    memcpy(all->text[rank->rank], ls_last_error(), LS_ERROR_TEXT_BYTES);
}

/* Some faults cost no more than another try; where a rank fails before it can say so, the other waits for as long as it may. */
static void a_fault_at_any_call_leaves_nothing(void **state) {
    (void)state;
    outcome all = {.limit_ms = 200};
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        ls_store *store = NULL;
        if (ls_store_open_hash(&store) != LS_OK) continue;
        run_ranks_over(store, 2, use_and_note, &all);
        ls_store_close(&store);
        for (int rank = 0; rank < 2; rank++)
            if (all.status[rank] != LS_OK) assert_true(all.text[rank][0]);
    }
    assert_nothing_left();
    all.limit_ms = 60000;
    run_ranks(2, use_and_note, &all);
    for (int rank = 0; rank < 2; rank++) assert_int_equal(all.status[rank], LS_OK);
}

static void open_and_count(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

static void a_hundred_groups_leave_no_key_and_no_descriptor(void **state) {
    (void)state;
    ls_store *store = NULL;
    int64_t before = 0, after = 0;
    assert_ok(ls_store_open_hash(&store));
    run_ranks_over(store, 3, open_and_count, NULL);
    assert_ok(ls_store_count(store, &before));
    ls_note_what_is_there();
    for (int i = 0; i < 100; i++) run_ranks_over(store, 3, open_and_count, NULL);
    assert_nothing_left();
    assert_ok(ls_store_count(store, &after));
    assert_int_equal(after, before);
    ls_store_close(&store);
}

/* However many ranks wait for one that does not come: what they ask the store does not keep it busy. */
static void looks_for_failures_grow_rare_and_end_at_the_deadline(void **state) {
    (void)state;
    backend_place place = {.world_size = 128, .deadline_ns = LS_DEADLINE_NEVER};
    int64_t slice_ms = 0, waited_ms = 0;
    int looks = 0;
    for (; waited_ms < 60000; looks++) {
        slice_ms = tcp_cards_slice_ms(&place, slice_ms);
        assert_in_range(slice_ms, looks == 0 ? 100 : 200, 2000);
        waited_ms += slice_ms;
    }
    assert_in_range(looks, 30, 40);
    place.world_size = 2;
    assert_in_range(tcp_cards_slice_ms(&place, 0), 1, 100);
    place.deadline_ns = ls_deadline_after_ms(50);
    assert_in_range(tcp_cards_slice_ms(&place, 1000), 1, 50);
    place.deadline_ns = ls_now_ns() - 1;
    assert_int_equal(tcp_cards_slice_ms(&place, 1000), 1);
}

/* --- strangers -------------------------------------------------------------------------------------------------------- */

enum { SILENT_ONES = 2000 };

static void babble(const tcp_card *card) {
    static const char request[] =
        "GET /index.html HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody who looks around\r\n"
        "Accept: */*\r\nAccept-Language: en\r\nCookie: none at all, thank you very much\r\nX-Padding: so that it is "
        "longer than a hello\r\n\r\n";
    char noise[1000];
    const int reader = knock(card), loud = knock(card);
    say(reader, request, sizeof request - 1);
    memset(noise, 0xff, sizeof noise);
    say(loud, noise, sizeof noise);
    assert_true(is_turned_away(reader));
    assert_true(is_turned_away(loud));
}

/* Ours, but of another job, and what one said that was let in. */
static void pretend(const tcp_card *card) {
    const store_credentials other = {.secret_bytes = 16, .secret = "0123456789abcdef", .job = "another job"};
    store_greeting greeting;
    store_hello hello;
    for (int channel = -1; channel < 5; channel += 5) {
        const int stranger = knock(card);
        assert_int_equal(recv(stranger, &greeting, sizeof greeting, MSG_WAITALL), sizeof greeting);
        assert_ok(store_handshake_answer(&other, &greeting, 1, channel, &hello));
        say(stranger, &hello, sizeof hello);
        assert_true(is_turned_away(stranger));
        const int replayer = knock(card);
        say(replayer, &hello, sizeof hello);
        assert_true(is_turned_away(replayer));
    }
}

/* As many descriptors as silent ones have, at both ends. */
static int allow_crowds(void **state) {
    (void)state;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit);
}

/* Rank 1 lets strangers go before it. Rank 0 waits for its connections meanwhile, since its card is there. */
static void come_after_strangers(const ls_rank *rank) {
    int silent[SILENT_ONES], kept[2];
    char log[4096];
    const int64_t start_ns = ls_now_ns();
    if (rank->rank == 1) {
        const tcp_card card = hand_in_card(rank->store);
        catch_log(kept);
        const int before = ls_count_entries("/proc/self/fd");
        for (int i = 0; i < SILENT_ONES; i++) silent[i] = knock(&card);
        /* However many come, few are let in at a time. */
        assert_in_range(ls_count_entries("/proc/self/fd") - before, SILENT_ONES,
                        SILENT_ONES + TCP_MOST_STRANGERS + 2 * TCP_CHANNELS);
        babble(&card);
        pretend(&card);
        release_log(kept, log, sizeof log);
        assert_non_null(strstr(log, " connected and was turned away: "));
        assert_ptr_equal(strchr(log, '\n'), log + strlen(log) - 1); /* of all of them one line */
    }
    ls_group *group = open_tcp(rank);
    int64_t value = 1;
    assert_ok(ls_group_all_reduce(group, &value, 1, LS_I64, LS_SUM, NULL));
    assert_int_equal(value, 2);
    if (rank->rank == 1) assert_true(ls_now_ns() - start_ns < 8 * LS_NS_PER_S);
    ls_group_close(&group);
    for (int i = 0; rank->rank == 1 && i < SILENT_ONES; i++) close(silent[i]);
}

static void strangers_are_turned_away_and_delay_nobody(void **state) {
    (void)state;
    run_ranks(2, come_after_strangers, NULL);
}

/* What one claims who knows the secret. */
typedef struct claim {
    const char *prefix; /* of the group that it belongs to */
    int host;           /* the rank that it looked for; it is rank 0 that it has found */
    int rank, channel;
    ls_status answer;
} claim;

/* Ended by one without a prefix. */
static void claim_in_vain(const ls_rank *rank) {
    if (rank->rank == 1) {
        const tcp_card card = hand_in_card(rank->store);
        for (const claim *claimed = rank->argument; claimed->prefix; claimed++) {
            const store_credentials credentials = learn_credentials(rank, claimed->prefix, claimed->host);
            const int stranger = knock(&card);
            assert_int_equal(
                store_prove(stranger, &credentials, claimed->rank, claimed->channel, ls_now_ns() + 20 * LS_NS_PER_S),
                claimed->answer);
            assert_true(is_turned_away(stranger));
        }
    }
    open_and_count(rank);
}

/* Rank 0 itself, or none. */
static void who_knows_the_secret_but_is_no_awaited_rank_is_turned_away(void **state) {
    (void)state;
    claim claims[] = {{PREFIX, 0, 0, 0, LS_ERR_PEER_LOST},  {PREFIX, 0, -1, 0, LS_ERR_PEER_LOST},
                      {PREFIX, 0, 2, 0, LS_ERR_PEER_LOST},  {PREFIX, 0, 1, -1, LS_ERR_PEER_LOST},
                      {PREFIX, 0, 1, 99, LS_ERR_PEER_LOST}, {.prefix = NULL}};
    run_ranks(2, claim_in_vain, claims);
}

/* It would be welcome, had it looked for rank 0 of this group. */
static void who_proves_for_another_group_or_another_rank_is_turned_away(void **state) {
    (void)state;
    claim claims[] = {
        {"lockstep/group/2", 0, 1, 0, LS_ERR_ENVIRONMENT}, {PREFIX, 1, 1, 0, LS_ERR_ENVIRONMENT}, {.prefix = NULL}};
    run_ranks(2, claim_in_vain, claims);
}

/* --- addresses -------------------------------------------------------------------------------------------------------- */

/* Answers whoever comes with something that is none of ours. */
static void *serve_pages(void *listener) {
    for (;;) {
        struct pollfd polled = {.fd = *(int *)listener, .events = POLLIN};
        if (ls_descriptors_wait(&polled, 1, ls_now_ns() + 20 * LS_NS_PER_S) != 1) return NULL;
        const int guest = accept(*(int *)listener, NULL, NULL);
        if (guest < 0) return NULL;
        char last = 0;
        static const char page[] = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhere is nothing to be had\n";
        (void)!send(guest, page, sizeof page - 1, MSG_NOSIGNAL);
        (void)!recv(guest, &last, 1, 0);
        close(guest);
        return NULL;
    }
}

/* Rank 0's card has two addresses before its own: nobody listens at the first, at the second something else does. */
static void find_the_right_address(const ls_rank *rank) {
    pthread_t server;
    int pages = -1;
    if (rank->rank == 1) {
        tcp_card cards[2];
        take_cards(rank->store, cards);
        cards[0].places[2] = cards[0].places[0];
        cards[0].place_count = 3;
        close(listen_somewhere(&cards[0].places[0]));
        pages = listen_somewhere(&cards[0].places[1]);
        assert_int_equal(pthread_create(&server, NULL, serve_pages, &pages), 0);
        lay_out_cards(rank->store, cards);
    }
    ls_group *group = open_tcp(rank);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
    if (rank->rank != 1) return;
    pthread_join(server, NULL);
    close(pages);
}

static void addresses_are_tried_until_one_leads_to_the_rank(void **state) {
    (void)state;
    run_ranks(2, find_the_right_address, NULL);
}

/* Rank 0 never listens where its card says. */
static void look_in_vain(const ls_rank *rank) {
    ls_group *group = NULL;
    if (rank->rank == 1) {
        tcp_card cards[2];
        take_cards(rank->store, cards);
        close(listen_somewhere(&cards[0].places[0]));
        lay_out_cards(rank->store, cards);
    }
    assert_int_equal(try_open_tcp(rank, 1500, &group), LS_ERR_TIMEOUT);
    assert_null(group);
    assert_error_says("did not meet within 1500 ms; missing: rank ");
}

/* And the next opening takes away what the failed one left. */
static void a_rank_that_cannot_be_reached_is_named(void **state) {
    (void)state;
    ls_store *store = NULL;
    int64_t keys = 0;
    assert_ok(ls_store_open_hash(&store));
    run_ranks_over(store, 2, look_in_vain, NULL);
    run_ranks_over(store, 2, open_and_count, NULL);
    assert_ok(ls_store_count(store, &keys));
    assert_int_equal(keys, 2); /* how often each has opened */
    ls_store_close(&store);
}

/* Rank 0's card as another version may write it: read as our own, it would send us beyond its end. */
static void read_a_strange_card(const ls_rank *rank) {
    static int which;
    ls_group *group = NULL;
    if (rank->rank == 1) {
        tcp_card cards[2];
        take_cards(rank->store, cards);
        if (which++)
            cards[0].place_count = TCP_MOST_PLACES + 1;
        else
            cards[0].version++;
        lay_out_cards(rank->store, cards);
    }
    assert_int_equal(try_open_tcp(rank, 20000, &group), LS_ERR_MISMATCH);
    assert_null(group);
    assert_error_says("rank 0 runs another version of Lockstep than rank");
}

static void a_rank_of_another_version_is_named(void **state) {
    (void)state;
    run_ranks(2, read_a_strange_card, NULL);
    run_ranks(2, read_a_strange_card, NULL);
}

/* Rank 2 hands in its card, and does not come. */
typedef struct absence {
    int64_t process;
    uint64_t other_space; /* of process numbers */
    ls_status status;
    const char *said;
} absence;

static void miss_rank_2(const ls_rank *rank) {
    const absence *self = rank->argument;
    ls_group *group = NULL;
    if (rank->rank == 2) {
        tcp_card card = read_card(rank->store);
        card.process = self->process;
        card.process_space ^= self->other_space;
        assert_ok(ls_store_set(rank->store, PREFIX "/card0/2", &card, sizeof card));
        return;
    }
    assert_int_equal(try_open_tcp(rank, self->status == LS_ERR_TIMEOUT ? 1500 : 30000, &group), self->status);
    assert_error_says(self->said);
}

static void who_does_not_come_is_named_alone_and_at_once_where_its_process_has_ended(void **state) {
    (void)state;
    const pid_t ended = fork();
    if (ended == 0) _exit(0);
    assert_int_equal(waitpid(ended, NULL, 0), ended);
    char died[64];
    snprintf(died, sizeof died, "process %d) died while the group was opened", (int)ended);
    const absence absences[] = {{getpid(), 0, LS_ERR_TIMEOUT, "missing: rank 2 ("},
                                {ended, 0, LS_ERR_PEER_LOST, died},
                                {ended, 1, LS_ERR_TIMEOUT, "missing: rank 2 ("}};
    for (int i = 0; i < 3; i++) run_ranks(3, miss_rank_2, (void *)&absences[i]);
}

static void be_elsewhere(const ls_rank *rank) {
    ls_group *group = NULL;
    if (rank->rank == 1) {
        tcp_card card = read_card(rank->store);
        card.host_id[0] ^= 1;
        assert_ok(ls_store_set(rank->store, PREFIX "/card0/1", &card, sizeof card));
        return;
    }
    assert_int_equal(try_open_tcp(rank, 30000, &group), LS_ERR_ENVIRONMENT);
    assert_error_says("the ranks are on several hosts and have no secret: give all of them the same file");
}

/* No secret travels through a file, which others may read. */
static void nobody_listens_beyond_the_host_without_a_secret(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-test-XXXXXX";
    ls_store *store = NULL;
    const int made = mkstemp(path);
    assert_true(made >= 0 && close(made) == 0 && unlink(path) == 0);
    assert_ok(ls_store_open_file(&store, path));
    run_ranks_over(store, 2, be_elsewhere, NULL);
    ls_store_close(&store);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_groups_leave_no_key_and_no_descriptor),
        cmocka_unit_test(a_fault_at_any_call_leaves_nothing),
        cmocka_unit_test(looks_for_failures_grow_rare_and_end_at_the_deadline),
        cmocka_unit_test_setup(strangers_are_turned_away_and_delay_nobody, allow_crowds),
        cmocka_unit_test(who_knows_the_secret_but_is_no_awaited_rank_is_turned_away),
        cmocka_unit_test(who_proves_for_another_group_or_another_rank_is_turned_away),
        cmocka_unit_test(addresses_are_tried_until_one_leads_to_the_rank),
        cmocka_unit_test(a_rank_that_cannot_be_reached_is_named),
        cmocka_unit_test(a_rank_of_another_version_is_named),
        cmocka_unit_test(who_does_not_come_is_named_alone_and_at_once_where_its_process_has_ended),
        cmocka_unit_test(nobody_listens_beyond_the_host_without_a_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
