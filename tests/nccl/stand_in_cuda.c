/* stand_in_cuda.c: devices, contexts, streams and events, and what the stand-in counts. */
#include "stand_in_parts.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t stand_in_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t stand_in_changed = PTHREAD_COND_INITIALIZER;

/* --- counting, failing ---------------------------------------------------------------------------------------------- */

typedef struct counter {
    const char *function;
    int calls;
} counter;

static counter counters[64];
static int wrong, live, devices = STAND_IN_RANKS;
static bool is_default_stream_held;
static const char *failing;
static int calls_until_failure;
static unsigned failure;
static bool has_failed;

void stand_in_acquire(void) {
    pthread_mutex_lock(&stand_in_lock);
}

void stand_in_let_go(void) {
    pthread_cond_broadcast(&stand_in_changed);
    pthread_mutex_unlock(&stand_in_lock);
}

static counter *counter_of(const char *function) {
    int at = 0;
    while (counters[at].function && strcmp(counters[at].function, function) != 0) at++;
    counters[at].function = function;
    return &counters[at];
}

unsigned stand_in_enter(const char *function) {
    stand_in_acquire();
    counter_of(function)->calls++;
    unsigned result = 0;
    if (failing && strcmp(failing, function) == 0 && --calls_until_failure == 0) {
        result = failure;
        has_failed = true;
        failing = NULL;
    }
    stand_in_let_go();
    return result;
}

void stand_in_complain(const char *format, ...) {
    va_list arguments;
    fputs("the stand-in: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
}

void stand_in_count_live(int change) {
    __atomic_fetch_add(&live, change, __ATOMIC_SEQ_CST);
}

void stand_in_fail(const char *function, int nth, unsigned result) {
    stand_in_acquire();
    failing = function;
    calls_until_failure = nth;
    failure = result;
    has_failed = false;
    stand_in_let_go();
}

bool stand_in_has_failed(void) {
    stand_in_acquire();
    const bool result = has_failed;
    stand_in_let_go();
    return result;
}

int stand_in_wrong(void) {
    return __atomic_load_n(&wrong, __ATOMIC_SEQ_CST);
}

int stand_in_live(void) {
    return __atomic_load_n(&live, __ATOMIC_SEQ_CST);
}

int stand_in_calls(const char *function) {
    stand_in_acquire();
    const int calls = counter_of(function)->calls;
    stand_in_let_go();
    return calls;
}

void stand_in_set_devices(int count) {
    __atomic_store_n(&devices, count, __ATOMIC_SEQ_CST);
}

void stand_in_reset(void) {
    stand_in_fail(NULL, 0, 0);
    stand_in_set_version(22809);
    stand_in_set_devices(STAND_IN_RANKS);
    for (int rank = 0; rank < STAND_IN_RANKS; rank++) stand_in_set_async_error(rank, 0);
    stand_in_hold_connections(false);
    stand_in_hold_default_stream(false);
    stand_in_hold_endings(false);
    stand_in_acquire();
    for (int at = 0; counters[at].function; at++) counters[at].calls = 0;
    wrong = 0;
    stand_in_let_go();
}

#define ENTER()                                                 \
    do {                                                        \
        const unsigned enter_result = stand_in_enter(__func__); \
        if (enter_result) return enter_result;                  \
    } while (0)
#define ENTER_CURRENT()                                                               \
    do {                                                                              \
        ENTER();                                                                      \
        if (stand_in_current_device(__func__) < 0) return 201; /* no valid context */ \
    } while (0)

/* --- devices and contexts ------------------------------------------------------------------------------------------- */

struct CUctx_st {
    int device, holders;
};

static struct CUctx_st contexts[STAND_IN_RANKS];
static _Thread_local cuda_context stack[8];
static _Thread_local int depth;

cuda_result cuInit(unsigned int flags);
cuda_result cuGetErrorString(cuda_result result, const char **text);
cuda_result cuDeviceGetCount(int *count);
cuda_result cuDeviceGet(cuda_device *device, int ordinal);
cuda_result cuCtxGetCurrent(cuda_context *context);
cuda_result cuCtxGetDevice(cuda_device *device);
cuda_result cuDevicePrimaryCtxRetain(cuda_context *context, cuda_device device);
cuda_result cuDevicePrimaryCtxRelease_v2(cuda_device device);
cuda_result cuCtxPushCurrent_v2(cuda_context context);
cuda_result cuCtxPopCurrent_v2(cuda_context *context);

int stand_in_contexts(void) {
    return depth;
}

int stand_in_current_device(const char *function) {
    if (depth > 0) return stack[depth - 1]->device;
    stand_in_complain("%s was called without a context", function);
    return -1;
}

cuda_result cuInit(unsigned int flags) {
    ENTER();
    if (flags) stand_in_complain("cuInit with flags %u", flags);
    return 0;
}

cuda_result cuGetErrorString(cuda_result result, const char **text) {
    static const struct {
        cuda_result result;
        const char *text;
    } texts[] = {
        {1, "an invalid value"}, {2, "out of memory"}, {100, "no device is there"}, {700, "an illegal address"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].result == result) {
            *text = texts[i].text;
            return 0;
        }
    return 1;
}

cuda_result cuDeviceGetCount(int *count) {
    ENTER();
    *count = __atomic_load_n(&devices, __ATOMIC_SEQ_CST);
    return 0;
}

cuda_result cuDeviceGet(cuda_device *device, int ordinal) {
    ENTER();
    if (ordinal < 0 || ordinal >= __atomic_load_n(&devices, __ATOMIC_SEQ_CST)) {
        stand_in_complain("cuDeviceGet of device %d", ordinal);
        return 101;
    }
    *device = ordinal;
    return 0;
}

cuda_result cuCtxGetCurrent(cuda_context *context) {
    ENTER();
    *context = depth > 0 ? stack[depth - 1] : NULL;
    return 0;
}

cuda_result cuCtxGetDevice(cuda_device *device) {
    ENTER_CURRENT();
    *device = stack[depth - 1]->device;
    return 0;
}

cuda_result cuDevicePrimaryCtxRetain(cuda_context *context, cuda_device device) {
    ENTER();
    stand_in_acquire();
    if (contexts[device].holders == 0) contexts[device].device = device;
    contexts[device].holders++;
    stand_in_let_go();
    stand_in_count_live(1);
    *context = &contexts[device];
    return 0;
}

cuda_result cuDevicePrimaryCtxRelease_v2(cuda_device device) {
    ENTER();
    stand_in_acquire();
    if (--contexts[device].holders < 0) stand_in_complain("context of device %d was released too often", device);
    stand_in_let_go();
    stand_in_count_live(-1);
    return 0;
}

cuda_result cuCtxPushCurrent_v2(cuda_context context) {
    ENTER();
    if (!context || depth == 8) {
        stand_in_complain("a context that is none was pushed, or too many");
        return 201;
    }
    stack[depth++] = context;
    return 0;
}

cuda_result cuCtxPopCurrent_v2(cuda_context *context) {
    ENTER();
    if (depth == 0) {
        stand_in_complain("a context was popped that nobody had pushed");
        return 201;
    }
    *context = stack[--depth];
    return 0;
}

/* --- streams -------------------------------------------------------------------------------------------------------- */

typedef struct task {
    struct task *next;
    void (*run)(void *argument);
    void *argument;
} task;

struct CUstream_st {
    int device;
    pthread_t thread;
    task *first;
    bool is_closing;
};

cuda_result cuStreamCreate(cuda_stream *stream, unsigned int flags);
cuda_result cuStreamDestroy_v2(cuda_stream stream);
cuda_result cuStreamWaitEvent(cuda_stream stream, cuda_event event, unsigned int flags);
cuda_result cuEventCreate(cuda_event *event, unsigned int flags);
cuda_result cuEventDestroy_v2(cuda_event event);
cuda_result cuEventRecord(cuda_event event, cuda_stream stream);
cuda_result cuEventQuery(cuda_event event);

static void *run_stream(void *argument) {
    cuda_stream stream = argument;
    stand_in_acquire();
    for (;;) {
        while (!stream->first && !stream->is_closing) pthread_cond_wait(&stand_in_changed, &stand_in_lock);
        task *next = stream->first;
        if (!next) break;
        stream->first = next->next;
        pthread_mutex_unlock(&stand_in_lock);
        next->run(next->argument);
        free(next);
        stand_in_acquire();
    }
    stand_in_let_go();
    return NULL;
}

void stand_in_put(cuda_stream stream, void (*run)(void *argument), void *argument) {
    task *added = calloc(1, sizeof *added);
    if (!added) abort();
    *added = (task){.run = run, .argument = argument};
    task **link = &stream->first;
    while (*link) link = &(*link)->next;
    *link = added;
    pthread_cond_broadcast(&stand_in_changed);
}

int stand_in_stream_device(cuda_stream stream) {
    return stream->device;
}

cuda_result cuStreamCreate(cuda_stream *stream, unsigned int flags) {
    ENTER_CURRENT();
    if (flags != CUDA_STREAM_IS_NON_BLOCKING) stand_in_complain("a stream that blocks the default one");
    struct CUstream_st *made = calloc(1, sizeof *made);
    if (!made) abort();
    made->device = stand_in_current_device(__func__);
    if (pthread_create(&made->thread, NULL, run_stream, made) != 0) abort();
    stand_in_count_live(1);
    *stream = made;
    return 0;
}

cuda_result cuStreamDestroy_v2(cuda_stream stream) {
    ENTER_CURRENT();
    stand_in_acquire();
    if (stream->first) stand_in_complain("a stream was destroyed that is not through");
    stream->is_closing = true;
    stand_in_let_go();
    pthread_join(stream->thread, NULL);
    free(stream);
    stand_in_count_live(-1);
    return 0;
}

/* --- events --------------------------------------------------------------------------------------------------------- */

struct CUevent_st {
    uint64_t recorded, reached;
    bool is_of_default_stream; /* its last record */
};

/* An event's mark on a stream. */
typedef struct mark {
    cuda_event event;
    uint64_t number;
} mark;

static mark *mark_of(cuda_event event, uint64_t number) {
    mark *made = calloc(1, sizeof *made);
    if (!made) abort();
    *made = (mark){.event = event, .number = number};
    return made;
}

static bool is_reached(const mark *awaited) {
    if (awaited->event->is_of_default_stream) return !is_default_stream_held;
    return awaited->event->reached >= awaited->number;
}

static void reach_mark(void *argument) {
    mark *reached = argument;
    stand_in_acquire();
    reached->event->reached = reached->number;
    stand_in_let_go();
    free(reached);
}

static void await_mark(void *argument) {
    mark *awaited = argument;
    stand_in_acquire();
    while (!is_reached(awaited)) pthread_cond_wait(&stand_in_changed, &stand_in_lock);
    stand_in_let_go();
    free(awaited);
}

void stand_in_hold_default_stream(bool is_held) {
    stand_in_acquire();
    is_default_stream_held = is_held;
    stand_in_let_go();
}

cuda_result cuEventCreate(cuda_event *event, unsigned int flags) {
    ENTER_CURRENT();
    if (flags != CUDA_EVENT_HAS_NO_TIME) stand_in_complain("an event that measures time, which is slower");
    *event = calloc(1, sizeof **event);
    if (!*event) abort();
    stand_in_count_live(1);
    return 0;
}

cuda_result cuEventDestroy_v2(cuda_event event) {
    ENTER_CURRENT();
    stand_in_acquire();
    if (event->reached != event->recorded && !event->is_of_default_stream)
        stand_in_complain("an event was destroyed that is not reached");
    stand_in_let_go();
    free(event);
    stand_in_count_live(-1);
    return 0;
}

cuda_result cuEventRecord(cuda_event event, cuda_stream stream) {
    ENTER_CURRENT();
    stand_in_acquire();
    event->recorded++;
    event->is_of_default_stream = stream == CUDA_DEFAULT_STREAM;
    if (!event->is_of_default_stream) stand_in_put(stream, reach_mark, mark_of(event, event->recorded));
    stand_in_let_go();
    return 0;
}

cuda_result cuStreamWaitEvent(cuda_stream stream, cuda_event event, unsigned int flags) {
    ENTER_CURRENT();
    if (flags) stand_in_complain("cuStreamWaitEvent with flags %u", flags);
    stand_in_acquire();
    stand_in_put(stream, await_mark, mark_of(event, event->recorded));
    stand_in_let_go();
    return 0;
}

cuda_result cuEventQuery(cuda_event event) {
    ENTER_CURRENT();
    stand_in_acquire();
    const mark asked = {.event = event, .number = event->recorded};
    const cuda_result result = is_reached(&asked) ? 0 : CUDA_NOT_READY;
    stand_in_let_go();
    return result;
}
