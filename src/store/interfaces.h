/* interfaces.h: at which addresses other hosts may reach this one, and which of them the user wants.
 *
 * LOCKSTEP_SOCKET_IFNAME chooses interfaces by name, with NCCL's grammar: a list of beginnings of names ("eth,ib"),
 * of whole names after "=" ("=eth0,eth1"), and after "^" those that are not to be taken ("^docker", "^=lo,eth1"). */
#ifndef LS_STORE_INTERFACES_H
#define LS_STORE_INTERFACES_H

#include "store/address.h"

#include <net/if.h>

#define STORE_ENV_INTERFACES "LOCKSTEP_SOCKET_IFNAME"

typedef struct store_interface {
    char name[IF_NAMESIZE];
    store_address address; /* port 0 */
} store_interface;

typedef struct store_interfaces {
    store_interface list[STORE_MOST_ADDRESSES];
    int count;
} store_interfaces;

/* Whether `choice` takes the interface `name`; an empty choice takes all. Pure. */
bool store_interface_is_chosen(const char *choice, const char *name);

/* Finds addresses of interfaces that are up and chosen, the most promising first: those of bridges to containers and
 * virtual machines, which often are the same on every host, come last, IPv4's link-local ones behind them. Never among
 * them: IPv6's link-local ones, which mean nothing without a number that differs from host to host; loopback, unless
 * `with_loopback` or LOCKSTEP_SOCKET_IFNAME asks for it by name.
 *
 * Errors: LS_ERR_ENVIRONMENT when there is none, naming choice and interfaces; LS_ERR_IO. */
ls_status store_interfaces_find(bool with_loopback, store_interfaces *found);

#endif
