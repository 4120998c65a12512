/* fuzz_handshake.c: any bytes as each of the three records by which a store's client and server know each other.
 * covers: src/store/handshake.c
 *
 * Input: one byte that says which record it is, then what is laid over an honest one, from a place on. */
#include "store/handshake.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Lays the input over the record. Whether that changed it. */
static bool lay_over(void *record, size_t bytes, const uint8_t *data, size_t size) {
    if (size == 0) return false;
    const size_t place = data[0] % bytes;
    if (--size > bytes - place) size = bytes - place;
    const bool has_changed = memcmp((char *)record + place, data + 1, size) != 0;
    memcpy((char *)record + place, data + 1, size);
    return has_changed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const store_credentials own = {.secret_bytes = 16, .secret = "0123456789abcdef", .job = "job"};
    store_greeting greeting;
    store_hello hello;
    store_verdict verdict;
    if (size == 0 || store_handshake_greet(&greeting) != LS_OK) return 0;
    const int which = data[0] % 3;
    store_greeting told = greeting;
    const bool is_other_greeting = which == 0 && lay_over(&told, sizeof told, data + 1, size - 1);
    if (store_handshake_answer(&own, &told, 3, 0, &hello) != LS_OK) return 0;
    store_hello heard = hello;
    const bool is_other_hello = which == 1 && lay_over(&heard, sizeof heard, data + 1, size - 1);
    if (store_handshake_judge(&own, &greeting, &heard, &verdict) != LS_OK) return 0;
    assert(memchr(heard.host, '\0', sizeof heard.host));
    for (const char *at = heard.host; *at; at++) assert(*at >= ' ' && *at <= '~');
    assert((verdict.code == STORE_WELCOME) == (!is_other_greeting && !is_other_hello));

    store_verdict read = verdict;
    const bool is_other_verdict = which == 2 && lay_over(&read, sizeof read, data + 1, size - 1);
    read.unused = verdict.unused;
    const bool is_welcome = store_handshake_check(&own, &told, &hello, &read) == LS_OK;
    if (is_welcome) assert(verdict.code == STORE_WELCOME && memcmp(&read, &verdict, sizeof read) == 0);
    if (!is_other_verdict) assert(is_welcome == (verdict.code == STORE_WELCOME));
    return 0;
}
