/* flight.c: keeping operations, and writing them in the fields that PyTorch's flight recorder has, so that tools read both.
 *
 * Keeping one costs a cache line and no clock. The handler of SIGUSR2 only counts (base/live.h). Where a folder is named, a
 * thread of each group of several ranks looks at the count: so a rank that is stuck in its own code says where it is too, and
 * it is the one that the others wait for.                                                                             */
#include "group/flight.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/live.h"
#include "base/log.h"
#include "base/memory.h"
#include "group/describe.h"
#include "group/group.h"
#include "trace/sink.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FLIGHT_FOLDER "LOCKSTEP_FLIGHT_DIR"
/* How soon a signal is answered. */
#define LOOK_NS (50 * LS_NS_PER_MS)

ls_status flight_open(flight_recorder *recorder) {
    recorder->entries = ls_alloc_array(FLIGHT_ENTRIES, sizeof *recorder->entries);
    if (!recorder->entries) return LS_ERR_MEMORY;
    ls_mutex_init(&recorder->writing);
    return LS_OK;
}

void flight_close(flight_recorder *recorder) {
    if (recorder->entries) ls_mutex_destroy(&recorder->writing);
    ls_free(recorder->entries);
}

static void set(_Atomic int64_t *field, int64_t value) {
    atomic_store_explicit(field, value, memory_order_relaxed);
}

uint64_t flight_begin(flight_recorder *recorder, const backend_op *op, int64_t posted_ns) {
    const uint64_t record = atomic_load_explicit(&recorder->recorded, memory_order_relaxed) + 1;
    flight_entry *entry = &recorder->entries[record % FLIGHT_ENTRIES];
    /* By bytes, lowest first: kind, dtype, op, state. */
    const uint32_t what = (uint32_t)op->call.kind | (uint32_t)op->call.dtype << 8 | (uint32_t)op->call.op << 16;
    atomic_store_explicit(&entry->record, record, memory_order_relaxed);
    atomic_store_explicit(&entry->number, op->number, memory_order_relaxed);
    atomic_store_explicit(&entry->count, op->call.count, memory_order_relaxed);
    atomic_store_explicit(&entry->tag, op->call.tag, memory_order_relaxed);
    atomic_store_explicit(&entry->root, op->call.root, memory_order_relaxed);
    atomic_store_explicit(&entry->what, what | (uint32_t)FLIGHT_STARTED << 24, memory_order_relaxed);
    set(&entry->posted_ns, posted_ns);
    set(&entry->started_ns, op->start_ns);
    set(&entry->ended_ns, 0);
    /* Release: whoever reads the count finds the entry's fields. */
    atomic_store_explicit(&recorder->recorded, record, memory_order_release);
    return record;
}

void flight_started(flight_recorder *recorder, uint64_t record, int64_t started_ns) {
    set(&recorder->entries[record % FLIGHT_ENTRIES].started_ns, started_ns);
}

void flight_end(flight_recorder *recorder, uint64_t record, int64_t started_ns, int64_t ended_ns, bool is_done) {
    flight_entry *entry = &recorder->entries[record % FLIGHT_ENTRIES];
    /* A message may outlast a round of the ring. */
    if (atomic_load_explicit(&entry->record, memory_order_relaxed) != record) return;
    const uint32_t what = atomic_load_explicit(&entry->what, memory_order_relaxed) & 0xffffff;
    set(&entry->started_ns, started_ns);
    set(&entry->ended_ns, ended_ns);
    atomic_store_explicit(&entry->what, what | (uint32_t)(is_done ? FLIGHT_COMPLETED : FLIGHT_FAILED) << 24,
                          memory_order_relaxed);
}

/* --- the file ----------------------------------------------------------------------------------------------------------- */

/* A text that grows in a block for the longest that can come; beyond, it is cut. */
typedef struct flight_text {
    char *text;
    size_t used, bytes;
    int64_t
        wall_ns; /* from the monotonic clock, which entries have, to the wall's: once a file, as that one may be set */
} flight_text;

LS_PRINTF(2, 3) static void add(flight_text *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(file->text + file->used, file->bytes - file->used, format, arguments);
    va_end(arguments);
    if (length > 0) file->used += (size_t)length;
    if (file->used >= file->bytes) file->used = file->bytes - 1;
}

static int64_t wall_distance(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * LS_NS_PER_S + now.tv_nsec - ls_now_ns();
}

static void add_time(flight_text *file, const char *name, int64_t time_ns) {
    if (time_ns)
        add(file, ",\"%s\":%" PRId64, name, file->wall_ns + time_ns);
    else
        add(file, ",\"%s\":null", name);
}

/* One operation. `state` NULL: as the entry says. */
static void add_operation(flight_text *file, const ls_group *group, const flight_entry *entry, const char *state) {
    static const char *const states[] = {"scheduled", "started", "completed", "failed"};
    const uint32_t what = atomic_load_explicit(&entry->what, memory_order_relaxed);
    const int64_t started_ns = atomic_load_explicit(&entry->started_ns, memory_order_relaxed);
    const int64_t ended_ns = atomic_load_explicit(&entry->ended_ns, memory_order_relaxed);
    const uint64_t number = atomic_load_explicit(&entry->number, memory_order_relaxed);
    const uint64_t count = atomic_load_explicit(&entry->count, memory_order_relaxed);
    const group_call call = {.kind = (group_kind)(what & 0xff),
                             .dtype = (ls_dtype)(what >> 8 & 0xff),
                             .op = (ls_op)(what >> 16 & 0xff),
                             .root = atomic_load_explicit(&entry->root, memory_order_relaxed),
                             .count = count,
                             .tag = atomic_load_explicit(&entry->tag, memory_order_relaxed)};
    char text[CALL_TEXT_BYTES];
    add(file, "%s{\"record_id\":%" PRIu64 ",\"process_group\":[\"%s\",\"\"]",
        file->text[file->used - 1] == '[' ? "" : ",\n", atomic_load_explicit(&entry->record, memory_order_relaxed),
        group->prefix);
    /* Messages have no number, nor have queued collectives, which come with a `state`. */
    add(file, ",\"collective_seq_id\":%" PRIu64 ",\"is_p2p\":%s,\"profiling_name\":\"%s\"", number,
        number || state ? "false" : "true", call_describe(&call, text));
    add(file, ",\"input_sizes\":[[%" PRIu64 "]],\"input_dtypes\":[\"%s\"]", count, ls_dtype_name(call.dtype));
    add_time(file, "time_created_ns", atomic_load_explicit(&entry->posted_ns, memory_order_relaxed));
    add_time(file, "time_discovered_started_ns", started_ns);
    add_time(file, "time_discovered_completed_ns", ended_ns);
    add(file, ",\"duration_ms\":%.6f", started_ns && ended_ns ? (double)(ended_ns - started_ns) / 1e6 : 0.0);
    add(file, ",\"state\":\"%s\",\"timeout_ms\":%" PRId64 ",\"retired\":%s}", state ? state : states[what >> 24 & 3],
        group->timeout_ms, what >> 24 >= FLIGHT_COMPLETED ? "true" : "false");
}

/* Those that were posted and not begun. */
static void add_queue(flight_text *file, ls_group *group) {
    int left = FLIGHT_ENTRIES;
    ls_mutex_lock(&group->lock);
    ls_work *work = atomic_load_explicit(&group->first, memory_order_acquire);
    for (; work && left > 0; work = work->next, left--) {
        if (atomic_load_explicit(&work->is_begun, memory_order_relaxed)) continue;
        const group_call *call = &work->op.call;
        const flight_entry entry = {.count = call->count,
                                    .tag = call->tag,
                                    .posted_ns = work->posted_ns,
                                    .root = call->root,
                                    .what =
                                        (uint32_t)call->kind | (uint32_t)call->dtype << 8 | (uint32_t)call->op << 16};
        add_operation(file, group, &entry, "scheduled");
    }
    ls_mutex_unlock(&group->lock);
}

static void add_entries(flight_text *file, ls_group *group) {
    const flight_recorder *recorder = &group->flight;
    const uint64_t last = atomic_load_explicit(&recorder->recorded, memory_order_acquire);
    const uint64_t first = last >= FLIGHT_ENTRIES ? last - FLIGHT_ENTRIES + 1 : 1;
    for (uint64_t record = first; record <= last; record++)
        add_operation(file, group, &recorder->entries[record % FLIGHT_ENTRIES], NULL);
    add_queue(file, group);
}

/* DIR/flight-RANK-GROUP.json; a group's name without what divides folders. */
static void name_file(const ls_group *group, const char *folder, char *path, size_t bytes) {
    const int length = snprintf(path, bytes, "%s/flight-%d-", folder, group->rank);
    if (length < 0 || (size_t)length >= bytes) return;
    snprintf(path + length, bytes - (size_t)length, "%s.json", group->prefix[0] ? group->prefix : "alone");
    for (char *at = path + length; *at; at++)
        if (*at == '/') *at = '_';
}

static ls_status write_file(const char *path, const flight_text *file) {
    ls_replacement replacement;
    LS_TRY(ls_replacement_open(&replacement, path));
    const ls_status status = ls_replacement_write(&replacement, file->text, file->used);
    if (status == LS_OK) return ls_replacement_commit(&replacement);
    ls_replacement_discard(&replacement);
    return status;
}

void flight_write(ls_group *group) {
    const char *folder = ls_env_text(FLIGHT_FOLDER);
    if (!folder || !group->flight.entries) return;
    ls_error last, failure = {.status = LS_OK};
    /* The caller's last error is what it was, whatever fails here. */
    ls_error_capture(&last, LS_ERR_ABORTED);
    if (atomic_load_explicit(&group->is_lost, memory_order_acquire)) failure = group->failure;
    /* The ring and at most as many of the queue, of some 700 bytes each. */
    flight_text file = {.bytes = (size_t)2 * FLIGHT_ENTRIES * 700, .wall_ns = wall_distance()};
    char path[512], escaped[2 * LS_ERROR_TEXT_BYTES];
    ls_mutex_lock(&group->flight.writing);
    file.text = ls_alloc_raw(file.bytes);
    if (file.text) {
        name_file(group, folder, path, sizeof path);
        mkdir(folder, 0777); /* if it is not there; else writing tells */
        add(&file, "{\"version\":\"2.10\",\"rank\":%d,\"world_size\":%d,\"failure\":\"%s\",\n\"entries\":[",
            group->rank, group->world_size,
            failure.status == LS_OK ? "" : trace_escape(escaped, sizeof escaped, failure.text));
        add_entries(&file, group);
        add(&file, "]}\n");
        if (write_file(path, &file) != LS_OK)
            ls_log(LS_LOG_WARNING, "the flight recorder's file was not written: %s", ls_last_error());
    }
    ls_mutex_unlock(&group->flight.writing);
    ls_free(file.text);
    ls_error_raise(&last);
}

/* --- SIGUSR2 ------------------------------------------------------------------------------------------------------------ */

static void watch(void *argument) {
    ls_group *group = argument;
    flight_recorder *recorder = &group->flight;
    while (!atomic_load_explicit(&recorder->ending, memory_order_acquire)) {
        const uint32_t signals = ls_live_signals();
        if (signals != recorder->signalled) flight_write(group);
        recorder->signalled = signals;
        ls_word_wait(&recorder->ending, 0, ls_now_ns() + LOOK_NS);
    }
}

void flight_watch(ls_group *group) {
    if (!ls_env_text(FLIGHT_FOLDER)) return;
    ls_live_watch_signal();
    group->flight.signalled = ls_live_signals();
    if (ls_thread_start(&group->flight.watcher, "ls-flight", watch, group) != LS_OK)
        ls_log(LS_LOG_WARNING, "SIGUSR2 will not have the flight recorder written: %s", ls_last_error());
}

void flight_unwatch(flight_recorder *recorder) {
    ls_word_advance(&recorder->ending);
    ls_thread_join(&recorder->watcher);
}
