/* work.c: what a rank does by itself between two steps of a plan, some of it at a time. Pure. */
#include "group/backend/hosts/hosts.h"

#include <string.h>

#define ELEMENTS_AT_ONCE ((size_t)32768)

/* `count` elements from `index` on in the user's array, from `place` on in scratch. */
static void move(const hosts_step *step, size_t index, size_t place, size_t count) {
    const group_call *call = &step->call;
    const size_t size = ls_dtype_size(call->dtype), between = ls_dtype_size(step->layout.dtype);
    if (step->where == HOSTS_STORE)
        memcpy((char *)call->data + index * size, (const char *)call->send + place * size, count * size);
    else if (step->layout.dtype == call->dtype)
        memcpy((char *)call->data + place * size, (const char *)call->send + index * size, count * size);
    else { /* a value is the larger of itself and itself, in the wider type */
        const char *from = (const char *)call->send + index * size;
        reduce_kernel_for(call->dtype, LS_MAX)->begin((char *)call->data + place * between, from, from, count);
    }
}

/* Where parts end within the row, it goes on on the next lane. */
static void move_row(const hosts_place *place, const hosts_step *step, int rank) {
    const size_t part = step->layout.part, count = step->call.count;
    const size_t first = (size_t)place->index_of[rank] * count, user = (size_t)rank * step->layout.stride;
    for (size_t done = 0, run = 0; done < count; done += run) {
        const size_t lane = (first + done) / part, in_part = (first + done) % part;
        const size_t row = lane * (size_t)place->host_count + (size_t)place->host_of[rank];
        run = part - in_part < count - done ? part - in_part : count - done;
        move(step, user + done, row * part + in_part, run);
    }
}

static bool move_rows(const hosts_place *place, const hosts_step *step, size_t *done) {
    for (size_t moved = 0; *done < (size_t)place->world_size && moved < ELEMENTS_AT_ONCE; moved += step->call.count)
        move_row(place, step, (int)(*done)++);
    return *done == (size_t)place->world_size;
}

bool hosts_work(const hosts_place *place, const hosts_step *step, size_t *done) {
    const group_call *call = &step->call;
    const reduce_kernel *kernel = reduce_kernel_for(call->dtype, call->op);
    const size_t left = call->count - *done, count = left < ELEMENTS_AT_ONCE ? left : ELEMENTS_AT_ONCE;
    if (step->layout.stride) return move_rows(place, step, done);
    if (count && step->where == HOSTS_END)
        kernel->end((char *)call->data + *done * ls_dtype_size(call->dtype),
                    (const char *)call->send + *done * kernel->wide_bytes, count, place->world_size);
    else if (count)
        move(step, *done, *done, count);
    *done += count;
    return *done == call->count;
}
