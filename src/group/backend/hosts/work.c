/* work.c: what a rank does by itself between two steps of a plan. Pure.
 *
 * A matrix has a row for each rank, those of one index together, in the order of their hosts: so what a lane combines is one
 * stretch, and so is what one host's rank on it gets. */
#include "group/backend/hosts/hosts.h"

#include <string.h>

#define ELEMENTS_AT_ONCE ((size_t)32768)

/* The array's elements in the type in which they are combined. */
static void load(const group_call *call, void *into, const void *from, size_t count) {
    const reduce_kernel *kernel = reduce_kernel_for(call->dtype, call->op);
    if (kernel->next) /* a value is the larger of itself and itself, in the wider type */
        reduce_kernel_for(call->dtype, LS_MAX)->begin(into, from, from, count);
    else
        memcpy(into, from, count * ls_dtype_size(call->dtype));
}

static size_t matrix_row(const hosts_place *place, int rank) {
    return (size_t)place->index_of[rank] * (size_t)place->host_count + (size_t)place->host_of[rank];
}

static void move_row(const hosts_place *place, const hosts_step *step, int rank) {
    const group_call *call = &step->call;
    const size_t element = ls_dtype_size(call->dtype), first = step->rows.first + (size_t)rank * step->rows.stride;
    const size_t left = first < step->rows.limit ? step->rows.limit - first : 0;
    const size_t count = call->count < left ? call->count : left, row = matrix_row(place, rank) * call->count;
    if (count == 0) return;
    if (step->where == HOSTS_STORE)
        memcpy((char *)call->data + first * element, (const char *)call->send + row * element, count * element);
    else
        load(call, (char *)call->data + row * reduce_kernel_for(call->dtype, call->op)->wide_bytes,
             (const char *)call->send + first * element, count);
}

static bool move_rows(const hosts_place *place, const hosts_step *step, size_t *done) {
    for (size_t moved = 0; *done < (size_t)place->world_size && moved < ELEMENTS_AT_ONCE; moved += step->call.count)
        move_row(place, step, (int)(*done)++);
    return *done == (size_t)place->world_size;
}

static bool end_some(const hosts_place *place, const group_call *call, size_t *done) {
    const reduce_kernel *kernel = reduce_kernel_for(call->dtype, call->op);
    const size_t left = call->count - *done, count = left < ELEMENTS_AT_ONCE ? left : ELEMENTS_AT_ONCE;
    if (count)
        kernel->end((char *)call->data + *done * ls_dtype_size(call->dtype),
                    (const char *)call->send + *done * kernel->wide_bytes, count, place->world_size);
    *done += count;
    return *done == call->count;
}

bool hosts_work(const hosts_place *place, const hosts_step *step, size_t *done) {
    return step->where == HOSTS_END ? end_some(place, &step->call, done) : move_rows(place, step, done);
}
