/* test_tcp_liars.c: a rank of the group that sends what does not fit, as one of another version might: whoever receives it takes
 * none of it, and says who sent what. */
#include "group/tcp_strangers.h"

#include "group/group.h"

#include <string.h>

#define COUNT 1000

typedef struct lie {
    const char *found;
    int channel; /* on which it is told; on a lane to one who awaits a broadcast, else to one who awaits a message */
    uint32_t flipped;
    uint64_t number, chunk, bytes; /* on a lane the number of the operation */
    int kind;                      /* of a note */
    uint32_t what;
} lie;

/* What rank 0 calls: a broadcast of its own, then one of rank 1's; or it awaits a message (number 0). */
static tcp_call a_call(group_kind kind, uint64_t number) {
    const backend_op op = {.number = number,
                           .call = {.kind = kind, .dtype = LS_U8, .count = COUNT, .root = number == 2}};
    return tcp_call_pack(&op);
}

static void lie_on_a_lane(int socket, const lie *told) {
    const tcp_call call = a_call(GROUP_BROADCAST, told->number);
    tcp_head head = tcp_head_make(told->number, told->chunk, told->bytes, &call);
    head.magic ^= told->flipped;
    say(socket, &head, sizeof head);
}

static void lie_in_a_note(int socket, const lie *told) {
    tcp_note note = tcp_note_make((tcp_note_kind)told->kind, told->number);
    note.magic ^= told->flipped;
    note.call = a_call(GROUP_SEND, 0);
    note.call.what |= told->what;
    say(socket, &note, sizeof note);
}

/* The message is offered when its letter is on its way. */
static void lie_in_a_letter(const tcp_link *links, const lie *told) {
    const lie offer = {.kind = TCP_OFFERS};
    tcp_letter letter = tcp_letter_make(told->number, told->bytes);
    letter.magic ^= told->flipped;
    say(links[TCP_LETTERS].socket, &letter, sizeof letter);
    lie_in_a_note(links[TCP_CONTROL].socket, &offer);
}

static void tell(const ls_rank *rank) {
    const lie *told = rank->argument;
    char data[COUNT], expected[256];
    ls_group *group = NULL;
    assert_ok(try_open_tcp(rank, 10000, &group));
    const tcp_link *links = ((const tcp_group *)group->state)->peers[1 - rank->rank].links;
    if (rank->rank == 1 && told->channel == TCP_CONTROL) lie_in_a_note(links[TCP_CONTROL].socket, told);
    if (rank->rank == 1 && told->channel == TCP_LETTERS) lie_in_a_letter(links, told);
    if (rank->rank == 1 && told->channel == TCP_FIRST_LANE) lie_on_a_lane(links[TCP_FIRST_LANE].socket, told);
    if (rank->rank == 0) {
        ls_status status = LS_OK;
        for (int i = 0; i < 2 && status == LS_OK; i++)
            status = told->channel == TCP_FIRST_LANE ? ls_group_broadcast(group, data, COUNT, LS_U8, i, NULL)
                                                     : ls_group_receive(group, data, COUNT, LS_U8, 1, 0, NULL, NULL);
        snprintf(expected, sizeof expected, "process %d) sent %s", (int)getpid(), told->found);
        assert_error_says(expected);
        assert_error_says("rank 1 (");
        assert_int_equal(status, LS_ERR_FORMAT);
        assert_ok(ls_store_set(rank->store, "it was found", "", 0));
    }
    assert_ok(ls_store_wait(rank->store, "it was found", 60000));
    ls_group_close(&group);
}

static void who_sends_what_does_not_fit_is_named(void **state) {
    (void)state;
    static const lie lies[] = {
        {"what is no data of a collective", TCP_FIRST_LANE, .number = 2, .flipped = 1, .bytes = COUNT},
        {"more or less data than its call has", TCP_FIRST_LANE, .number = 2, .bytes = COUNT + 1},
        {"more or less data than its call has", TCP_FIRST_LANE, .number = 2, .bytes = COUNT - 1},
        {"data out of order", TCP_FIRST_LANE, .number = 2, .chunk = TCP_LANES, .bytes = COUNT},
        {"data of operation 1, of which there is nothing left to receive", TCP_FIRST_LANE, .number = 1, .bytes = COUNT},
        {"another message than it was asked for", TCP_LETTERS, .flipped = 1, .bytes = COUNT},
        {"another message than it was asked for", TCP_LETTERS, .number = 1, .bytes = COUNT},
        {"another message than it was asked for", TCP_LETTERS, .bytes = COUNT + 1},
        {"a note that makes no sense", TCP_CONTROL, .flipped = 1, .kind = TCP_OFFERS},
        {"a note that makes no sense", TCP_CONTROL, .kind = TCP_OFFERS, .number = 1},
        {"a note that makes no sense", TCP_CONTROL, .kind = TCP_OFFERS, .what = 0xff00},
        {"a note that makes no sense", TCP_CONTROL, .kind = TCP_SEES, .number = 1},
        {"a note that makes no sense", TCP_CONTROL, .kind = TCP_GRANTS},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) run_ranks(2, tell, (void *)&lies[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_sends_what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
