/* backend.h: a store is a table of keys somewhere, and one way to ask it. Every public call becomes a request; the
 * table of store/table.h gives all of them their meaning, in this process (hash.c) and in the launcher's server
 * alike. */
#ifndef LS_STORE_BACKEND_H
#define LS_STORE_BACKEND_H

#include "store/handshake.h"
#include "store/store.h"

#include <stdatomic.h>
#include <sys/types.h>

/* The wait that 0 asks for. */
#define STORE_DEFAULT_TIMEOUT_MS (INT64_C(30) * 60 * 1000)
/* What a call without a limit of its own has at the least: far more than a server takes that runs. Of one that has not
 * answered the last call, none is waited for that long again. */
#define STORE_SHORTEST_LIMIT_MS 2000

typedef enum store_operation {
    STORE_SET = 1,
    STORE_GET, /* waits until the key is set; so do STORE_WAIT and STORE_GET_DESCRIPTORS */
    STORE_WAIT,
    STORE_ADD,
    STORE_COMPARE_SET,
    STORE_DELETE,
    STORE_COUNT,
    STORE_CHECK,
    STORE_SET_DESCRIPTORS,
    STORE_GET_DESCRIPTORS,
    STORE_OPERATION_COUNT
} store_operation;

/* For messages: "set", "get", ... */
const char *store_operation_name(store_operation operation);

typedef struct store_request {
    store_operation operation;
    const char *key;      /* STORE_COUNT: what the keys begin with; "" for all */
    const void *expected; /* STORE_COMPARE_SET */
    size_t expected_bytes;
    const void *value;
    size_t bytes;
    int64_t number; /* STORE_ADD: the amount; STORE_GET_DESCRIPTORS: how many are wanted */
    const int *descriptors;
    int descriptor_count;
} store_request;

/* Where the caller wants the result; buffers are the caller's. */
typedef struct store_reply {
    void *value;
    size_t capacity;
    size_t bytes;   /* the value's full size, also past `capacity` */
    int64_t number; /* the sum, the count, or 0 and 1 for no and yes */
    int *descriptors;
    int descriptor_count; /* in: how many fit; out: how many came, owned by the caller */
} store_reply;

/* Fills in the number and the value of an answer: as many of its `bytes` bytes as fit, and how many there are. */
void store_reply_fill(store_reply *reply, int64_t number, const void *value, size_t bytes);

typedef struct store_backend {
    /* Carries out `request`, waiting for its key where it has to. LS_ERR_TIMEOUT at the deadline. */
    ls_status (*call)(ls_store *store, const store_request *request, store_reply *reply, int64_t deadline_ns);
    void (*close)(ls_store *store);
} store_backend;

/* The head of every backend's own structure. */
struct ls_store {
    const store_backend *backend;
    _Atomic int holders;
    atomic_bool is_silent; /* the last call without a limit of its own was not answered; relaxed, since it is a hint */
    pid_t owner;           /* the process that opened it: a forked child is told */
    bool is_in_process;
    bool is_private; /* nobody but this user, on this host, can read it: secrets may travel through it */
    const store_credentials *credentials; /* what its connections prove; NULL: there is nothing to prove */
    int port;                             /* on which this process serves it; 0: it does not */
    char server[96];                      /* who answers, for messages: "the launcher (process 77)" */
};

void store_init(ls_store *store, const store_backend *backend);

#endif
