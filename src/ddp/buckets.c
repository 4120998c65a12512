/* buckets.c: the layout of gradients in buckets. */
#include "ddp/buckets.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* A bucket while the plan is made. Members are linked through `next_member`, so that one pass over `order` suffices. */
typedef struct draft {
    ls_dtype dtype;
    int first, last;   /* members, first and last along the order */
    int last_position; /* of `last` in the order: when the bucket is ready */
    int member_count;
} draft;

/* The bucket of each dtype that still takes parameters. */
typedef struct open_bucket {
    int draft;      /* -1: none is open */
    size_t payload; /* bytes so far */
    size_t cap;
} open_bucket;

typedef struct drafting {
    const bucket_request *request;
    draft *drafts;
    int draft_count;
    int *next_member; /* [parameter_count], -1 ends a bucket */
    open_bucket open[LS_DTYPE_COUNT];
    size_t cap;
} drafting;

static void close_bucket(drafting *work, open_bucket *open) {
    open->draft = -1;
    open->payload = 0;
    /* The first cap is for the first bucket of the type alone. */
    open->cap = work->cap;
}

static void append(drafting *work, open_bucket *open, int position) {
    const int parameter = work->request->order[position];
    if (open->draft < 0) {
        open->draft = work->draft_count++;
        work->drafts[open->draft] = (draft){.dtype = work->request->dtypes[parameter], .first = parameter, .last = -1};
    }
    draft *bucket = &work->drafts[open->draft];
    if (bucket->last >= 0) work->next_member[bucket->last] = parameter;
    work->next_member[parameter] = -1;
    bucket->last = parameter;
    bucket->last_position = position;
    bucket->member_count++;
    /* Without padding: capacity counts payload, so that layouts do not depend on the alignment. */
    open->payload += work->request->bytes[parameter];
}

static void place(drafting *work, int position) {
    const int parameter = work->request->order[position];
    const size_t bytes = work->request->bytes[parameter];
    open_bucket *open = &work->open[work->request->dtypes[parameter]];
    if (bytes > work->cap && open->draft >= 0) close_bucket(work, open); /* too large to share */
    append(work, open, position);
    if (open->payload >= open->cap) close_bucket(work, open);
}

/* Insertion sort: drafts are nearly in order already, since buckets of one dtype close one after the other. */
static void sort_by_readiness(draft *drafts, int count) {
    for (int i = 1; i < count; i++) {
        const draft moving = drafts[i];
        int at = i;
        for (; at > 0 && drafts[at - 1].last_position > moving.last_position; at--) drafts[at] = drafts[at - 1];
        drafts[at] = moving;
    }
}

static ls_status allocate(bucket_plan *plan, int parameter_count, int bucket_count) {
    const size_t parameters = (size_t)parameter_count, buckets = (size_t)bucket_count;
    *plan = (bucket_plan){.parameter_count = parameter_count, .bucket_count = bucket_count};
    plan->bucket_of = ls_alloc_array(parameters, sizeof *plan->bucket_of);
    plan->offset_of = ls_alloc_array(parameters, sizeof *plan->offset_of);
    plan->members = ls_alloc_array(parameters, sizeof *plan->members);
    plan->first_member = ls_alloc_array(buckets + 1, sizeof *plan->first_member);
    plan->bytes_of = ls_alloc_array(buckets, sizeof *plan->bytes_of);
    plan->dtype_of = ls_alloc_array(buckets, sizeof *plan->dtype_of);
    if (plan->bucket_of && plan->offset_of && plan->members && plan->first_member && plan->bytes_of && plan->dtype_of)
        return LS_OK;
    bucket_plan_clear(plan);
    return LS_ERR_MEMORY;
}

static size_t align_up(size_t bytes) {
    return (bytes + BUCKET_ALIGNMENT - 1) / BUCKET_ALIGNMENT * BUCKET_ALIGNMENT;
}

static void fill_in(bucket_plan *plan, const drafting *work) {
    int member = 0;
    for (int bucket = 0; bucket < work->draft_count; bucket++) {
        const draft *from = &work->drafts[bucket];
        plan->first_member[bucket] = member;
        plan->dtype_of[bucket] = from->dtype;
        /* Members lie in the order in which their gradients come: memory is written from front to back. */
        for (int parameter = from->first; parameter >= 0; parameter = work->next_member[parameter]) {
            plan->bucket_of[parameter] = bucket;
            plan->offset_of[parameter] = plan->bytes_of[bucket];
            plan->bytes_of[bucket] += align_up(work->request->bytes[parameter]);
            plan->members[member++] = parameter;
        }
    }
    /* One past the end, so that every bucket's members are a difference of two. */
    plan->first_member[work->draft_count] = member;
}

ls_status bucket_plan_init(bucket_plan *plan, const bucket_request *request) {
    ls_status status = LS_ERR_MEMORY;
    const size_t count = (size_t)request->parameter_count;
    *plan = (bucket_plan){0};
    drafting work = {.request = request, .cap = request->cap_bytes ? request->cap_bytes : BUCKET_CAP_BYTES};
    size_t first_cap = request->first_cap_bytes;
    if (!first_cap) first_cap = work.cap < FIRST_BUCKET_CAP_BYTES ? work.cap : FIRST_BUCKET_CAP_BYTES;
    for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++)
        /* A bucket is of one type, since one operation reduces it; each type fills its own. */
        work.open[dtype] = (open_bucket){.draft = -1, .cap = first_cap};

    /* As many as there could be at most: a bucket a parameter. */
    work.drafts = ls_alloc_array(count, sizeof *work.drafts);
    work.next_member = ls_alloc_array(count, sizeof *work.next_member);
    if (!work.drafts || !work.next_member) goto out;
    for (int position = 0; position < request->parameter_count; position++) place(&work, position);
    sort_by_readiness(work.drafts, work.draft_count);
    status = allocate(plan, request->parameter_count, work.draft_count);
    if (status == LS_OK) fill_in(plan, &work);
out:
    ls_free(work.drafts);
    ls_free(work.next_member);
    return status;
}

void bucket_plan_clear(bucket_plan *plan) {
    ls_free(plan->bucket_of);
    ls_free(plan->offset_of);
    ls_free(plan->members);
    ls_free(plan->first_member);
    ls_free(plan->bytes_of);
    ls_free(plan->dtype_of);
    *plan = (bucket_plan){0};
}

bool bucket_plan_equal(const bucket_plan *a, const bucket_plan *b) {
    /* Where each parameter lies says everything else: members, sizes and types follow from it. */
    if (a->parameter_count != b->parameter_count || a->bucket_count != b->bucket_count) return false;
    for (int parameter = 0; parameter < a->parameter_count; parameter++)
        if (a->bucket_of[parameter] != b->bucket_of[parameter] || a->offset_of[parameter] != b->offset_of[parameter])
            return false;
    return true;
}
