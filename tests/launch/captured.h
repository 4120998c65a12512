/* captured.h: a launcher in a process of its own, with standard output and error led into pipes that the test reads. */
#ifndef LS_TEST_CAPTURED_H
#define LS_TEST_CAPTURED_H

#include "support/test.h"

#include "launch/launch.h"

#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

typedef struct captured {
    pid_t launcher;
    int pipes[2]; /* standard output, standard error; the second -1 when both go to the first */
    char *texts[2];
    size_t used[2];
    int exit_code;
} captured;

static inline void captured_start(captured *self, const launch_options *options, bool is_combined) {
    int ends[2][2] = {{-1, -1}, {-1, -1}};
    for (int i = 0; i < (is_combined ? 1 : 2); i++) assert_int_equal(pipe(ends[i]), 0);
    fflush(NULL);
    *self = (captured){.launcher = fork(), .pipes = {ends[0][0], ends[1][0]}, .exit_code = -1};
    assert_true(self->launcher >= 0);
    if (self->launcher == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[0][1], 1);
        dup2(is_combined ? ends[0][1] : ends[1][1], 2);
        for (int i = 0; i < 4; i++)
            if (ends[i / 2][i % 2] > 2) close(ends[i / 2][i % 2]);
        launch_result result;
        if (launch_run(options, &result) != LS_OK) fprintf(stderr, "%s\n", ls_last_error());
        _exit(result.exit_code);
    }
    for (int i = 0; i < 2; i++)
        if (ends[i][1] >= 0) close(ends[i][1]);
}

/* Reads both to their end, then waits for the launcher. Texts end with NUL. */
static inline void captured_finish(captured *self) {
    struct pollfd polled[2] = {{.fd = self->pipes[0], .events = POLLIN}, {.fd = self->pipes[1], .events = POLLIN}};
    for (int i = 0; i < 2; i++) self->texts[i] = calloc(1, 1);
    while (polled[0].fd >= 0 || polled[1].fd >= 0) {
        assert_true(poll(polled, 2, 50000) > 0);
        for (int i = 0; i < 2; i++) {
            if (!polled[i].revents) continue;
            char piece[65536];
            const ssize_t bytes = read(self->pipes[i], piece, sizeof piece);
            if (bytes <= 0) {
                close(self->pipes[i]);
                polled[i] = (struct pollfd){.fd = -1};
                continue;
            }
            self->texts[i] = realloc(self->texts[i], self->used[i] + (size_t)bytes + 1);
            memcpy(self->texts[i] + self->used[i], piece, (size_t)bytes);
            self->used[i] += (size_t)bytes;
            self->texts[i][self->used[i]] = '\0';
        }
    }
    int status = 0;
    assert_int_equal(waitpid(self->launcher, &status, 0), self->launcher);
    self->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void captured_run(captured *self, const launch_options *options, bool is_combined) {
    captured_start(self, options, is_combined);
    captured_finish(self);
}

static inline void captured_free(captured *self) {
    for (int i = 0; i < 2; i++) free(self->texts[i]);
}

static inline bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

#endif
