/* address.c: sockets of the two families behind one face.
 *
 * Names are the system's to look up, in its order, once. From there on there are only addresses: nothing is looked
 * up backwards, since the name that an address has is often none that leads to it. Sockets never block; who connects
 * says how long. */
#include "store/address.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/wait.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- names -------------------------------------------------------------------------------------------------------- */

/* The host without the brackets that an IPv6 address may have. */
static ls_status strip(const char *host, char *plain, size_t bytes) {
    const size_t length = strlen(host);
    const bool has_brackets = length > 2 && host[0] == '[' && host[length - 1] == ']';
    if (length == 0 || length >= bytes)
        return ls_fail(LS_ERR_ENVIRONMENT, "\"%.64s\" is no name or address of a host", host);
    snprintf(plain, bytes, "%.*s", (int)(length - 2u * has_brackets), host + has_brackets);
    return LS_OK;
}

ls_status store_resolve(const char *host, store_addresses *found) {
    char plain[256];
    found->count = 0;
    LS_TRY(strip(host, plain, sizeof plain));
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    /* Both families, in the order in which the system prefers them; no look-ups of our own. */
    const int failure = ls_fault(LS_FAULT_SYSCALL) ? EAI_MEMORY : getaddrinfo(plain, NULL, &hints, &list);
    if (failure) {
        ls_fail(LS_ERR_ENVIRONMENT,
                "\"%s\" is no address, and no host is found by that name: %s; correct it where it was set "
                "(MASTER_ADDR, or the host of a store)",
                plain, gai_strerror(failure));
        /* A job's pods may start before the name service knows them. */
        return failure == EAI_AGAIN ? LS_END : LS_ERR_ENVIRONMENT;
    }
    for (const struct addrinfo *each = list; each && found->count < STORE_MOST_ADDRESSES; each = each->ai_next) {
        if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
        store_address made = {.bytes = each->ai_addrlen};
        memcpy(&made.socket, each->ai_addr, each->ai_addrlen);
        bool is_known = false; /* a hosts file may say the same twice */
        for (int i = 0; i < found->count; i++)
            is_known = is_known || memcmp(&found->list[i].socket, &made.socket, made.bytes) == 0;
        if (!is_known) found->list[found->count++] = made;
    }
    freeaddrinfo(list);
    return found->count > 0 ? LS_OK : ls_fail(LS_ERR_ENVIRONMENT, "\"%s\" has no IP address", plain);
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

/* Both families keep the port apart from the address: the only place that has to know it. */
static in_port_t *port_of(store_address *address) {
    return address->socket.ss_family == AF_INET6 ? &((struct sockaddr_in6 *)&address->socket)->sin6_port
                                                 : &((struct sockaddr_in *)&address->socket)->sin_port;
}

void store_address_set_port(store_address *address, int port) {
    *port_of(address) = htons((uint16_t)port);
}

int store_address_port(const store_address *address) {
    return ntohs(*port_of((store_address *)address));
}

bool store_address_is_loopback(const store_address *address) {
    if (address->socket.ss_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)&address->socket)->sin_addr.s_addr) >> 24) == 127;
    const struct in6_addr *wide = &((const struct sockaddr_in6 *)&address->socket)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(wide) || (IN6_IS_ADDR_V4MAPPED(wide) && wide->s6_addr[12] == 127);
}

/* Numbers, never names: a look-up for a message could hang, and names of clusters do not always resolve back. */
void store_address_describe(const store_address *address, char text[STORE_ADDRESS_TEXT_BYTES]) {
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1] = "?";
    const bool is_wide = address->socket.ss_family == AF_INET6;
    getnameinfo((const struct sockaddr *)&address->socket, address->bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    snprintf(text, STORE_ADDRESS_TEXT_BYTES, "%s%s%s:%d", is_wide ? "[" : "", host, is_wide ? "]" : "",
             store_address_port(address));
}

void store_interfaces_describe(char *text, size_t bytes) {
    struct ifaddrs *list = NULL;
    size_t used = 0;
    text[0] = '\0';
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *each = list; each && used < bytes; each = each->ifa_next) {
        char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
        const int family = each->ifa_addr ? each->ifa_addr->sa_family : AF_UNSPEC;
        if (family != AF_INET && family != AF_INET6) continue;
        const socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (getnameinfo(each->ifa_addr, size, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", used ? ", " : "", each->ifa_name, host);
    }
    freeifaddrs(list);
    if (used == 0) snprintf(text, bytes, "no address at all; is its interface lo up?");
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

static int make_socket(int family) {
    return LS_SYSCALL(EMFILE, socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

ls_status store_address_listen(store_address *address, int *listener) {
    const int made = make_socket(address->socket.ss_family);
    if (made < 0 && errno == EAFNOSUPPORT) return LS_END;
    if (made < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot make the store's socket");
    const int on = 1, off = 0;
    /* The port of a server that has just ended may be taken again; the wildcard of IPv6 serves both families. */
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->socket.ss_family == AF_INET6) {
        const bool is_any = IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)&address->socket)->sin6_addr);
        setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, is_any ? &off : &on, sizeof on);
    }
    socklen_t bytes = sizeof address->socket;
    if (bind(made, (const struct sockaddr *)&address->socket, address->bytes) == 0 && listen(made, SOMAXCONN) == 0 &&
        getsockname(made, (struct sockaddr *)&address->socket, &bytes) == 0) {
        *listener = made;
        return LS_OK;
    }
    const int failure = errno;
    close(made);
    /* Nothing is wrong with the job: another address of the list will do. */
    if (failure == EADDRNOTAVAIL || failure == EAFNOSUPPORT || failure == ENODEV) return LS_END;
    char text[STORE_ADDRESS_TEXT_BYTES];
    store_address_describe(address, text);
    if (failure == EADDRINUSE)
        return ls_fail(LS_ERR_STATE,
                       "port %d is taken (%s): another job or program listens there, or a second rank 0 of this job; "
                       "choose another port, or start rank 0 once",
                       store_address_port(address), text);
    return ls_fail_errno(LS_ERR_IO, failure, "cannot listen on %s", text);
}

void store_socket_prepare(int connected) {
    /* Requests are small and wait for answers: gathering them would cost a round trip each. */
    const int on = 1, idle_s = 10, interval_s = 3, count = 3;
    setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* A host that vanishes sends no end of its connections: it is noticed within some 20 s. */
    setsockopt(connected, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(connected, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(connected, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(connected, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* Connecting to a port of this host that nobody listens on may, by chance, meet itself: one socket, both ends. */
static bool met_itself(int connected) {
    store_address own = {.bytes = sizeof own.socket}, other = {.bytes = sizeof other.socket};
    return getsockname(connected, (struct sockaddr *)&own.socket, &own.bytes) == 0 &&
           getpeername(connected, (struct sockaddr *)&other.socket, &other.bytes) == 0 && own.bytes == other.bytes &&
           memcmp(&own.socket, &other.socket, own.bytes) == 0;
}

/* What a connection that was begun came to, as an errno. */
static int finish(int connected, int64_t deadline_ns) {
    struct pollfd polled = {.fd = connected, .events = POLLOUT};
    /* What it is when the wait ends without a word. */
    int failure = ETIMEDOUT;
    socklen_t bytes = sizeof failure;
    if (ls_descriptors_wait(&polled, 1, deadline_ns) > 0 &&
        getsockopt(connected, SOL_SOCKET, SO_ERROR, &failure, &bytes) != 0)
        failure = errno;
    return failure;
}

ls_status store_address_connect(const store_address *address, int64_t deadline_ns, int *connected) {
    char text[STORE_ADDRESS_TEXT_BYTES];
    store_address_describe(address, text);
    const int made = make_socket(address->socket.ss_family);
    if (made < 0 && errno != EAFNOSUPPORT) return ls_fail_errno(LS_ERR_IO, errno, "cannot make a socket for the store");
    int failure = made < 0 ? errno : 0;
    if (made >= 0 && connect(made, (const struct sockaddr *)&address->socket, address->bytes) != 0)
        failure = errno == EINPROGRESS ? finish(made, deadline_ns) : errno;
    if (failure == 0 && met_itself(made)) {
        const struct linger at_once = {.l_onoff = 1};
        /* The port must be free again at once for the server that we look for. */
        setsockopt(made, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        failure = ECONNREFUSED;
    }
    if (failure == 0) {
        store_socket_prepare(made);
        *connected = made;
        return LS_OK;
    }
    if (made >= 0) close(made);
    /* The sentence is kept for whoever has tried all addresses; by itself this is no failure. */
    ls_fail_errno(LS_ERR_IO, failure, "%s", text);
    return LS_END;
}
