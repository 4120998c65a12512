/* fuzz_server.c: what clients send to a store's server, in pieces of any length: two members, and one who has something
 * to prove and does not know how.
 * covers: src/store/server.c src/store/ways_in.c
 *
 * Input: a byte that says who speaks (modulo 4; 3: it hangs up, with the next byte), a length, and that many bytes. */
#include "store/server.h"
#include "store/wire.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CLIENTS = 3 };

/* A socket that is connected to `listener`; -1: the host has no loopback. */
static int connect_to(int listener) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &bytes);
    const int connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)!connect(connected, (struct sockaddr *)&address, sizeof address);
    return connected;
}

static int listen_on_loopback(void) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 8) != 0) abort();
    return listener;
}

static void turn(uv_loop_t *loop) {
    for (int i = 0; i < 3; i++) uv_run(loop, UV_RUN_NOWAIT);
}

/* Reads what the server answered, so that it never has to keep it. */
static void drain(int client) {
    char bytes[4096];
    while (client >= 0 && recv(client, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const store_credentials own = {.secret_bytes = 16, .secret = "0123456789abcdef", .job = "job"};
    uv_loop_t loop;
    store_server *server = NULL;
    int clients[CLIENTS] = {-1, -1, -1};
    if (uv_loop_init(&loop) != 0 || store_server_open(&server, &loop, &own) != LS_OK) abort();
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) abort();
        clients[i] = ends[0];
        if (store_server_add_connection(server, ends[1]) != LS_OK) abort();
    }
    const int listener = listen_on_loopback();
    clients[2] = connect_to(listener);
    if (store_server_listen_on(server, listener) != LS_OK) abort();
    while (size >= 2) {
        const int who = data[0] % 4;
        size_t count = data[1];
        data += 2;
        size -= 2;
        if (who == 3) {
            int *leaving = &clients[count % CLIENTS];
            if (*leaving >= 0) close(*leaving);
            *leaving = -1;
        } else {
            if (count > size) count = size;
            if (clients[who] >= 0) (void)!send(clients[who], data, count, MSG_DONTWAIT | MSG_NOSIGNAL);
            data += count;
            size -= count;
        }
        turn(&loop);
        for (int i = 0; i < CLIENTS; i++) drain(clients[i]);
    }
    store_server_close(&server);
    uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) != 0) abort(); /* a handle is left */
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i] >= 0) close(clients[i]);
    return 0;
}
