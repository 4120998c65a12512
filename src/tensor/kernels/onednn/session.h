/* session.h: what a thread keeps of oneDNN between calls: an engine, primitives by shape, packed weights, scratch.
 *
 * oneDNN works in three steps: describe an operation for given shapes, make a primitive of it (code is generated,
 * which takes milliseconds), execute it on memory objects. The first two and the memory objects are kept as a plan,
 * so that a call on a shape seen before only sets pointers and executes. All of it belongs to one thread and goes
 * when the thread ends. */
#ifndef LS_ONEDNN_SESSION_H
#define LS_ONEDNN_SESSION_H

#include "tensor/kernels/onednn/compat.h"

#include <lockstep/base.h>

enum { CALL_ARGUMENTS = 5, PLAN_SIZES = 9, SESSION_PLANS = 128, SESSION_PACKS = 128 };

/* Packed weights kept beyond this are let go, the longest unused first. */
#define SESSION_PACKED_BYTES ((size_t)64 << 20)

/* A primitive with its memory objects. The last one is its scratchpad. */
typedef struct call {
    dnnl_primitive_t primitive;
    int argument_count;
    dnnl_exec_arg_t arguments[CALL_ARGUMENTS];
    size_t scratch_bytes;
} call;

/* What a plan is for: the operation and all its sizes. */
typedef struct plan_key {
    int64_t operation; /* as wide as the sizes: keys are compared as bytes, so they have no padding */
    int64_t sizes[PLAN_SIZES];
} plan_key;

typedef struct plan {
    plan_key key;
    uint64_t serial; /* never given twice in a session: packed weights name their plan by it */
    uint64_t last_use;
    call main;
    call store, add; /* convolutions: weights between hwio and the layout that `main` wants; zeroed where not needed */
    size_t weight_bytes; /* of the weights in that layout */
} plan;

/* A weight in the layout of one plan. */
typedef struct packed_weight {
    const void *weight;
    uint64_t version; /* 0: holds nothing that may be used */
    uint64_t plan_serial;
    uint64_t last_use;
    void *data;
    size_t bytes;
} packed_weight;

typedef struct session {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    plan *plans[SESSION_PLANS];
    int plan_count;
    packed_weight packs[SESSION_PACKS];
    int pack_count;
    size_t packed_bytes;
    void *scratch;
    size_t scratch_bytes;
    uint64_t now; /* counts uses and serials */
} session;

/* The calling thread's session, opened on the first call. */
ls_status session_here(session **found);

/* Frees the calling thread's session. */
void session_release(void);

/* The plan for `key`, made by `build` where there is none yet. build fills a zeroed plan; what it left is freed on
 * error. */
typedef ls_status plan_builder(session *here, plan *made);
ls_status session_plan(session *here, const plan_key *key, plan_builder *build, plan **found);

/* Memory for the length of one call, at least `bytes`, aligned to a cache line. */
ls_status session_scratch(session *here, size_t bytes, void **memory);

/* `weight` in the layout of plan->main: packed now, unless this version of it is there already. */
ls_status session_pack(session *here, plan *of, const void *weight, uint64_t version, void **packed);

/* Makes a call from a description. `kinds` are oneDNN's names of the arguments (DNNL_ARG_SRC, ...), `layouts` how
 * they lie. */
ls_status call_create(session *here, call *made, const_dnnl_primitive_desc_t description, int count, const int *kinds,
                      const layout_ref *layouts);

/* Makes a call that moves an array from one layout to another, adding to what is there if `adds`. */
ls_status call_create_move(session *here, call *made, layout_ref from, layout_ref to, bool adds);

void call_close(call *made);

/* Executes on the given pointers, in the order of `kinds`. Moves need no scratch: NULL. */
ls_status call_run(session *here, const call *made, const void *const *pointers, void *scratch);

/* Attributes of every primitive of ours: scratchpads come from us. `adds` appends "plus what is there". */
ls_status attributes_create(dnnl_primitive_attr_t *made, bool adds);

/* LS_OK, or the failure of a call of oneDNN as ours. */
ls_status onednn_status(dnnl_status_t status, const char *what);

#endif
