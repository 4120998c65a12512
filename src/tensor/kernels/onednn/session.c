/* session.c: the thread's engine, plans, packed weights and scratch. */
#include "tensor/kernels/onednn/session.h"

#include "base/error.h"
#include "base/memory.h"

#include <pthread.h>
#include <string.h>

ls_status onednn_status(dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return LS_OK;
    /* The only status that a user can do something about; the others are mistakes of the shim. */
    if (status == dnnl_out_of_memory) return ls_fail(LS_ERR_MEMORY, "oneDNN was refused memory for %s", what);
    return ls_fail(LS_ERR_INTERNAL, "oneDNN refused %s (its status %d); LOCKSTEP_KERNELS=reference runs without it",
                   what, (int)status);
}

/* ---- The thread's session ---- */

static pthread_key_t session_key; /* its value: the thread's session */
static pthread_once_t session_once = PTHREAD_ONCE_INIT;
static int session_key_failure;

static void plan_close(plan *closed) {
    call_close(&closed->main);
    call_close(&closed->store);
    call_close(&closed->add);
    ls_free(closed);
}

static void session_close(void *value) {
    session *const closed = value;
    /* Clean-up runs from any point of session_open too: what is missing is NULL. */
    if (!closed) return;
    for (int i = 0; i < closed->plan_count; i++) plan_close(closed->plans[i]);
    for (int i = 0; i < closed->pack_count; i++) ls_free(closed->packs[i].data);
    ls_free(closed->scratch);
    if (closed->stream) dnnl_stream_destroy(closed->stream);
    if (closed->engine) dnnl_engine_destroy(closed->engine);
    ls_free(closed);
}

static void make_key(void) {
    session_key_failure = pthread_key_create(&session_key, session_close);
}

static ls_status session_open(session **opened) {
    session *const made = ls_alloc(sizeof *made);
    if (!made) return LS_ERR_MEMORY;
    ls_status status = onednn_status(dnnl_engine_create(&made->engine, dnnl_cpu, 0), "an engine");
    if (status == LS_OK) {
        status = onednn_status(dnnl_stream_create(&made->stream, made->engine, dnnl_stream_default_flags), "a stream");
    }
    if (status == LS_OK && pthread_setspecific(session_key, made) != 0) {
        status = ls_fail(LS_ERR_MEMORY, "no memory for this thread's kernels");
    }
    if (status != LS_OK) {
        session_close(made);
        return status;
    }
    *opened = made;
    return LS_OK;
}

ls_status session_here(session **found) {
    pthread_once(&session_once, make_key);
    if (session_key_failure) {
        return ls_fail_errno(LS_ERR_MEMORY, session_key_failure, "cannot keep kernels for each thread");
    }
    *found = pthread_getspecific(session_key);
    return *found ? LS_OK : session_open(found);
}

void session_release(void) {
    pthread_once(&session_once, make_key);
    if (session_key_failure) return;
    session_close(pthread_getspecific(session_key));
    pthread_setspecific(session_key, NULL);
}

ls_status session_scratch(session *here, size_t bytes, void **memory) {
    /* Freed before the larger one is taken: its content was for one call only. */
    if (bytes > here->scratch_bytes) {
        ls_free(here->scratch);
        here->scratch = ls_alloc_raw(bytes);
        here->scratch_bytes = here->scratch ? bytes : 0;
        if (!here->scratch) return LS_ERR_MEMORY;
    }
    *memory = here->scratch;
    return LS_OK;
}

/* ---- Plans ---- */

/* Where the next plan goes: a free place, else that of the plan longest unused. */
static int place_for_plan(session *here) {
    /* A program with ever new shapes must not keep a primitive for each of them. */
    if (here->plan_count < SESSION_PLANS) return here->plan_count++;
    int oldest = 0;
    for (int i = 1; i < SESSION_PLANS; i++) {
        if (here->plans[i]->last_use < here->plans[oldest]->last_use) oldest = i;
    }
    plan_close(here->plans[oldest]);
    return oldest;
}

ls_status session_plan(session *here, const plan_key *key, plan_builder *build, plan **found) {
    for (int i = 0; i < here->plan_count; i++) {
        /* A list is enough: a net has some dozens of shapes, and a kernel takes longer than the search. */
        if (memcmp(&here->plans[i]->key, key, sizeof *key) == 0) {
            *found = here->plans[i];
            (*found)->last_use = ++here->now;
            return LS_OK;
        }
    }
    plan *const made = ls_alloc(sizeof *made);
    if (!made) return LS_ERR_MEMORY;
    made->key = *key;
    made->serial = made->last_use = ++here->now;
    const ls_status status = build(here, made);
    if (status != LS_OK) {
        plan_close(made);
        return status;
    }
    /* Last: a plan that could not be built drives no older one out. */
    here->plans[place_for_plan(here)] = made;
    *found = made;
    return LS_OK;
}

/* ---- Packed weights ---- */

static void drop_pack(session *here, int index) {
    here->packed_bytes -= here->packs[index].bytes;
    ls_free(here->packs[index].data);
    /* Order means nothing here; `last_use` says what is old. */
    here->packs[index] = here->packs[--here->pack_count];
}

/* Makes room for `bytes` more. */
static void drop_old_packs(session *here, size_t bytes) {
    while (here->pack_count > 0 &&
           (here->pack_count == SESSION_PACKS || here->packed_bytes + bytes > SESSION_PACKED_BYTES)) {
        int oldest = 0;
        for (int i = 1; i < here->pack_count; i++) {
            if (here->packs[i].last_use < here->packs[oldest].last_use) oldest = i;
        }
        drop_pack(here, oldest);
    }
}

/* The place for `weight` in the layout of `of`, its memory there, its content perhaps old. */
static ls_status find_pack(session *here, const plan *of, const void *weight, packed_weight **found) {
    for (int i = 0; i < here->pack_count; i++) {
        packed_weight *const pack = &here->packs[i];
        if (pack->weight == weight && pack->plan_serial == of->serial) {
            *found = pack;
            return LS_OK;
        }
    }
    drop_old_packs(here, of->weight_bytes);
    void *const data = ls_alloc_raw(of->weight_bytes);
    if (!data) return LS_ERR_MEMORY;
    *found = &here->packs[here->pack_count++];
    **found = (packed_weight){.weight = weight, .plan_serial = of->serial, .data = data, .bytes = of->weight_bytes};
    here->packed_bytes += of->weight_bytes;
    return LS_OK;
}

ls_status session_pack(session *here, plan *of, const void *weight, uint64_t version, void **packed) {
    packed_weight *pack = NULL;
    LS_TRY(find_pack(here, of, weight, &pack));
    pack->last_use = ++here->now;
    *packed = pack->data;
    /* The address alone would not do: an optimizer changes weights in place. */
    if (version != 0 && pack->version == version) return LS_OK;
    pack->version = 0; /* while it is half written */
    LS_TRY(call_run(here, &of->store, (const void *const[]){weight, pack->data}, NULL));
    pack->version = version;
    return LS_OK;
}
