/* storage.c: buckets in group memory, and moving them. */
#include "ddp/storage.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "ddp/bitmap.h"

static ls_status allocate_bucket(ls_group *group, size_t bytes, void **memory) {
    *memory = NULL;
    return bytes > 0 ? ls_group_alloc(group, bytes, memory) : LS_OK;
}

/* A layout of which no bucket is allocated yet. */
static gradient_storage take_over(ls_group *group, bucket_plan *plan, void ***memory) {
    const gradient_storage taken = {.group = group, .plan = *plan, .memory = *memory};
    *plan = (bucket_plan){0};
    *memory = NULL;
    return taken;
}

ls_status storage_init(gradient_storage *storage, ls_group *group, bucket_plan *plan, void ***memory) {
    *storage = take_over(group, plan, memory);
    /* Gradients are written by the processor: a backend of device memory alone is refused here, with a sentence. */
    ls_status status = group_check_host_memory(group);
    for (int bucket = 0; bucket < storage->plan.bucket_count && status == LS_OK; bucket++)
        status = allocate_bucket(group, storage->plan.bytes_of[bucket], &storage->memory[bucket]);
    if (status != LS_OK) storage_clear(storage);
    return status;
}

void storage_clear(gradient_storage *storage) {
    /* Local and in any order: what is collective is the allocation alone. */
    for (int bucket = 0; storage->memory && bucket < storage->plan.bucket_count; bucket++)
        ls_group_free(storage->group, storage->memory[bucket]);
    for (int bucket = 0; bucket < storage->abandoned_count; bucket++)
        ls_group_free(storage->group, storage->abandoned[bucket]);
    ls_free(storage->memory);
    ls_free(storage->abandoned);
    bucket_plan_clear(&storage->plan);
    *storage = (gradient_storage){0};
}

void *storage_gradient(const gradient_storage *storage, int parameter) {
    /* NULL for a parameter without elements in a bucket of nothing else. */
    char *memory = storage->memory[storage->plan.bucket_of[parameter]];
    return memory ? memory + storage->plan.offset_of[parameter] : NULL;
}

/* Moves the members of one new bucket and frees the old buckets that have none left. */
static ls_status move_members(gradient_storage *old, const gradient_storage *fresh, int bucket, const size_t *bytes,
                              int *members_left, storage_move move, void *context) {
    for (int at = fresh->plan.first_member[bucket]; at < fresh->plan.first_member[bucket + 1]; at++) {
        const int parameter = fresh->plan.members[at];
        const int from = old->plan.bucket_of[parameter];
        void *from_memory = storage_gradient(old, parameter);
        LS_TRY(move(context, parameter, from_memory, storage_gradient(fresh, parameter)));
        /* Whole pages go back before the next bucket is allocated: that keeps the peak at one bucket more. */
        if (from_memory) group_discard(from_memory, bytes[parameter]);
        /* Members of an old bucket scatter over several new ones; the last one out closes the door. */
        if (--members_left[from] > 0) continue;
        ls_group_free(old->group, old->memory[from]);
        old->memory[from] = NULL;
    }
    return LS_OK;
}

ls_status storage_rebuild(gradient_storage *storage, bucket_plan *plan, void ***memory, const size_t *bytes,
                          int *scratch, storage_move move, void *context) {
    gradient_storage fresh = take_over(storage->group, plan, memory);
    const bucket_plan *before = &storage->plan;
    int *members_left = scratch; /* [before->bucket_count] */
    for (int bucket = 0; bucket < before->bucket_count; bucket++)
        members_left[bucket] = before->first_member[bucket + 1] - before->first_member[bucket];
    ls_status status = LS_OK;
    for (int bucket = 0; bucket < fresh.plan.bucket_count && status == LS_OK; bucket++) {
        status = allocate_bucket(fresh.group, fresh.plan.bytes_of[bucket], &fresh.memory[bucket]);
        if (status != LS_OK) break;
        ls_point("ddp.rebuild.allocated");
        status = move_members(storage, &fresh, bucket, bytes, members_left, move, context);
    }
    if (status == LS_OK) {
        /* A swap: what is cleared below is the old layout. */
        const gradient_storage emptied = *storage;
        *storage = fresh;
        fresh = emptied;
    } else {
        /* Leaves may have their homes in the new buckets already, so that these outlive this call. */
        storage->abandoned = fresh.memory;
        storage->abandoned_count = fresh.plan.bucket_count;
        fresh.memory = NULL;
    }
    storage_clear(&fresh);
    return status;
}

bool storage_next_run(const gradient_storage *storage, int bucket, const uint64_t *used, const size_t *bytes,
                      int *cursor, storage_run *run) {
    const bucket_plan *plan = &storage->plan;
    const int *members = plan->members + plan->first_member[bucket];
    const int count = plan->first_member[bucket + 1] - plan->first_member[bucket];
    int at = *cursor;
    /* What nobody uses is left out of the reduction, and so keeps its bytes. */
    while (at < count && used && !bitmap_has(used, members[at])) at++;
    if (at == count || !storage->memory[bucket]) return false;
    const size_t start = plan->offset_of[members[at]];
    size_t end = start;
    for (; at < count && (!used || bitmap_has(used, members[at])); at++)
        /* Padding between neighbours is reduced with them: a few zeros, and one operation instead of two. */
        end = plan->offset_of[members[at]] + bytes[members[at]];
    *cursor = at;
    *run = (storage_run){.data = (char *)storage->memory[bucket] + start,
                         .count = (end - start) / ls_dtype_size(plan->dtype_of[bucket])};
    return true;
}
