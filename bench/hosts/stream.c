/* stream.c: what a link moves: two programs send each other BYTES over one connection at the same time, ROUNDS times, and
 * read what comes. The yardstick of all-reduce between hosts: with two ranks each has to send and receive just this.
 *
 *   stream listen PORT BYTES ROUNDS        prints the microseconds of each round
 *   stream ADDRESS PORT BYTES ROUNDS */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int meet(const char *where, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    const int yes = 1, end = socket(AF_INET, SOCK_STREAM, 0);
    if (end < 0) die("socket");
    if (strcmp(where, "listen") == 0) {
        setsockopt(end, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(end, (void *)&address, sizeof address) || listen(end, 1)) die("listen");
        const int connected = accept(end, NULL, NULL);
        close(end);
        return connected;
    }
    if (inet_pton(AF_INET, where, &address.sin_addr) != 1) die("address");
    for (int tries = 0; connect(end, (void *)&address, sizeof address); tries++) {
        if (tries == 100) die("connect");
        usleep(50000);
    }
    return end;
}

/* Moves what goes: `bytes` bytes out, as many in. */
static void exchange(int end, char *out, char *in, size_t bytes) {
    size_t sent = 0, received = 0;
    while (sent < bytes || received < bytes) {
        struct pollfd ready = {.fd = end,
                               .events = (short)((sent < bytes ? POLLOUT : 0) | (received < bytes ? POLLIN : 0))};
        if (poll(&ready, 1, 30000) <= 0) die("poll");
        if (ready.revents & POLLOUT) {
            const ssize_t count = send(end, out + sent, bytes - sent, MSG_NOSIGNAL);
            if (count < 0 && errno != EAGAIN) die("send");
            if (count > 0) sent += (size_t)count;
        }
        if (ready.revents & (POLLIN | POLLHUP)) {
            const ssize_t count = recv(end, in + received, bytes - received, 0);
            if (count == 0 || (count < 0 && errno != EAGAIN)) die("recv");
            if (count > 0) received += (size_t)count;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const size_t bytes = strtoull(argv[3], NULL, 10);
    const int rounds = atoi(argv[4]), end = meet(argv[1], atoi(argv[2])), yes = 1;
    char *out = calloc(1, bytes), *in = calloc(1, bytes), byte = 0;
    if (end < 0 || !out || !in) die("start");
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(end, F_SETFL, O_NONBLOCK);
    for (int round = 0; round < rounds; round++) {
        exchange(end, &byte, &byte, 1); /* both are here */
        const double start = now_us();
        exchange(end, out, in, bytes);
        if (strcmp(argv[1], "listen") == 0) printf("%.1f\n", now_us() - start);
    }
    free(out);
    free(in);
    return 0;
}
