/* withdrawal.c: keys: PREFIX/failed has the error, PREFIX/withdrawn how many ranks have withdrawn. */
#include "group/withdrawal.h"

#include <stdio.h>

void withdrawal_key(const char *prefix, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/failed", prefix);
}

static void key_of_count(const char *prefix, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/withdrawn", prefix);
}

ls_status withdrawal_read(ls_store *store, const char *prefix, int64_t timeout_ms, ls_error *said) {
    char key[LS_STORE_KEY_BYTES];
    size_t bytes = 0;
    withdrawal_key(prefix, key);
    said->status = LS_OK;
    const ls_status status = ls_store_get(store, key, said, sizeof *said, &bytes, timeout_ms);
    if (status == LS_ERR_TIMEOUT) return LS_OK;
    LS_TRY(status);
    /* Whoever can write to the store is of the job, but may run another version. */
    if (bytes != sizeof *said || said->status >= LS_OK)
        return ls_fail(LS_ERR_FORMAT, "store key \"%s\" does not hold an error", key);
    said->text[sizeof said->text - 1] = '\0';
    return LS_OK;
}

ls_status withdrawal_say(ls_store *store, const char *prefix, int world_size, ls_status status) {
    char failed[LS_STORE_KEY_BYTES], count[LS_STORE_KEY_BYTES];
    int64_t withdrawn = 0;
    ls_error error;
    ls_error_capture(&error, status);
    withdrawal_key(prefix, failed);
    key_of_count(prefix, count);
    /* Counted once it is said: the last to count comes after all that others write. */
    if (ls_store_compare_set(store, failed, NULL, 0, &error, sizeof error, NULL) == LS_OK &&
        ls_store_add(store, count, 1, &withdrawn) == LS_OK && withdrawn == world_size)
        withdrawal_forget(store, prefix);
    return ls_error_raise(&error); /* the store's own failure matters less */
}

void withdrawal_forget(ls_store *store, const char *prefix) {
    char key[LS_STORE_KEY_BYTES];
    withdrawal_key(prefix, key);
    ls_store_delete(store, key, NULL);
    key_of_count(prefix, key);
    ls_store_delete(store, key, NULL);
}
