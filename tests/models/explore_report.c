/* explore_report.c: what was found, as a person reads it: the steps that lead there. They are not recorded as they are made,
 * which would cost every step; the way to a state is kept (from which state, by which choice), and is gone once more. */
#include "models/explore_inside.h"

#include <stdio.h>
#include <string.h>

const char *broken_claim;

static char last_step[256];
static bool is_telling;

void explore_claim(bool holds, const char *text) {
    if (!holds && !broken_claim) broken_claim = text;
}

void tell(explore_place place, const char *what, uint64_t value) {
    if (is_telling)
        snprintf(last_step, sizeof last_step, "%s: %s: %s %s (%llu)", coroutines[running].name, place.where, what,
                 place.at, (unsigned long long)value);
}

void tell_leaving(const buffered_store *store) {
    if (is_telling)
        snprintf(last_step, sizeof last_step, "%s: a store of %llu leaves its buffer", coroutines[running].name,
                 (unsigned long long)store->value);
}

static void describe_threads(explore_result *result) {
    static const char *const words[] = {"not started", "ready", "waits for a lock", "asleep", "joins", "ended"};
    for (int i = 0; i < thread_count; i++) {
        const size_t used = strlen(result->text);
        snprintf(result->text + used, sizeof result->text - used, "%s %s is %s", i ? "," : ":", coroutines[i].name,
                 words[threads[i].status]);
    }
}

static void tell_step(explore_result *result, uint32_t from, int choice) {
    const size_t used = strlen(result->text);
    last_step[0] = '\0';
    take_choice(from, choice);
    snprintf(result->text + used, sizeof result->text - used, "\n  %s", last_step);
}

static void tell_way(explore_result *result, uint32_t state, int choice) {
    static struct {
        uint32_t from;
        int choice;
    } way[100000];
    const size_t most = sizeof way / sizeof way[0];
    size_t length = 0;
    for (uint32_t at = state; at != 0 && length < most; length++)
        at = way[length].from = states_origin(at, &way[length].choice);
    is_telling = true;
    while (length-- > 0) tell_step(result, way[length].from, way[length].choice);
    if (choice >= 0) tell_step(result, state, choice);
    is_telling = false;
}

void report(explore_result *result, const char *what, bool with_threads, uint32_t state, int choice) {
    result->is_violated = true;
    snprintf(result->text, sizeof result->text, "%s", what);
    states_restore(state, -1);
    if (with_threads) describe_threads(result);
    tell_way(result, state, choice);
}

void report_forget(void) {
    broken_claim = NULL;
}
