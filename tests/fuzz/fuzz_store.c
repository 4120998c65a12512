/* The bytes that a rank sends to the launcher's store: pieces of any length into the inbox, frames out of it, requests
 * to a table, as the server does.
 *
 * covers: src/store/wire.c src/store/table.c
 *
 * Input: a length byte and that many bytes, again and again; a length of 0 hands the inbox a descriptor instead.     */
#include "store/table.h"
#include "store/wire.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take_descriptor(store_inbox *inbox) {
    if (inbox->descriptor_count < 2 * STORE_MOST_DESCRIPTORS)
        inbox->descriptors[inbox->descriptor_count++] = fcntl(0, F_DUPFD_CLOEXEC, 3);
}

/* What the server does with a frame. False: it would hang up. */
static bool serve(store_table *table, const store_frame *frame) {
    store_request request;
    store_answer answer = {0};
    const bool is_request = store_frame_request(frame, &request) == LS_OK;
    ls_status status = LS_ERR_FORMAT;
    if (is_request && frame->head.code != STORE_CANCEL) status = store_table_apply(table, &request, &answer);
    if (status != LS_OK)
        for (int i = 0; i < frame->head.descriptor_count; i++) close(frame->descriptors[i]);
    /* An answer's bytes are all there to be sent. */
    if (status == LS_OK && answer.bytes > 0) {
        unsigned char *copy = malloc(answer.bytes);
        if (copy) memcpy(copy, answer.value, answer.bytes);
        free(copy);
    }
    return is_request;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    store_inbox inbox = {0};
    store_table *table = store_table_create();
    bool is_open = table != NULL;
    while (is_open && size > 0) {
        size_t count = *data++;
        size--;
        if (count == 0) take_descriptor(&inbox);
        if (count > size) count = size;
        is_open = store_inbox_put(&inbox, data, count) == LS_OK;
        data += count;
        size -= count;
        store_frame frame;
        ls_status status = LS_OK;
        while (is_open && (status = store_inbox_next(&inbox, &frame)) == LS_OK) is_open = serve(table, &frame);
        is_open = is_open && status == LS_END;
    }
    store_inbox_close(&inbox);
    store_table_close(&table);
    return 0;
}
