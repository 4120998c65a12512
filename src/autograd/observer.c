/* observer.c: the list of observers, and their marks on the tape. */
#include "autograd/observer.h"

#include "autograd/marks.h"
#include "autograd/op.h"
#include "autograd/state.h"
#include "autograd/step.h"

#include <string.h>

/* Few are ever listed: one a wrap. */
static listed_observer *find(const autograd_observer *observer) {
    autograd_state *state = autograd_state_here();
    for (int i = 0; i < state->listed_count; i++)
        if (state->listed[i].observer == observer) return &state->listed[i];
    return NULL;
}

/* Room for all that is listed and for every mark of the tape: so a backward that finds a mark can list it without
 * fail. */
static ls_status reserve(int more_listed, int more_marks) {
    autograd_state *state = autograd_state_here();
    const int count = state->listed_count + more_listed + state->mark_count + more_marks;
    if (!state->listed) {
        state->listed = state->few_listed;
        state->listed_capacity = FEW_LISTED;
    }
    if (count <= state->listed_capacity) return LS_OK;
    /* The few that lie in the state cost no memory and cannot be refused any; they are copied, not given back. */
    const bool is_in_place = state->listed == state->few_listed;
    listed_observer *list = is_in_place ? NULL : state->listed;
    int capacity = is_in_place ? 0 : state->listed_capacity;
    LS_TRY(autograd_reserve((void **)&list, &capacity, count, sizeof list[0]));
    if (is_in_place) memcpy(list, state->few_listed, sizeof state->few_listed);
    state->listed = list;
    state->listed_capacity = capacity;
    return LS_OK;
}

static listed_observer *append(const autograd_observer *observer) {
    autograd_state *state = autograd_state_here();
    /* There is room: whoever calls has reserved it, or a mark has. */
    listed_observer *entry = &state->listed[state->listed_count++];
    *entry = (listed_observer){.observer = observer};
    return entry;
}

/* However often the module runs, its owner hears of one backward. */
ls_status autograd_observer_list(const autograd_observer *observer) {
    if (find(observer)) return LS_OK;
    LS_TRY(reserve(1, 0));
    append(observer);
    return LS_OK;
}

/* ---- Marks: an identity on the tape that names the observer ---- */

/* The gradient goes through as it is. */
static ls_status mark_backward(backward_call *call) {
    return op_pass(call, 0, true);
}

/* Backward has passed the mark, or its tape was let go. */
static void unlink_mark(autograd_node *mark) {
    autograd_state *state = autograd_state_here();
    autograd_node *previous = mark->attributes.mark.previous, *next = mark->attributes.mark.next;
    /* Linked both ways: a tape is let go in any order, and marks by the thousand must not make it slow. */
    if (previous) previous->attributes.mark.next = next;
    if (next) next->attributes.mark.previous = previous;
    if (state->marks == mark) state->marks = next;
    state->mark_count--;
    autograd_give_back_empty_lists();
}

static const autograd_op mark_op = {
    .name = "a wrapped module's output", .backward = mark_backward, .destroy = unlink_mark};

static void link_mark(autograd_node *mark, const autograd_observer *observer) {
    autograd_state *state = autograd_state_here();
    mark->attributes.mark.observer = observer;
    mark->attributes.mark.previous = NULL;
    mark->attributes.mark.next = state->marks;
    if (state->marks) state->marks->attributes.mark.previous = mark;
    state->marks = mark;
    state->mark_count++;
}

ls_tensor *autograd_observer_mark(const autograd_observer *observer, ls_tensor *output) {
    if (!output || !node_is_needed(&output, 1)) return output;
    ls_tensor *result = NULL;
    /* An alias, since the output's own node stays what the mark depends on. */
    ls_status status = reserve(0, 1);
    if (status == LS_OK) status = tensor_create_alias(&result, output);
    autograd_node *mark = status == LS_OK ? node_create(&mark_op, &output, 1, 0) : NULL;
    if (!mark) {
        ls_tensor_close(&result);
        /* The output is gone from whoever held it: NULL flows on in its place. */
        autograd_hold_instead(output, NULL);
        autograd_fail(LS_ERR_MEMORY);
        return NULL;
    }
    link_mark(mark, observer);
    node_attach(mark, result);
    autograd_hold_instead(output, result);
    return result;
}

void autograd_observer_forget(const autograd_observer *observer) {
    autograd_state *state = autograd_state_here();
    /* Marks on a tape that nobody has run backward yet outlive the owner. */
    for (autograd_node *mark = state->marks; mark; mark = mark->attributes.mark.next)
        if (mark->attributes.mark.observer == observer) mark->attributes.mark.observer = NULL;
    listed_observer *entry = find(observer);
    if (!entry) return;
    state->listed_count--;
    memmove(entry, entry + 1, (size_t)(&state->listed[state->listed_count] - entry) * sizeof *entry);
    autograd_give_back_empty_lists();
}

/* ---- What backward asks ---- */

void marks_reach(const autograd_node *node) {
    const autograd_observer *observer = node->op == &mark_op ? node->attributes.mark.observer : NULL;
    if (!observer) return;
    /* Not listed any more: a second backward after two forwards. reserve() has made room. */
    listed_observer *entry = find(observer);
    if (!entry) entry = append(observer);
    entry->takes_part = true;
}

void marks_reach_all_listed(void) {
    autograd_state *state = autograd_state_here();
    for (int i = 0; i < state->listed_count; i++) state->listed[i].takes_part = true;
}

void marks_unlist_called(void) {
    autograd_state *state = autograd_state_here();
    int kept = 0;
    for (int i = 0; i < state->listed_count; i++)
        if (!state->listed[i].takes_part) state->listed[kept++] = state->listed[i];
    state->listed_count = kept;
    autograd_give_back_empty_lists();
}
