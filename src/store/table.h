/* table.h: keys and what they hold, and what each operation does to them. Never waits and has no lock: whoever owns a
 * table (the hash store, the launcher's server) lets one request in at a time.                                       */
#ifndef LS_STORE_TABLE_H
#define LS_STORE_TABLE_H

#include "store/backend.h"

typedef struct store_table store_table;

/* NULL when memory was refused. */
store_table *store_table_create(void);
void store_table_close(store_table **table);

/* What a request came to; pointers are the table's, valid until its next change. */
typedef struct store_answer {
    int64_t number;
    const void *value;
    size_t bytes;
    const int *descriptors;
    int descriptor_count;
} store_answer;

/* Carries out `request`. LS_END: the key is not set, and this operation waits for it. STORE_SET_DESCRIPTORS takes the
 * descriptors over when it succeeds. On an error nothing has changed. */
ls_status store_table_apply(store_table *table, const store_request *request, store_answer *answer);

/* Calls visit(context, request that sets it) for each key, in no order, until one fails. Keys that hold descriptors
 * are left out. */
ls_status store_table_each(const store_table *table, ls_status (*visit)(void *context, const store_request *request),
                           void *context);

/* Whether a request of this kind may have set a key that others wait for. */
bool store_operation_sets(store_operation operation);

/* Whether a request of this kind waits for its key. */
bool store_operation_waits(store_operation operation);

#endif
