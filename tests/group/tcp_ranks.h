/* tcp_ranks.h: ranks as threads whose groups go over tcp. */
#ifndef LS_TEST_TCP_RANKS_H
#define LS_TEST_TCP_RANKS_H

#include "support/threads.h"

#include "group/backend.h"

static inline ls_status try_open_tcp(const ls_rank *rank, int64_t timeout_ms, ls_group **group) {
    ls_group_options options = rank_options(rank);
    options.timeout_ms = timeout_ms;
    return group_open_backend(group, &options, &tcp_backend);
}

static inline ls_group *open_tcp(const ls_rank *rank) {
    ls_group *group = NULL;
    assert_ok(try_open_tcp(rank, 60000, &group));
    return group;
}

#endif
