/* frame.c: making and reading frames. Pure. */
#include "group/backend/tcp/frame.h"

#include <stdio.h>
#include <string.h>

#define HEAD_MAGIC UINT32_C(0x6854534c)
#define LETTER_MAGIC UINT32_C(0x6c54534c)
#define NOTE_MAGIC UINT32_C(0x6e54534c)

_Static_assert(sizeof(tcp_call) == 64 && sizeof(tcp_head) == 88 && sizeof(tcp_letter) == 24 && sizeof(tcp_note) == 88,
               "frames travel as they lie in memory");

tcp_call tcp_call_pack(const backend_op *op) {
    const backend_op *posted = op_posted(op);
    const group_call *call = &posted->call;
    tcp_call packed = {.tag = call->tag,
                       .count = call->count,
                       .number = posted->number,
                       .what = (uint32_t)call->kind | (uint32_t)call->dtype << 8 | (uint32_t)call->op << 16,
                       .root = call->root};
    if (call->tag && call->name) snprintf(packed.name, sizeof packed.name, "%s", call->name);
    return packed;
}

group_call tcp_call_unpack(const tcp_call *packed) {
    return (group_call){.kind = (group_kind)(packed->what & 0xff),
                        .dtype = (ls_dtype)(packed->what >> 8 & 0xff),
                        .op = (ls_op)(packed->what >> 16 & 0xff),
                        .root = packed->root,
                        .count = packed->count,
                        .tag = packed->tag,
                        .name = packed->name};
}

bool tcp_calls_are_alike(const tcp_call *a, const tcp_call *b) {
    return a->tag == b->tag && a->count == b->count && a->what == b->what && a->root == b->root &&
           a->number == b->number;
}

tcp_head tcp_head_make(uint64_t operation, uint64_t chunk, size_t bytes, const tcp_call *call) {
    return (tcp_head){
        .magic = HEAD_MAGIC, .bytes = (uint32_t)bytes, .operation = operation, .chunk = chunk, .call = *call};
}

bool tcp_head_is_sound(const tcp_head *head) {
    return head->magic == HEAD_MAGIC && head->bytes > 0 && head->bytes <= TCP_CHUNK_BYTES &&
           head->call.name[TCP_NAME_BYTES - 1] == '\0';
}

tcp_letter tcp_letter_make(uint64_t id, size_t bytes) {
    return (tcp_letter){.magic = LETTER_MAGIC, .id = id, .bytes = bytes};
}

bool tcp_letter_is_sound(const tcp_letter *letter) {
    return letter->magic == LETTER_MAGIC;
}

tcp_note tcp_note_make(tcp_note_kind kind, uint64_t number) {
    return (tcp_note){.magic = NOTE_MAGIC, .kind = (uint16_t)kind, .number = number};
}

static bool is_sound(const tcp_note *note) {
    if (note->magic != NOTE_MAGIC || note->kind < TCP_LEAVES || note->kind > TCP_GRANTS) return false;
    if (note->call.name[TCP_NAME_BYTES - 1] != '\0') return false;
    return note->text_bytes == 0 || (note->kind == TCP_LEAVES && note->text_bytes < LS_ERROR_TEXT_BYTES);
}

long tcp_note_read(const void *data, size_t bytes, tcp_note *note, char *text) {
    if (bytes < sizeof *note) return 0;
    memcpy(note, data, sizeof *note);
    if (!is_sound(note)) return -1;
    const size_t length = note->text_bytes;
    if (bytes < sizeof *note + length) return 0;
    memcpy(text, (const char *)data + sizeof *note, length);
    text[length] = '\0';
    /* Sentences may hold any UTF-8, but no control characters, which could move a terminal. */
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
    return (long)(sizeof *note + length);
}
