/* A long, lossy way between two hosts: worker_relay HOST HOST DELAY_MS LOSS_PERCENT
 *
 * Makes an interface "far" in each of the two network namespaces, and passes packets from one to the other after the delay,
 * all but some. The kernel's own way (netem) is not in every kernel. */
#include "base/clock.h"
#include "base/wait.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MOST_PACKETS 16384
#define PACKET_BYTES 1600

typedef struct packet {
    int64_t due_ns;
    ssize_t bytes;
    char data[PACKET_BYTES];
} packet;

/* One direction: what came in at one end and is to go out at the other, in a ring. */
typedef struct way {
    int from, to;
    size_t first, count;
    packet packets[MOST_PACKETS];
} way;

static way ways[2];

static int open_end(const char *host) {
    char path[128];
    snprintf(path, sizeof path, "/run/netns/%s", host);
    const int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0) return -1;
    close(space);
    const int end = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    memcpy(request.ifr_name, "far", 4);
    return end < 0 || ioctl(end, TUNSETIFF, &request) != 0 ? -1 : end;
}

static void take_in(way *w, int64_t delay_ns, int loss_percent) {
    while (w->count < MOST_PACKETS) {
        packet *p = &w->packets[(w->first + w->count) % MOST_PACKETS];
        p->bytes = read(w->from, p->data, PACKET_BYTES);
        if (p->bytes <= 0) return;
        if (rand() % 100 < loss_percent) continue;
        p->due_ns = ls_now_ns() + delay_ns;
        w->count++;
    }
}

static void let_out(way *w) {
    for (; w->count && w->packets[w->first].due_ns <= ls_now_ns(); w->count--, w->first = (w->first + 1) % MOST_PACKETS)
        (void)!write(w->to, w->packets[w->first].data, (size_t)w->packets[w->first].bytes);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const int64_t delay_ns = strtoll(argv[3], NULL, 10) * LS_NS_PER_MS;
    const int loss_percent = atoi(argv[4]), a = open_end(argv[1]), b = open_end(argv[2]);
    if (a < 0 || b < 0) {
        perror("worker_relay");
        return 1;
    }
    ways[0] = (way){.from = a, .to = b};
    ways[1] = (way){.from = b, .to = a};
    for (;;) {
        struct pollfd ends[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
        int64_t due_ns = ls_now_ns() + LS_NS_PER_S;
        for (int i = 0; i < 2; i++)
            if (ways[i].count && ways[i].packets[ways[i].first].due_ns < due_ns)
                due_ns = ways[i].packets[ways[i].first].due_ns;
        ls_descriptors_wait(ends, 2, due_ns);
        for (int i = 0; i < 2; i++) {
            take_in(&ways[i], delay_ns, loss_percent);
            let_out(&ways[i]);
        }
    }
}
