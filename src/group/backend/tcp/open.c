/* open.c: a group opens and closes; its memory; and the backend's table. */
#include "group/backend/tcp/meeting.h"

#include "base/environment.h"
#include "base/fault.h"
#include "base/memory.h"
#include "group/compare.h"
#include "group/group.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- memory ------------------------------------------------------------------------------------------------------------ */

static void drop_memory(tcp_memory *memory) {
    if (!memory) return;
    if (memory->base) munmap(memory->base, memory->bytes);
    ls_free(memory);
}

static ls_status make_memory(size_t bytes, tcp_memory **made) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    if (whole < bytes) return ls_fail(LS_ERR_MEMORY, "%zu bytes of group memory: more than there can be", bytes);
    if (!(*made = ls_alloc(sizeof **made))) return LS_ERR_MEMORY;
    (*made)->bytes = whole ? whole : page;
    void *base = ls_fault(LS_FAULT_MEMORY)
                     ? (errno = ENOMEM, MAP_FAILED)
                     : mmap(NULL, (*made)->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return ls_fail_errno(LS_ERR_MEMORY, errno, "cannot get %zu bytes of group memory", bytes);
    (*made)->base = base;
    return LS_OK;
}

/* Private: peers do not reach it, so it serves as an array that begins on a page. */
static ls_status tcp_allocate(void *state, size_t bytes, void **base) {
    tcp_group *tcp = state;
    tcp_memory *memory = NULL;
    uint64_t number = 0;
    *base = NULL;
    const ls_status status = group_agree(tcp->group, GROUP_ALLOCATE, bytes, make_memory(bytes, &memory), &number);
    if (status != LS_OK || !memory) {
        drop_memory(memory);
        return status;
    }
    ls_mutex_lock(&tcp->lock);
    memory->next = tcp->memories;
    tcp->memories = memory;
    ls_mutex_unlock(&tcp->lock);
    *base = memory->base;
    return LS_OK;
}

static void tcp_release(void *state, void *base) {
    tcp_group *tcp = state;
    tcp_memory *found = NULL;
    ls_mutex_lock(&tcp->lock);
    for (tcp_memory **link = &tcp->memories; *link; link = &(*link)->next) {
        if ((*link)->base != base) continue;
        found = *link;
        *link = found->next;
        break;
    }
    ls_mutex_unlock(&tcp->lock);
    drop_memory(found);
}

/* --- closing ----------------------------------------------------------------------------------------------------------- */

static void close_descriptors(const tcp_group *tcp) {
    for (int rank = 0; tcp->peers && rank < tcp->world_size; rank++)
        for (int channel = 0; channel < TCP_CHANNELS; channel++)
            if (tcp->peers[rank].links[channel].socket >= 0) close(tcp->peers[rank].links[channel].socket);
    for (int i = 0; i < tcp->listener_count; i++) close(tcp->listeners[i]);
    if (tcp->events >= 0) close(tcp->events);
    if (tcp->alarm >= 0) close(tcp->alarm);
}

/* In a forked child. */
static void forked(ls_live *self) {
    const tcp_group *tcp = LS_LIVE_OWNER(tcp_group, self);
    if (tcp->meeting) tcp_meeting_forked(tcp->meeting);
    close_descriptors(tcp);
}

static void tcp_close(void *state) {
    tcp_group *tcp = state;
    if (!tcp) return;
    ls_live_lock();
    ls_live_remove(&tcp->live);
    close_descriptors(tcp);
    ls_live_unlock();
    for (int rank = 0; tcp->peers && rank < tcp->world_size; rank++)
        for (int channel = 0; channel < TCP_CHANNELS; channel++) tcp_tls_end(&tcp->peers[rank].links[channel].tls);
    tcp_tls_release(&tcp->tls);
    while (tcp->memories) tcp_release(tcp, tcp->memories->base);
    collective_close(&tcp->collective);
    if (tcp->peers) tcp_mail_free(tcp);
    ls_mutex_destroy(&tcp->lock);
    ls_free(tcp->host_of);
    ls_free(tcp->peers);
    ls_free(tcp);
}

/* --- opening ----------------------------------------------------------------------------------------------------------- */

static ls_status make_events(tcp_group *tcp) {
    tcp->events = LS_SYSCALL(EMFILE, epoll_create1(EPOLL_CLOEXEC));
    if (tcp->events < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot make the set of a group's events");
    tcp->alarm = LS_SYSCALL(EMFILE, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (tcp->alarm < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot make a group's alarm (eventfd)");
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = TCP_ALARM};
    if (epoll_ctl(tcp->events, EPOLL_CTL_ADD, tcp->alarm, &event) == 0) return LS_OK;
    return ls_fail_errno(LS_ERR_IO, errno, "cannot watch a group's alarm");
}

static ls_status read_environment(tcp_group *tcp) {
    int64_t wants_tls = 0;
    LS_TRY(read_compares_all_calls(&tcp->checks_calls));
    const ls_status status = ls_env_integer(TCP_ENV_TLS, 0, 1, &wants_tls);
    if (status < 0) return status;
    return wants_tls ? tcp_tls_prepare(&tcp->tls) : LS_OK;
}

static ls_status prepare(const backend_place *place, tcp_group **state) {
    tcp_group *tcp = *state = ls_alloc(sizeof *tcp);
    if (!tcp) return LS_ERR_MEMORY;
    tcp->group = place->group;
    tcp->store = place->store;
    tcp->rank = place->rank;
    tcp->names = place->names;
    tcp->world_size = place->world_size;
    /* Marked before anything fails: closing sees by it what there is. So with the sockets. */
    tcp->events = tcp->alarm = -1;
    tcp->live.forked = forked;
    ls_mutex_init(&tcp->lock);
    tcp->peers = ls_alloc_array((size_t)place->world_size, sizeof *tcp->peers);
    tcp->host_of = ls_alloc_array((size_t)place->world_size, sizeof *tcp->host_of);
    for (int rank = 0; tcp->peers && rank < place->world_size; rank++)
        for (int channel = 0; channel < TCP_CHANNELS; channel++) tcp->peers[rank].links[channel].socket = -1;
    if (!tcp->peers || !tcp->host_of) return LS_ERR_MEMORY;
    tcp_mail_init(tcp);
    LS_TRY(ls_live_enlist(&tcp->live));
    LS_TRY(read_environment(tcp));
    tcp_transport_init(tcp);
    LS_TRY(collective_create(&tcp->collective, &tcp->transport, place->relaxed_order));
    return make_events(tcp);
}

static ls_status watch(tcp_group *tcp) {
    for (int rank = 0; rank < tcp->world_size; rank++)
        for (int channel = 0; channel < TCP_CHANNELS && rank != tcp->rank; channel++) {
            struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                        .data.u64 = (uint64_t)rank << 8 | (unsigned)channel};
            const int socket = tcp->peers[rank].links[channel].socket;
            if (LS_SYSCALL(ENOSPC, epoll_ctl(tcp->events, EPOLL_CTL_ADD, socket, &event)) != 0)
                return ls_fail_errno(LS_ERR_IO, errno, "rank %d: cannot watch a connection",
                                     rank_name(tcp->names, tcp->rank));
        }
    return LS_OK;
}

static ls_status tcp_open(const backend_place *place, void **state) {
    tcp_group *tcp = NULL;
    ls_status status = prepare(place, &tcp);
    if (status != LS_OK) {
        ls_fail_within(status, "rank %d", rank_name(place->names, place->rank));
        tcp_cards_withdraw(place, status);
    } else {
        status = tcp_meet(tcp, place);
        if (status == LS_OK) status = watch(tcp);
        if (status != LS_OK) {
            /* Peers may have taken the group for open: they learn it at their first operation. */
            ls_error why;
            ls_error_capture(&why, status);
            tcp_leave(tcp, &why);
            ls_error_raise(&why);
        }
    }
    if (status != LS_OK) {
        tcp_close(tcp);
        return status;
    }
    *state = tcp;
    return LS_OK;
}

static int tcp_spare_processors(const void *state) {
    return ((const tcp_group *)state)->spare_processors;
}

/* What peers wait for is in their sockets already. */
static void tcp_nudge(void *state) {
    (void)state;
}

/* Its descriptors are listed by themselves, from the first socket on. */
static void tcp_forked(void *state) {
    (void)state;
}

const ls_backend tcp_backend = {
    .version = LS_BACKEND_VERSION,
    .name = "tcp",
    .reach = LS_REACH_HOSTS,
    .survives_loss = true,
    .open = tcp_open,
    .close = tcp_close,
    .spare_processors = tcp_spare_processors,
    .allocate = tcp_allocate,
    .release = tcp_release,
    .start = tcp_start,
    .poll = tcp_poll,
    .examine = tcp_examine,
    .describe_missing = tcp_describe_missing,
    .bell = tcp_bell,
    .sleep = tcp_sleep,
    .wake = tcp_wake,
    .nudge = tcp_nudge,
    .leave = tcp_leave,
    .forked = tcp_forked,
};
