/* table.c: a chained hash table. An entry's bytes lie behind it in one block, so that replacing a value is: make the
 * new entry, then swap it in; a refusal of memory leaves the old one. */
#include "store/table.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct entry entry;
struct entry {
    entry *next;
    uint64_t hash;
    int descriptors[STORE_MOST_DESCRIPTORS]; /* owned */
    int descriptor_count;
    size_t bytes;
    const char *key; /* both behind the entry, in its block */
    unsigned char *value;
};

/* The number of chains is a power of two, at least that of the entries after each growth. */
struct store_table {
    entry **chains;
    size_t chain_count;
    size_t count;
};

static void entry_free(entry *old) {
    for (int i = 0; i < old->descriptor_count; i++) close(old->descriptors[i]);
    ls_free(old);
}

static entry *entry_create(const char *key, const void *value, size_t bytes) {
    const size_t key_bytes = strlen(key) + 1;
    entry *made = ls_alloc(sizeof *made + key_bytes + bytes);
    if (!made) return NULL;
    char *behind = (char *)(made + 1);
    memcpy(behind, key, key_bytes);
    made->key = behind;
    made->value = (unsigned char *)behind + key_bytes;
    /* A value of no bytes is a value: the key is set. */
    if (bytes > 0) memcpy(made->value, value, bytes);
    made->bytes = bytes;
    made->hash = ls_digest_text(key);
    return made;
}

store_table *store_table_create(void) {
    store_table *table = ls_alloc(sizeof *table);
    if (!table) return NULL;
    /* Enough for a small job without growing. */
    table->chain_count = 64;
    table->chains = ls_alloc_array(table->chain_count, sizeof(entry *));
    if (!table->chains) store_table_close(&table);
    return table;
}

void store_table_close(store_table **table) {
    if (!*table) return;
    for (size_t i = 0; (*table)->chains && i < (*table)->chain_count; i++) {
        for (entry *next, *each = (*table)->chains[i]; each; each = next) {
            next = each->next;
            entry_free(each);
        }
    }
    ls_free((*table)->chains);
    ls_free(*table);
    *table = NULL;
}

ls_status store_table_each(const store_table *table, ls_status (*visit)(void *context, const store_request *request),
                           void *context) {
    for (size_t i = 0; i < table->chain_count; i++)
        for (const entry *each = table->chains[i]; each; each = each->next) {
            const store_request request = {
                .operation = STORE_SET, .key = each->key, .value = each->value, .bytes = each->bytes};
            if (each->descriptor_count == 0) LS_TRY(visit(context, &request));
        }
    return LS_OK;
}

/* The link that points to the entry of `key`, or the end of its chain. Keys come from members of the job alone, so nobody
 * would choose them to collide. */
static entry **find(store_table *table, const char *key) {
    const uint64_t hash = ls_digest_text(key);
    entry **link = &table->chains[hash & (table->chain_count - 1)];
    /* The hash first: keys of a job are long and begin alike. */
    while (*link && ((*link)->hash != hash || strcmp((*link)->key, key) != 0)) link = &(*link)->next;
    return link;
}

/* Doubles the chains. When memory is refused the chains just become longer. */
static void grow(store_table *table) {
    const size_t chain_count = table->chain_count * 2;
    entry **chains = ls_alloc_array(chain_count, sizeof(entry *));
    if (!chains) return;
    for (size_t i = 0; i < table->chain_count; i++) {
        for (entry *next, *each = table->chains[i]; each; each = next) {
            next = each->next;
            entry **link = &chains[each->hash & (chain_count - 1)];
            each->next = *link;
            *link = each;
        }
    }
    ls_free(table->chains);
    table->chains = chains;
    table->chain_count = chain_count;
}

/* Puts `made` in the place that `link` points to, over what was there. */
static void put(store_table *table, entry **link, entry *made) {
    entry *old = *link;
    made->next = old ? old->next : NULL;
    *link = made;
    if (old) {
        entry_free(old);
        return;
    }
    /* After the entry is in: growing may be refused, setting may not be undone. */
    if (++table->count > table->chain_count) grow(table);
}

static ls_status set(store_table *table, const store_request *request) {
    entry *made = entry_create(request->key, request->value, request->bytes);
    if (!made) return LS_ERR_MEMORY;
    if (request->descriptor_count > 0) {
        memcpy(made->descriptors, request->descriptors, (size_t)request->descriptor_count * sizeof(int));
        made->descriptor_count = request->descriptor_count;
    }
    put(table, find(table, request->key), made);
    return LS_OK;
}

/* The number an entry holds as text, 0 for none. */
static ls_status number_of(const entry *held, int64_t *number) {
    *number = 0;
    if (!held) return LS_OK;
    char text[24] = "";
    /* Values are bytes: not every one is a text, and none ends with a NUL. */
    if (held->bytes > 0 && held->bytes < sizeof text) {
        memcpy(text, held->value, held->bytes);
        char *end = NULL;
        errno = 0;
        *number = strtoll(text, &end, 10);
        if (errno == 0 && *end == '\0') return LS_OK;
    }
    return ls_fail(LS_ERR_STATE,
                   "store key \"%s\" holds %zu bytes that are no whole decimal number: nothing can be added", held->key,
                   held->bytes);
}

static ls_status add(store_table *table, const store_request *request, store_answer *answer) {
    entry **link = find(table, request->key);
    int64_t sum = 0;
    LS_TRY(number_of(*link, &sum));
    /* The amount comes from a client. */
    if (__builtin_add_overflow(sum, request->number, &sum))
        return ls_fail(LS_ERR_ARGUMENT, "adding %" PRId64 " to store key \"%s\" is past what 64 bits hold",
                       request->number, request->key);
    char text[24];
    /* As text, so that a get reads what an add has left, and a set may give the first number. */
    const int bytes = snprintf(text, sizeof text, "%" PRId64, sum);
    entry *made = entry_create(request->key, text, (size_t)bytes);
    if (!made) return LS_ERR_MEMORY;
    put(table, link, made);
    answer->number = sum;
    return LS_OK;
}

static ls_status compare_set(store_table *table, const store_request *request, store_answer *answer) {
    const entry *held = *find(table, request->key);
    const bool is_expected = request->expected_bytes == 0
                                 /* No expectation means that the key must not be there: how the first of several
                                  * is found. */
                                 ? !held
                                 : held && held->bytes == request->expected_bytes &&
                                       memcmp(held->value, request->expected, held->bytes) == 0;
    answer->number = is_expected;
    return is_expected ? set(table, request) : LS_OK;
}

static void drop(store_table *table, const store_request *request, store_answer *answer) {
    entry **link = find(table, request->key);
    entry *held = *link;
    answer->number = held != NULL;
    if (!held) return;
    *link = held->next;
    table->count--;
    entry_free(held);
}

/* How many keys begin with `prefix`. */
static int64_t count_keys(const store_table *table, const char *prefix) {
    const size_t length = strlen(prefix);
    /* Counting a view looks at every key; the whole has its count at hand. */
    if (length == 0) return (int64_t)table->count;
    int64_t count = 0;
    for (size_t i = 0; i < table->chain_count; i++)
        for (const entry *each = table->chains[i]; each; each = each->next)
            count += strncmp(each->key, prefix, length) == 0;
    return count;
}

/* Answers what waits for its key, which is set by now. */
static ls_status answer_from(const entry *held, const store_request *request, store_answer *answer) {
    if (request->operation == STORE_WAIT) return LS_OK;
    if (request->operation == STORE_GET && held->descriptor_count > 0)
        return ls_fail(LS_ERR_STATE, "store key \"%s\" holds descriptors, not a value", held->key);
    if (request->operation == STORE_GET_DESCRIPTORS && held->descriptor_count != request->number)
        return ls_fail(LS_ERR_STATE, "store key \"%s\" holds %d descriptors, %" PRId64 " are asked for", held->key,
                       held->descriptor_count, request->number);
    answer->value = held->value;
    answer->bytes = held->bytes;
    answer->descriptors = held->descriptors;
    answer->descriptor_count = held->descriptor_count;
    return LS_OK;
}

ls_status store_table_apply(store_table *table, const store_request *request, store_answer *answer) {
    *answer = (store_answer){0};
    const entry *held = NULL;
    switch (request->operation) {
    case STORE_SET:
    case STORE_SET_DESCRIPTORS: return set(table, request);
    case STORE_ADD: return add(table, request, answer);
    case STORE_COMPARE_SET: return compare_set(table, request, answer);
    case STORE_DELETE: drop(table, request, answer); return LS_OK;
    case STORE_COUNT: answer->number = count_keys(table, request->key); return LS_OK;
    case STORE_CHECK: answer->number = *find(table, request->key) != NULL; return LS_OK;
    case STORE_GET:
    case STORE_WAIT:
    case STORE_GET_DESCRIPTORS:
        held = *find(table, request->key);
        return held ? answer_from(held, request, answer) : LS_END;
    /* Named, not a default: so a compiler tells of an operation that was forgotten. */
    case STORE_OPERATION_COUNT: break;
    }
    return ls_fail(LS_ERR_INTERNAL, "a store was asked for the unknown operation %d", (int)request->operation);
}

/* After one of these, whoever waits for a key has to look again. */
bool store_operation_sets(store_operation operation) {
    return operation == STORE_SET || operation == STORE_ADD || operation == STORE_COMPARE_SET ||
           operation == STORE_SET_DESCRIPTORS;
}

bool store_operation_waits(store_operation operation) {
    return operation == STORE_GET || operation == STORE_WAIT || operation == STORE_GET_DESCRIPTORS;
}
