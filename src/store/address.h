/* address.h: names and numbers of hosts as sockets want them, and which of them are this host's own. */
#ifndef LS_STORE_ADDRESS_H
#define LS_STORE_ADDRESS_H

#include <lockstep/base.h>

#include <sys/socket.h>

enum { STORE_MOST_ADDRESSES = 16, STORE_ADDRESS_TEXT_BYTES = 80 };

typedef struct store_address {
    struct sockaddr_storage socket;
    socklen_t bytes;
} store_address;

typedef struct store_addresses {
    store_address list[STORE_MOST_ADDRESSES];
    int count;
} store_addresses;

/* All addresses of `host`: a name, an IPv4 address, an IPv6 address with or without brackets, link-local ones with
 * %interface. Ports are 0. Errors: LS_ERR_ENVIRONMENT names the host; LS_END: the name service says to ask again. */
ls_status store_resolve(const char *host, store_addresses *found);

void store_address_set_port(store_address *address, int port);
int store_address_port(const store_address *address);
bool store_address_is_loopback(const store_address *address);

/* "10.0.0.1:29500", "[::1]:29500". */
void store_address_describe(const store_address *address, char text[STORE_ADDRESS_TEXT_BYTES]);

/* "lo 127.0.0.1, eth0 10.0.0.5, eth0 fe80::1%eth0": for messages. */
void store_interfaces_describe(char *text, size_t bytes);

/* A socket that listens on `address`; a port of 0 becomes the one that was found. LS_END: the address is not of this
 * host, or of a kind that it does not have. Errors: LS_ERR_STATE when the port is taken, LS_ERR_IO. */
ls_status store_address_listen(store_address *address, int *listener);

/* Connects within the limit; `socket` is non-blocking, without delay and kept alive. LS_END: refused, unreachable,
 * or not within the limit; the sentence says which. Errors: LS_ERR_IO. */
ls_status store_address_connect(const store_address *address, int64_t deadline_ns, int *connected);

/* Has a TCP connection send at once, and notice after some 20 s that a host has vanished without a word. What
 * store_address_connect returns has it; what was accepted (accept4, SOCK_CLOEXEC | SOCK_NONBLOCK) wants it. */
void store_socket_prepare(int connected);

#endif
