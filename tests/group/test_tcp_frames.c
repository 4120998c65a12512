/* What ranks say to each other over tcp is judged as if an enemy had sent it: lengths are capped, nothing that makes no sense is
 * taken. tests/fuzz/fuzz_tcp.c tries what nobody thought of. */
#include "support/test.h"

#include "group/backend/tcp/frame.h"

#include <string.h>

static tcp_head a_head(void) {
    const backend_op op = {.number = 7,
                           .call = {.kind = GROUP_BROADCAST, .dtype = LS_F32, .count = 9, .tag = 5, .name = "bucket"}};
    const tcp_call call = tcp_call_pack(&op);
    return tcp_head_make(7, 3, TCP_CHUNK_BYTES, &call);
}

static void a_head_that_lies_is_not_sound(void **state) {
    (void)state;
    tcp_head head = a_head();
    assert_true(tcp_head_is_sound(&head));
    head.bytes = TCP_CHUNK_BYTES + 1;
    assert_false(tcp_head_is_sound(&head));
    head.bytes = 0;
    assert_false(tcp_head_is_sound(&head));
    head = a_head();
    head.magic ^= 1;
    assert_false(tcp_head_is_sound(&head));
    head = a_head();
    memset(head.call.name, 'x', sizeof head.call.name);
    assert_false(tcp_head_is_sound(&head));
}

static char frame[TCP_MOST_NOTE_BYTES + 1];

/* A note and as much text as it says, of which `bytes` have come. */
static long read_note(const tcp_note *note, const char *text, size_t bytes, char *found) {
    tcp_note read;
    memset(frame, 'x', sizeof frame);
    memcpy(frame, note, sizeof *note);
    snprintf(frame + sizeof *note, sizeof frame - sizeof *note, "%s", text);
    return tcp_note_read(frame, bytes, &read, found);
}

static void a_note_is_read_once_it_is_whole(void **state) {
    (void)state;
    static const char sentence[] = "rank 1 h\303\266rt \033[2J auf\n";
    char found[LS_ERROR_TEXT_BYTES] = "";
    tcp_note note = tcp_note_make(TCP_LEAVES, 12);
    note.text_bytes = sizeof sentence - 1;
    const size_t whole = sizeof note + note.text_bytes;
    for (size_t bytes = 0; bytes < whole; bytes++) assert_int_equal(read_note(&note, sentence, bytes, found), 0);
    assert_int_equal(read_note(&note, sentence, sizeof frame, found), whole);
    assert_string_equal(found, "rank 1 h\303\266rt ?[2J auf?"); /* nothing that no terminal should get */
    note = tcp_note_make(TCP_CALLS, 12);
    assert_int_equal(read_note(&note, "", sizeof frame, found), sizeof note);
    assert_string_equal(found, "");
}

/* From `kind`, with a text of so many bytes. */
static long read_kind(int kind, size_t text_bytes) {
    static char found[LS_ERROR_TEXT_BYTES];
    tcp_note note = tcp_note_make((tcp_note_kind)kind, 1);
    note.text_bytes = (uint16_t)text_bytes;
    return read_note(&note, "", sizeof frame, found);
}

static void a_note_that_lies_is_none(void **state) {
    (void)state;
    char found[LS_ERROR_TEXT_BYTES];
    for (int kind = TCP_LEAVES; kind <= TCP_GRANTS; kind++) {
        assert_true(read_kind(kind, 0) > 0);
        assert_int_equal(read_kind(kind, 1) > 0, kind == TCP_LEAVES);
    }
    assert_int_equal(read_kind(TCP_LEAVES - 1, 0), -1);
    assert_int_equal(read_kind(TCP_GRANTS + 1, 0), -1);
    assert_true(read_kind(TCP_LEAVES, LS_ERROR_TEXT_BYTES - 1) > 0);
    assert_int_equal(read_kind(TCP_LEAVES, LS_ERROR_TEXT_BYTES), -1);
    assert_int_equal(read_kind(TCP_LEAVES, UINT16_MAX), -1);
    tcp_note note = tcp_note_make(TCP_CALLS, 1);
    memset(note.call.name, 'x', sizeof note.call.name);
    assert_int_equal(read_note(&note, "", sizeof frame, found), -1);
    note = tcp_note_make(TCP_CALLS, 1);
    note.magic ^= 1;
    assert_int_equal(read_note(&note, "", sizeof frame, found), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_that_lies_is_not_sound),
        cmocka_unit_test(a_note_is_read_once_it_is_whole),
        cmocka_unit_test(a_note_that_lies_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
