/* step.c: the scope of a step, who owns what ops return, and the step's first error.
 *
 *     held:  [ step's results ... | results of the module that runs | of its child that runs ]
 *              ^ step                ^ scope                           ^ scope
 *
 * A module's scope closes with its forward: what it returned moves down into the scope around, the rest is let go, so
 * that activations live only as long as the tape has saved them.                                                     */
#include "autograd/step.h"

#include "autograd/state.h"
#include "tensor/arena.h"

#include <pthread.h>
#include <string.h>

static _Thread_local autograd_state state;

autograd_state *autograd_state_here(void) {
    return &state;
}

/* ---- The lists, and their end with the thread ---- */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t end_key;
static bool has_key;

static void close_held_down_to(int start) {
    /* The newest first: a result that a later one was made of outlives it. */
    while (state.held_count > start) ls_tensor_close(&state.held[--state.held_count]);
}

void autograd_give_back_empty_lists(void) {
    if (state.held_count == 0 && state.scope_depth == 0) {
        arena_give(state.held);
        state.held = NULL;
        state.held_capacity = 0;
    }
    if (state.listed_count == 0 && state.mark_count == 0) {
        if (state.listed != state.few_listed) arena_give(state.listed);
        state.listed = NULL;
        state.listed_capacity = 0;
    }
}

/* A thread that ends within a step. */
static void thread_ends(void *unused) {
    (void)unused;
    state.scope_depth = 0;
    state.listed_count = 0;
    close_held_down_to(0);
    autograd_give_back_empty_lists();
}

static void make_key(void) {
    has_key = pthread_key_create(&end_key, thread_ends) == 0;
}

ls_status autograd_reserve(void **array, int *capacity, int count, size_t entry_bytes) {
    if (count <= *capacity) return LS_OK;
    pthread_once(&key_once, make_key);
    /* The key is set once there is something to clean up. */
    if (!has_key || pthread_setspecific(end_key, &state) != 0)
        return ls_fail(LS_ERR_MEMORY, "autograd: no thread-specific key is left");
    /* Doubled, so that a step of a thousand ops moves its list ten times, and the next step's not at all. */
    int room = *capacity > 0 ? *capacity : 8;
    while (room < count) room *= 2;
    void *larger = arena_take((size_t)room * entry_bytes);
    if (!larger) return LS_ERR_MEMORY;
    if (*array) memcpy(larger, *array, (size_t)*capacity * entry_bytes);
    arena_give(*array);
    *array = larger;
    *capacity = room;
    return LS_OK;
}

/* ---- Holding ---- */

/* Room before the hold changes hands, so that no tensor is lost between two owners. */
static ls_status reserve_held(int count) {
    return autograd_reserve((void **)&state.held, &state.held_capacity, count, sizeof(ls_tensor *));
}

ls_tensor *autograd_hold(ls_tensor *tensor) {
    if (!tensor || state.scope_depth == 0) return tensor;
    if (reserve_held(state.held_count + 1) != LS_OK) {
        ls_tensor_close(&tensor);
        return NULL;
    }
    state.held[state.held_count++] = tensor;
    return tensor;
}

/* The place of `tensor` in `held` at or above `start`, the newest first; -1: not there. */
static int find_held(const ls_tensor *tensor, int start) {
    for (int i = state.held_count - 1; i >= start; i--)
        if (state.held[i] == tensor) return i;
    return -1;
}

bool autograd_is_held(const ls_tensor *tensor) {
    return find_held(tensor, 0) >= 0;
}

void autograd_hold_instead(ls_tensor *former, ls_tensor *result) {
    const int place = find_held(former, 0);
    /* A NULL may stand there: closing it does nothing. */
    if (place >= 0) state.held[place] = result;
    ls_tensor_close(&former);
}

void autograd_scope_drop(ls_tensor *tensor) {
    const int place = find_held(tensor, 0);
    if (place < 0) return;
    state.held_count--;
    memmove(&state.held[place], &state.held[place + 1], (size_t)(state.held_count - place) * sizeof(ls_tensor *));
    ls_tensor_close(&tensor);
}

int autograd_scope_open(void) {
    state.scope_depth++;
    return state.held_count;
}

/* Moves one output to `place`, the end of what the scope around owns. */
static ls_status hand_down(ls_tensor *output, int place) {
    /* Found: swapped to its place. Not found: the input itself, or the same output twice, so one holder more. */
    int found = find_held(output, place);
    if (found < 0) {
        LS_TRY(reserve_held(state.held_count + 1));
        found = state.held_count++;
        state.held[found] = ls_tensor_keep(output);
    }
    /* The order in a scope does not matter: all of it is let go at one moment. */
    state.held[found] = state.held[place];
    state.held[place] = output;
    return LS_OK;
}

ls_status autograd_scope_close(int scope, ls_tensor **outputs, int count) {
    ls_status status = LS_OK;
    int end = scope;
    for (int i = 0; i < count && status == LS_OK; i++) {
        if (!outputs[i]) continue;
        status = hand_down(outputs[i], end);
        if (status == LS_OK) end++;
    }
    if (status != LS_OK) {
        memset(outputs, 0, (size_t)count * sizeof(ls_tensor *));
        end = scope;
    }
    close_held_down_to(end);
    state.scope_depth--;
    if (state.scope_depth == 0) state.held_count = scope; /* the caller's now */
    autograd_give_back_empty_lists();
    return status;
}

/* ---- The step ---- */

ls_status autograd_fail(ls_status status) {
    if (status == LS_OK) return status;
    /* Outside a step too: a NULL that the caller passes on has a cause to be told. */
    state.last_failure = status;
    if (state.is_in_step && state.step_error.status == LS_OK) ls_error_capture(&state.step_error, status);
    return status;
}

ls_status autograd_failure_behind_null(const char *name) {
    if (state.is_in_step && state.step_error.status != LS_OK) return ls_error_raise(&state.step_error);
    if (state.last_failure != LS_OK) return state.last_failure;
    /* Whoever gave the NULL may have said why: a loader whose sample cannot be read. */
    const ls_status before = ls_last_status();
    if (before >= LS_OK) return ls_fail(LS_ERR_ARGUMENT, "%s: the tensor is NULL", name);
    return ls_fail_within(before, "%s: the tensor is NULL; this thread's last failure", name);
}

void ls_step_begin(void) {
    /* The step goes on, to its one end, which reports this. */
    if (state.is_in_step) {
        autograd_fail(
            ls_fail(LS_ERR_STATE, "ls_step_begin: a step is open on this thread; end it with ls_step_end first"));
        return;
    }
    state.is_in_step = true;
    state.step_error.status = LS_OK;
    state.last_failure = LS_OK;
    /* A step is a scope: what ops return in it ends with it. */
    state.step_scope = autograd_scope_open();
    state.step_depth = state.scope_depth;
}

ls_status ls_step_end(void) {
    if (!state.is_in_step)
        return ls_fail(LS_ERR_STATE, "ls_step_end: no step is open on this thread; begin it with ls_step_begin");
    /* Ending here would let go of what a forward or a backward still works on. */
    if (state.scope_depth != state.step_depth || state.is_in_backward)
        return ls_fail(LS_ERR_STATE,
                       "ls_step_end: called inside a module's forward or a backward; end the step after it");
    autograd_scope_close(state.step_scope, NULL, 0);
    /* Whoever is still listed had no backward in this step, and its tape is gone. */
    state.listed_count = 0;
    autograd_give_back_empty_lists();
    state.is_in_step = false;
    state.last_failure = LS_OK;
    state.step_number++;
    return ls_error_raise(&state.step_error);
}

ls_status ls_step_status(void) {
    return state.is_in_step ? state.step_error.status : LS_OK;
}

void ls_no_grad_begin(void) {
    state.no_grad_depth++;
}

void ls_no_grad_end(void) {
    /* One end too many is harmless. */
    if (state.no_grad_depth > 0) state.no_grad_depth--;
}

bool autograd_grad_is_on(void) {
    return state.no_grad_depth == 0;
}
