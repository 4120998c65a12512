/* explore.c: the search. Breadth first, so that the way to what is found is the shortest there is. Afterwards the steps are
 * walked backwards from the ends: a state that is not come to has no way to an end, however its threads take turns. */
#include "models/explore_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const explore_mutation *left_out;
static bool was_met;

static uint32_t (*edges)[2];
static size_t edge_count, edge_room;
static bool *is_hopeful; /* of each state: it is an end; then, a way leads from it to one */
static size_t hopeful_room;

/* --- steps -------------------------------------------------------------------------------------------------------------- */

bool is_left_out(explore_place place, const char *what) {
    if (!left_out || strcmp(left_out->what, what) != 0 || strcmp(left_out->where, place.where) != 0 ||
        (left_out->at && !strstr(place.at, left_out->at)))
        return false;
    was_met = true;
    return true;
}

bool explore_was_met(void) {
    return was_met;
}

static bool is_possible(int choice) {
    const thread_state *thread = &threads[choice % MOST_THREADS];
    if (choice % MOST_THREADS >= thread_count) return false;
    if (choice < MOST_THREADS) return may_run(thread);
    const int index = choice / MOST_THREADS - 1;
    return index < thread->stores && may_leave(thread, index);
}

void take_choice(uint32_t state, int choice) {
    states_restore(state, choice < MOST_THREADS ? choice : -1);
    if (choice < MOST_THREADS) {
        resume(choice);
        states_save_thread(choice);
    } else {
        running = choice % MOST_THREADS;
        const int index = choice / MOST_THREADS - 1;
        tell_leaving(&threads[running].buffer[index]);
        let_leave(&threads[running], index);
    }
    states_save_memory();
}

/* --- forwards ----------------------------------------------------------------------------------------------------------- */

static void add_edge(uint32_t from, uint32_t to) {
    edges = grow(edges, &edge_room, edge_count, sizeof *edges);
    edges[edge_count][0] = from;
    edges[edge_count++][1] = to;
}

/* Every step from `state`. Returns whether there was one. */
static bool visit(uint32_t state, explore_result *result) {
    bool has_choice = false;
    for (int choice = 0; choice < MOST_CHOICES && !result->is_violated; choice++) {
        states_restore(state, -1);
        if (!is_possible(choice)) continue;
        has_choice = true;
        result->steps++;
        take_choice(state, choice);
        if (broken_claim)
            report(result, broken_claim, false, state, choice);
        else
            add_edge(state, states_keep(state, choice));
    }
    return has_choice;
}

static void visit_all(const explore_scene *scene, explore_result *result) {
    for (uint32_t state = 0; state < states_count() && !result->is_violated; state++) {
        is_hopeful = grow(is_hopeful, &hopeful_room, state, sizeof(bool));
        states_restore(state, -1);
        is_hopeful[state] = scene->is_end();
        if (!visit(state, result) && !is_hopeful[state]) report(result, "nobody can go on", true, state, -1);
        if (states_count() > scene->most_states && !result->is_violated) {
            result->is_violated = true;
            snprintf(result->text, sizeof result->text, "more than %zu states", scene->most_states);
        }
    }
}

/* --- backwards ---------------------------------------------------------------------------------------------------------- */

static void *take_numbers(size_t count) {
    uint32_t *numbers = calloc(count, sizeof *numbers);
    if (!numbers) abort();
    return numbers;
}

/* The first state from which no way leads to an end; the number of states when there is none. */
static size_t find_hopeless(void) {
    const size_t count = states_count();
    uint32_t *begin = take_numbers(count + 2), *sources = take_numbers(edge_count + 1),
             *queue = take_numbers(count + 1);
    size_t queued = 0, first = 0;
    /* Who leads to state i stands in sources, from begin[i] on. */
    for (size_t i = 0; i < edge_count; i++) begin[edges[i][1] + 2]++;
    for (size_t i = 2; i < count + 2; i++) begin[i] += begin[i - 1];
    for (size_t i = 0; i < edge_count; i++) sources[begin[edges[i][1] + 1]++] = edges[i][0];
    for (size_t i = 0; i < count; i++)
        if (is_hopeful[i]) queue[queued++] = (uint32_t)i;
    for (size_t next = 0; next < queued; next++)
        for (uint32_t i = begin[queue[next]]; i < begin[queue[next] + 1]; i++)
            if (!is_hopeful[sources[i]]) {
                is_hopeful[sources[i]] = true;
                queue[queued++] = sources[i];
            }
    while (first < count && is_hopeful[first]) first++;
    free(begin);
    free(sources);
    free(queue);
    return first;
}

/* --- a whole exploration ------------------------------------------------------------------------------------------------ */

static void forget(void) {
    states_forget();
    memory_forget();
    threads_forget();
    report_forget();
    edge_count = 0;
    was_met = false;
}

void explore(const explore_scene *scene, const explore_mutation *mutation, explore_result *result) {
    memset(result, 0, sizeof *result);
    forget();
    left_out = mutation;
    scene->begin();
    states_add_memory(threads, sizeof threads);
    memory_begin();
    states_begin();
    visit_all(scene, result);
    result->states = states_count();
    if (!result->is_violated) {
        const size_t hopeless = find_hopeless();
        if (hopeless < result->states) report(result, "from here no end is reached", true, (uint32_t)hopeless, -1);
    }
}
