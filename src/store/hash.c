/* hash.c: the store within a process, for ranks that are threads: a table, a lock, and a word to wait on.
 *
 * Descriptors are duplicated on the way in and out, though both sides could use one number: callers close what they
 * have got, as they do with every other store. */
#include "store/backend.h"
#include "store/table.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/*   lock      guards table; never held while waiting
 *   changed   advanced after every request that may have set a key */
typedef struct hash_store {
    ls_store head;
    ls_mutex lock;
    ls_word changed;
    store_table *table;
} hash_store;

/* Fresh duplicates of `count` descriptors in `copies`; on error none. */
static ls_status duplicate(const int *descriptors, int count, int *copies) {
    for (int i = 0; i < count; i++) {
        copies[i] = LS_SYSCALL(EMFILE, fcntl(descriptors[i], F_DUPFD_CLOEXEC, 3));
        if (copies[i] >= 0) continue;
        const int failure = errno;
        while (i > 0) close(copies[--i]);
        return ls_fail_errno(LS_ERR_IO, failure, "a store cannot duplicate a descriptor");
    }
    return LS_OK;
}

/* Copies the table's answer out, while the lock keeps it. */
static ls_status copy_out(const store_answer *answer, store_reply *reply) {
    store_reply_fill(reply, answer->number, answer->value, answer->bytes);
    reply->descriptor_count = answer->descriptor_count;
    /* Fresh ones: the table closes its own when the key goes. */
    return duplicate(answer->descriptors, answer->descriptor_count, reply->descriptors);
}

static ls_status hash_call(ls_store *store, const store_request *request, store_reply *reply, int64_t deadline_ns) {
    hash_store *hash = (hash_store *)store;
    store_request owned = *request;
    int copies[STORE_MOST_DESCRIPTORS];
    /* Before the lock: the caller may close its own as soon as this returns. */
    LS_TRY(duplicate(request->descriptors, request->descriptor_count, copies));
    owned.descriptors = copies;

    ls_status status = LS_OK;
    for (bool is_in_time = true;;) {
        /* Before the look: a key that is set between the two advances the word, and the wait returns at once. */
        const uint32_t seen = atomic_load_explicit(&hash->changed, memory_order_acquire);
        ls_mutex_lock(&hash->lock);
        store_answer answer;
        status = store_table_apply(hash->table, &owned, &answer);
        if (status == LS_OK) status = copy_out(&answer, reply);
        ls_mutex_unlock(&hash->lock);
        /* A key set at the very deadline counts: so look once more after it. */
        if (status != LS_END || !is_in_time) break;
        is_in_time = ls_word_wait(&hash->changed, seen, deadline_ns);
    }
    /* All who wait look again: keys are few, and this store's ranks are threads of one process. */
    if (status == LS_OK && store_operation_sets(request->operation)) ls_word_advance(&hash->changed);
    if (status != LS_OK)
        for (int i = 0; i < owned.descriptor_count; i++) close(copies[i]);
    return status == LS_END ? LS_ERR_TIMEOUT : status;
}

static void hash_close(ls_store *store) {
    hash_store *hash = (hash_store *)store;
    store_table_close(&hash->table);
    ls_mutex_destroy(&hash->lock);
    ls_free(hash);
}

static const store_backend hash_backend = {.call = hash_call, .close = hash_close};

ls_status ls_store_open_hash(ls_store **store) {
    if (!store) return ls_fail(LS_ERR_ARGUMENT, "cannot open a store within this process: the place is NULL");
    *store = NULL;
    hash_store *hash = ls_alloc(sizeof *hash);
    if (!hash) return LS_ERR_MEMORY;
    hash->table = store_table_create();
    if (!hash->table) {
        ls_free(hash);
        return LS_ERR_MEMORY;
    }
    ls_mutex_init(&hash->lock);
    store_init(&hash->head, &hash_backend);
    /* Nobody outside this process sees it: pointers and secrets may travel through it. */
    hash->head.is_in_process = hash->head.is_private = true;
    *store = &hash->head;
    return LS_OK;
}
