/* interfaces.c: the kernel's list of addresses, filtered and put in order.
 *
 * Nobody knows which of a host's addresses another host can reach: so all are told, and those that connect try them.
 * The order only saves them time. */
#include "store/interfaces.h"

#include "base/environment.h"
#include "base/error.h"
#include "base/fault.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>

/* How much an address promises; the last one of this list is left out. */
typedef enum promise { PROMISE_GOOD, PROMISE_BRIDGE, PROMISE_LINK_LOCAL, PROMISE_NONE } promise;

/* --- names -------------------------------------------------------------------------------------------------------- */

/* The marks at the beginning of a choice. */
typedef struct marks {
    bool excludes, is_exact;
    const char *names;
} marks;

static marks read_marks(const char *choice) {
    marks found = {.names = choice};
    found.excludes = *found.names == '^';
    found.names += found.excludes;
    found.is_exact = *found.names == '=';
    found.names += found.is_exact;
    return found;
}

/* Whether one of the names between commas is that of the interface, or its beginning. */
static bool is_listed(const marks *choice, const char *name) {
    for (const char *at = choice->names; *at;) {
        const size_t length = strcspn(at, ",");
        const bool is_whole = !choice->is_exact || strlen(name) == length;
        if (length > 0 && is_whole && strncmp(at, name, length) == 0) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

bool store_interface_is_chosen(const char *choice, const char *name) {
    const marks read = read_marks(choice);
    return *read.names == '\0' || is_listed(&read, name) != read.excludes;
}

/* Whether the choice asks for it, rather than not forbidding it. */
static bool is_asked_for(const char *choice, const char *name) {
    const marks read = read_marks(choice);
    return !read.excludes && is_listed(&read, name);
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static promise judge(const struct ifaddrs *each, const store_address *address, bool takes_loopback) {
    /* By their usual names, since the kernel does not tell what a bridge is for. Addresses of containers are on
     * every host the same. */
    static const marks bridges = {.names = "docker,br-,virbr,lxcbr,lxdbr,cni,podman"};
    const promise by_name = is_listed(&bridges, each->ifa_name) ? PROMISE_BRIDGE : PROMISE_GOOD;
    /* Its address is in the list all the same. */
    if (!(each->ifa_flags & IFF_UP)) return PROMISE_NONE;
    if (store_address_is_loopback(address)) return takes_loopback ? by_name : PROMISE_NONE;
    if (address->socket.ss_family == AF_INET6)
        return IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)&address->socket)->sin6_addr) ? PROMISE_NONE
                                                                                                  : by_name;
    const uint32_t number = ntohl(((const struct sockaddr_in *)&address->socket)->sin_addr.s_addr);
    return number >> 16 == 0xa9fe ? PROMISE_LINK_LOCAL : by_name; /* 169.254.0.0/16 */
}

/* Adds the addresses that promise so much. */
static void add(const struct ifaddrs *list, promise wanted, const char *choice, bool with_loopback,
                store_interfaces *found) {
    for (const struct ifaddrs *each = list; each && found->count < STORE_MOST_ADDRESSES; each = each->ifa_next) {
        const int family = each->ifa_addr ? each->ifa_addr->sa_family : AF_UNSPEC;
        if ((family != AF_INET && family != AF_INET6) || !store_interface_is_chosen(choice, each->ifa_name)) continue;
        store_interface *made = &found->list[found->count];
        *made = (store_interface){.address.bytes =
                                      family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)};
        memcpy(&made->address.socket, each->ifa_addr, made->address.bytes);
        strncpy(made->name, each->ifa_name, sizeof made->name - 1);
        if (judge(each, &made->address, with_loopback || is_asked_for(choice, each->ifa_name)) == wanted)
            found->count++;
    }
}

ls_status store_interfaces_find(bool with_loopback, store_interfaces *found) {
    const char *choice = ls_env_text(STORE_ENV_INTERFACES);
    struct ifaddrs *list = NULL;
    found->count = 0;
    if ((ls_fault(LS_FAULT_SYSCALL) && (errno = ENOMEM)) || getifaddrs(&list) != 0)
        return ls_fail_errno(LS_ERR_IO, errno, "cannot list this host's addresses");
    /* A pass for each kind: so the best come first, and each kind in the kernel's order. */
    for (promise each = PROMISE_GOOD; each < PROMISE_NONE; each++)
        add(list, each, choice ? choice : "", with_loopback, found);
    freeifaddrs(list);
    if (found->count > 0) return LS_OK;
    char there[512];
    store_interfaces_describe(there, sizeof there);
    return ls_fail(LS_ERR_ENVIRONMENT, "no address of this host can be reached by others%s%s%s; it has %s",
                   choice ? ": " STORE_ENV_INTERFACES " is \"" : "", choice ? choice : "", choice ? "\"" : "", there);
}
