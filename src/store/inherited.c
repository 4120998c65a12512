/* inherited.c: the store of the launcher. store/wire.h says how a worker's streams come about. */
#include "store/stream.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>

/* Whether `descriptor` still is the socket that the launcher made: a wrapper may have closed it, and then anything may
 * have its number. */
static bool is_door(int descriptor, int launcher) {
    int domain = 0, type = 0;
    struct ucred peer = {0};
    socklen_t domain_bytes = sizeof domain, type_bytes = sizeof type, peer_bytes = sizeof peer;
    return getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) == 0 && domain == AF_UNIX &&
           getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_SEQPACKET &&
           getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0 && peer.pid == launcher;
}

/* LS_END: nothing in the environment leads to a launcher. */
static ls_status connect_to_launcher(stream_store *store, int launcher) {
    const int64_t deadline_ns = ls_deadline_after_ms(STREAM_CONNECT_LIMIT_MS);
    int64_t door = -1;
    const ls_status has_door = ls_env_integer(STORE_ENV_DOOR, 0, INT_MAX, &door);
    if (has_door == LS_OK && is_door((int)door, launcher)) {
        /* From here on the program's own children do not inherit it. */
        fcntl((int)door, F_SETFD, FD_CLOEXEC);
        return stream_connect_by_door(store, (int)door, deadline_ns);
    }
    const char *name = ls_env_text(STORE_ENV_SOCKET);
    if (has_door < 0) return has_door;
    return name ? stream_connect_by_name(store, name, deadline_ns) : LS_END;
}

ls_status ls_store_open_inherited(ls_store **opened) {
    if (!opened) return ls_fail(LS_ERR_ARGUMENT, "cannot open the store of `lockstep run`: the place is NULL");
    *opened = NULL;
    int64_t launcher = 0;
    stream_store *store = NULL;
    ls_status status = ls_env_integer(STORE_ENV_LAUNCHER, 1, INT_MAX, &launcher);
    /* Also without a launcher in the environment: a socket's name alone leads there, and the sentence below tells if
     * not. */
    if (status >= 0) status = stream_create(&store, "the launcher (process %d)", (int)launcher);
    if (status == LS_OK) status = connect_to_launcher(store, (int)launcher);
    if (status == LS_END)
        status = ls_fail(LS_ERR_ENVIRONMENT, "this process was not started by `lockstep run` (" STORE_ENV_LAUNCHER
                                             " and " STORE_ENV_SOCKET " are not set): there is no store to inherit");
    ls_store *made = store ? &store->head : NULL;
    if (made)
        made->is_private = true; /* through a socket that was inherited, or one whose other end looks at our user */
    if (status == LS_OK)
        *opened = made;
    else
        ls_store_close(&made);
    return status;
}
