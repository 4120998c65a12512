/* file.c: a store in a file that several processes see, also over a network's file system.
 *
 *     header | request | request | ...           requests as in store/wire.h, each of which has changed the keys
 *
 * Every process replays the file into a table of its own (store/table.h), under a lock, before each request, and
 * appends its own where that changes something. The header says where the requests begin and end: what a killed
 * process has written only half is outside and gets overwritten.
 *
 * A log that is past a MiB and four times as long as what it comes to is written anew, in the room before its
 * beginning or behind its end, and takes effect as the header changes: so the file stays within some ten times its
 * content, and a kill at any moment leaves the old log or the new one.
 *
 * Locks are of the open file (F_OFD_SETLK), so the kernel drops those of a process that dies. One byte guards the
 * content; another is held, shared, by each process that has the store open. Whoever opens it and finds itself alone
 * begins anew: so what a killed run left behind harms nobody. Whoever closes it as the last removes the file. */
#include "store/credentials.h"
#include "store/exchange.h"
#include "store/table.h"
#include "store/wire.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/live.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A network's file system tells nobody of a change: who waits looks again, soon at first, then at the pace of
 * people. */
enum { LOOK_FIRST_US = 200, LOOK_LAST_US = 20000, LOCK_LIMIT_MS = 30000, READ_BYTES = 65536 };
enum { LEAST_LOG_BYTES = 1 << 20, LOG_TO_CONTENT = 4 };

/* The bytes that are locked lie in the header; locks do not hinder reading and writing. */
enum { CONTENT_BYTE = 0, PRESENCE_BYTE = 1 };

typedef struct file_header {
    char magic[8];
    uint64_t generation; /* of the content: another one begins anew */
    uint64_t begin, end; /* of the whole requests */
} file_header;

static const char header_magic[8] = "lstore2f";

/*   lock      guards is_busy alone; never held across a wait
 *   is_busy   a thread of this process uses what is below, since locks of the file do not part threads
 *   changed   advanced when it no longer does */
typedef struct file_store {
    ls_store head;
    ls_live live;
    ls_mutex lock;
    ls_word changed;
    bool is_busy;
    int file;
    uint64_t generation, begin, read_to; /* what the table has seen */
    uint64_t look_at;                    /* the log's length from which it may be worth writing it anew */
    store_table *table;
    store_inbox inbox;
    char path[];
} file_store;

/* --- locks -------------------------------------------------------------------------------------------------------- */

/* Never one that waits in the kernel: that has no limit, and cannot be interrupted on every file system. */
static int set_lock(const file_store *store, short type, off_t byte) {
    struct flock wanted = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return LS_SYSCALL(ENOLCK, fcntl(store->file, F_OFD_SETLK, &wanted));
}

static void pause_for(int *pause_us, int64_t deadline_ns) {
    int64_t until_ns = ls_now_ns() + *pause_us * INT64_C(1000);
    if (until_ns > deadline_ns) until_ns = deadline_ns;
    ls_sleep_until(until_ns);
    *pause_us = *pause_us * 2 > LOOK_LAST_US ? LOOK_LAST_US : *pause_us * 2;
}

/* The content's lock; a holder has it for a moment only, unless it is stopped. */
static ls_status lock_content(file_store *store, short type) {
    const int64_t deadline_ns = ls_deadline_after_ms(LOCK_LIMIT_MS);
    int pause_us = LOOK_FIRST_US;
    while (set_lock(store, type, CONTENT_BYTE) != 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return ls_fail_errno(LS_ERR_IO, errno, "cannot lock the store in \"%s\"", store->path);
        if (ls_now_ns() > deadline_ns)
            return ls_fail(LS_ERR_IO,
                           "the store in \"%s\" has been locked for %d ms: is a process that uses it stopped?",
                           store->path, LOCK_LIMIT_MS);
        pause_for(&pause_us, deadline_ns);
    }
    return LS_OK;
}

static void unlock_content(const file_store *store) {
    struct flock wanted = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = CONTENT_BYTE, .l_len = 1};
    fcntl(store->file, F_OFD_SETLK, &wanted);
}

/* Among the threads of this process. */
static ls_status take(file_store *store, int64_t deadline_ns) {
    for (bool is_in_time = true;;) {
        const uint32_t seen = atomic_load_explicit(&store->changed, memory_order_acquire);
        ls_mutex_lock(&store->lock);
        const bool is_ours = !store->is_busy;
        store->is_busy = true;
        ls_mutex_unlock(&store->lock);
        if (is_ours) return LS_OK;
        if (!is_in_time) return LS_ERR_TIMEOUT;
        is_in_time = ls_word_wait(&store->changed, seen, deadline_ns);
    }
}

static void give_back(file_store *store) {
    ls_mutex_lock(&store->lock);
    store->is_busy = false;
    ls_mutex_unlock(&store->lock);
    ls_word_advance(&store->changed);
}

/* --- content ------------------------------------------------------------------------------------------------------ */

static ls_status write_at(const file_store *store, const void *bytes, size_t count, uint64_t offset) {
    const ssize_t written = LS_SYSCALL(ENOSPC, pwrite(store->file, bytes, count, (off_t)offset));
    if (written == (ssize_t)count) return LS_OK;
    if (written >= 0) errno = ENOSPC;
    return ls_fail_errno(LS_ERR_IO, errno, "cannot write the store in \"%s\"", store->path);
}

static ls_status fail_format(const file_store *store) {
    return ls_fail(LS_ERR_FORMAT, "\"%s\" is no store of Lockstep's, or was changed by something else; remove it",
                   store->path);
}

static ls_status start_table(file_store *store, const file_header *header) {
    store_table_close(&store->table);
    store_inbox_close(&store->inbox);
    store->generation = header->generation;
    store->begin = store->read_to = header->begin;
    /* Known anew when this process has looked. */
    store->look_at = LEAST_LOG_BYTES;
    store->table = store_table_create();
    return store->table ? LS_OK : LS_ERR_MEMORY;
}

/* Applies the requests that have come in whole. */
static ls_status replay(file_store *store) {
    store_frame frame;
    store_request request;
    store_answer answer;
    ls_status status;
    while ((status = store_inbox_next(&store->inbox, &frame)) == LS_OK) {
        LS_TRY(store_frame_request(&frame, &request));
        if (!store_operation_sets(request.operation) && request.operation != STORE_DELETE) return fail_format(store);
        LS_TRY(store_table_apply(store->table, &request, &answer));
    }
    return status == LS_END ? LS_OK : fail_format(store);
}

/* Brings the table up to the file's end; the content is locked. */
static ls_status refresh(file_store *store) {
    file_header header;
    const ssize_t got = LS_SYSCALL(EIO, pread(store->file, &header, sizeof header, 0));
    if (got < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot read the store in \"%s\"", store->path);
    if (got != sizeof header || memcmp(header.magic, header_magic, sizeof header_magic) != 0 ||
        header.begin < sizeof header || header.end < header.begin)
        return fail_format(store);
    if (!store->table || header.generation != store->generation || header.end < store->read_to)
        LS_TRY(start_table(store, &header));
    /* In pieces: a log may be larger than what one would want to hold. */
    unsigned char bytes[READ_BYTES];
    while (store->read_to < header.end) {
        const uint64_t left = header.end - store->read_to;
        const ssize_t count =
            pread(store->file, bytes, left < sizeof bytes ? left : sizeof bytes, (off_t)store->read_to);
        if (count <= 0) return fail_format(store);
        LS_TRY(store_inbox_put(&store->inbox, bytes, (size_t)count));
        LS_TRY(replay(store));
        store->read_to += (uint64_t)count;
    }
    return LS_OK;
}

/* Writes the request at `end`, which moves behind it. */
static ls_status write_request(const file_store *store, const store_request *request, uint64_t *end) {
    store_head head = {.magic = STORE_FRAME_MAGIC,
                       .code = (int32_t)request->operation,
                       .key_bytes = (uint16_t)(strlen(request->key) + 1),
                       .expected_bytes = (uint32_t)request->expected_bytes,
                       .value_bytes = (uint32_t)request->bytes,
                       .number = request->number};
    const struct {
        const void *bytes;
        size_t count;
    } parts[] = {{&head, sizeof head},
                 {request->key, head.key_bytes},
                 {request->expected, request->expected_bytes},
                 {request->value, request->bytes}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].count > 0) LS_TRY(write_at(store, parts[i].bytes, parts[i].count, *end));
        *end += parts[i].count;
    }
    return LS_OK;
}

/* --- a log anew --------------------------------------------------------------------------------------------------- */

typedef struct rewriting {
    const file_store *store;
    uint64_t end;
} rewriting;

static ls_status count_request(void *context, const store_request *request) {
    ((rewriting *)context)->end += sizeof(store_head) + strlen(request->key) + 1 + request->bytes;
    return LS_OK;
}

static ls_status rewrite_request(void *context, const store_request *request) {
    rewriting *self = context;
    return write_request(self->store, request, &self->end);
}

/* Where it is worth it. The table is up to date, and the content locked for writing. */
static ls_status rewrite(file_store *store) {
    rewriting content = {.end = 0}, copy = {.store = store};
    (void)store_table_each(store->table, count_request, &content);
    store->look_at = content.end * LOG_TO_CONTENT > LEAST_LOG_BYTES ? content.end * LOG_TO_CONTENT : LEAST_LOG_BYTES;
    if (store->read_to - store->begin < store->look_at) return LS_OK;
    file_header header = {.generation = store->generation + 1, .begin = sizeof header};
    memcpy(header.magic, header_magic, sizeof header.magic);
    if (content.end > store->begin - sizeof header) header.begin = store->read_to; /* there is no room before it */
    copy.end = header.begin;
    LS_TRY(store_table_each(store->table, rewrite_request, &copy));
    header.end = copy.end;
    LS_TRY(write_at(store, &header, sizeof header, 0));
    store->generation = header.generation;
    store->begin = header.begin;
    store->read_to = header.end;
    (void)!ftruncate(store->file, (off_t)header.end); /* what is behind it is of no use, but does no harm either */
    return LS_OK;
}

/* Writes the request behind the others, then says that it is there. */
static ls_status append(file_store *store, const store_request *request) {
    uint64_t end = store->read_to;
    LS_TRY(write_request(store, request, &end));
    LS_TRY(write_at(store, &end, sizeof end, offsetof(file_header, end)));
    store->read_to = end;
    /* Without room for another log this one has to do: the request is in it. */
    if (end - store->begin >= store->look_at && rewrite(store) != LS_OK) store->look_at = 2 * (end - store->begin);
    return LS_OK;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static bool may_change(store_operation operation) {
    return store_operation_sets(operation) || operation == STORE_DELETE;
}

/* One look: LS_END when the key is not there yet. */
static ls_status try_request(file_store *store, const store_request *request, store_reply *reply) {
    LS_TRY(lock_content(store, may_change(request->operation) ? F_WRLCK : F_RDLCK));
    store_answer answer;
    ls_status status = refresh(store);
    if (status == LS_OK) status = store_table_apply(store->table, request, &answer);
    if (status == LS_OK) {
        store_reply_fill(reply, answer.number, answer.value, answer.bytes);
        const bool has_changed =
            may_change(request->operation) && (request->operation != STORE_COMPARE_SET || answer.number != 0);
        if (has_changed) status = append(store, request);
    }
    /* The table may be ahead of the file now: it is read anew. */
    if (status < 0) store_table_close(&store->table);
    unlock_content(store);
    return status;
}

static ls_status file_call(ls_store *base, const store_request *request, store_reply *reply, int64_t deadline_ns) {
    file_store *store = (file_store *)base;
    int pause_us = LOOK_FIRST_US;
    for (;;) {
        LS_TRY(take(store, deadline_ns));
        const ls_status status = try_request(store, request, reply);
        give_back(store);
        if (status != LS_END) return status;
        if (ls_now_ns() >= deadline_ns) return LS_ERR_TIMEOUT;
        pause_for(&pause_us, deadline_ns);
    }
}

/* --- life --------------------------------------------------------------------------------------------------------- */

/* A forked child must not count as present: the lock lives as long as any descriptor of the open file. */
static void forked(ls_live *live) {
    file_store *store = LS_LIVE_OWNER(file_store, live);
    if (store->file >= 0) close(store->file);
    store->file = -1;
}

/* Whether the file is still the one at its path: the last to close may just have removed it. */
static bool is_in_place(const file_store *store) {
    struct stat own, there;
    return fstat(store->file, &own) == 0 && stat(store->path, &there) == 0 && own.st_ino == there.st_ino &&
           own.st_dev == there.st_dev;
}

static void remove_if_last(file_store *store) {
    if (lock_content(store, F_WRLCK) != LS_OK) return;
    if (set_lock(store, F_WRLCK, PRESENCE_BYTE) == 0 && is_in_place(store)) unlink(store->path);
    unlock_content(store);
}

static void file_close(ls_store *base) {
    file_store *store = (file_store *)base;
    /* One that could not be entered is somebody else's: it is not ours to remove. */
    const bool was_open = store->table || store->read_to > 0;
    if (store->file >= 0 && was_open && store->head.owner == getpid()) remove_if_last(store);
    ls_live_delist(&store->live);
    if (store->file >= 0) close(store->file);
    store_table_close(&store->table);
    store_inbox_close(&store->inbox);
    ls_mutex_destroy(&store->lock);
    ls_free(store);
}

static const store_backend file_backend = {.call = file_call, .close = file_close};

/* A file that others may write could tell a rank anything. */
static ls_status check_owner(const file_store *store) {
    struct stat about;
    if (fstat(store->file, &about) != 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot look at \"%s\"", store->path);
    if (S_ISREG(about.st_mode) && (about.st_uid == geteuid() || about.st_uid == 0) &&
        !(about.st_mode & (S_IWGRP | S_IWOTH)))
        return LS_OK;
    return ls_fail(LS_ERR_ENVIRONMENT, "\"%s\" can be no store: it is %s; name a path of your own", store->path,
                   S_ISREG(about.st_mode) ? "a file that other users may write" : "no regular file");
}

/* Whether the file is new, or a store: anything else is somebody's work and stays. */
static ls_status check_content(const file_store *store) {
    char magic[sizeof header_magic];
    const ssize_t got = pread(store->file, magic, sizeof magic, 0);
    if (got < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot read \"%s\"", store->path);
    return got == 0 || (got == sizeof magic && memcmp(magic, header_magic, sizeof magic) == 0) ? LS_OK
                                                                                               : fail_format(store);
}

/* Empties the file when nobody else has it open, and is present from then on. */
static ls_status enter(file_store *store) {
    file_header header = {.generation = (uint64_t)ls_now_ns(), .begin = sizeof header, .end = sizeof header};
    memcpy(header.magic, header_magic, sizeof header.magic);
    LS_TRY(check_content(store));
    /* The exclusive lock is refused while anybody holds the shared one. */
    const bool is_alone = set_lock(store, F_WRLCK, PRESENCE_BYTE) == 0;
    if (is_alone && ftruncate(store->file, 0) != 0)
        return ls_fail_errno(LS_ERR_IO, errno, "cannot empty \"%s\"", store->path);
    if (is_alone) LS_TRY(write_at(store, &header, sizeof header, 0));
    if (set_lock(store, F_RDLCK, PRESENCE_BYTE) != 0)
        return ls_fail_errno(LS_ERR_IO, errno, "cannot lock \"%s\"; does its file system know locks?", store->path);
    return refresh(store);
}

static ls_status open_file(file_store *store) {
    for (;;) {
        /* No links: in a folder like /tmp one could lead to another file of ours. */
        const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
        store->file = LS_SYSCALL(EMFILE, open(store->path, flags, 0600));
        if (store->file < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot open the store \"%s\"", store->path);
        LS_TRY(check_owner(store));
        LS_TRY(lock_content(store, F_WRLCK));
        /* Else it was removed between our opening and our lock: the next turn makes a new one. */
        if (is_in_place(store)) break;
        close(store->file);
        store->file = -1;
    }
    const ls_status status = enter(store);
    unlock_content(store);
    return status;
}

static ls_status open_plain(ls_store **opened, const char *path) {
    *opened = NULL;
    const size_t bytes = strlen(path) + 1;
    file_store *store = ls_alloc(sizeof *store + bytes);
    if (!store) return LS_ERR_MEMORY;
    memcpy(store->path, path, bytes);
    store->file = -1;
    ls_mutex_init(&store->lock);
    store_init(&store->head, &file_backend);
    snprintf(store->head.server, sizeof store->head.server, "the store in a file");
    store->live.forked = forked;
    ls_status status = ls_live_enlist(&store->live);
    if (status == LS_OK) status = open_file(store);
    if (status == LS_OK)
        *opened = &store->head;
    else
        file_close(&store->head);
    return status;
}

ls_status ls_store_open_file(ls_store **store, const char *path) {
    if (!store || !path || !*path)
        return ls_fail(LS_ERR_ARGUMENT, "cannot open a store in a file: the place is NULL, or the path is empty");
    *store = NULL;
    store_credentials credentials;
    LS_TRY(store_credentials_read(&credentials));
    /* Three layers: the file, the part of it that is this job's, and descriptors, which no file can carry. */
    ls_store *plain = NULL, *part = NULL;
    char job[32];
    /* Two jobs on one path have keys of their own. */
    snprintf(job, sizeof job, "job-%016" PRIx64, ls_digest_text(credentials.job));
    ls_status status = open_plain(&plain, path);
    if (status == LS_OK) status = ls_store_prefix(&part, plain, job);
    ls_store_close(&plain); /* the part holds it */
    if (status == LS_OK) status = store_exchange_wrap(store, part, NULL, &credentials);
    explicit_bzero(&credentials, sizeof credentials);
    return status;
}
