/* job.h: processes started by hand, each with an environment of its own, and what they wrote. */
#ifndef LS_TEST_RENDEZVOUS_JOB_H
#define LS_TEST_RENDEZVOUS_JOB_H

#include "support/test.h"

#include "base/clock.h"
#include "base/wait.h"
#include "store/address.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOB_MOST_RANKS = 64, JOB_OUTPUT_BYTES = 4096, JOB_LIMIT_S = 50 };

typedef struct job_process {
    pid_t pid;
    int output; /* a pipe's end */
    char text[JOB_OUTPUT_BYTES];
    size_t used;
    int exit_code; /* 128 + signal for a kill */
    double seconds;
} job_process;

typedef struct job {
    job_process ranks[JOB_MOST_RANKS];
    int count;
    int64_t begin_ns;
} job;

/* What no test wants to inherit from the shell that runs it. */
static inline void clear_environment(void) {
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "LOCKSTEP_JOB",
                                        "LOCKSTEP_SECRET_FILE",
                                        "LOCKSTEP_BACKEND",
                                        "TORCHELASTIC_RUN_ID",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_NODELIST",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "LOCKSTEP_PLACE",
                                        "LOCKSTEP_STORE_FD",
                                        "LOCKSTEP_LAUNCHER_PID",
                                        "LOCKSTEP_STORE_SOCKET",
                                        "SLURM_STEP_ID",
                                        "LOCKSTEP_TEST_KILL",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "LOCKSTEP_ALLOW_UNAUTHENTICATED"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
}

/* Starts one process with these settings, "NAME=value" separated by spaces, and arguments ended by NULL. */
static inline void job_start(job *self, const char *settings, const char *const *arguments) {
    job_process *made = &self->ranks[self->count++];
    int ends[2];
    if (self->begin_ns == 0) self->begin_ns = ls_now_ns();
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    const pid_t test = getpid();
    made->pid = fork();
    assert_true(made->pid >= 0);
    if (made->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != test) _exit(1);
        clear_environment();
        for (char *setting = strtok(strdup(settings), " "); setting; setting = strtok(NULL, " ")) putenv(setting);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execvp(arguments[0], (char *const *)arguments);
        _exit(127);
    }
    close(ends[1]);
    made->output = ends[0];
    made->exit_code = -1;
}

/* A port of this host that is free now. */
static inline int free_port(void) {
    store_addresses addresses;
    int listener = -1;
    assert_int_equal(store_resolve("127.0.0.1", &addresses), LS_OK);
    assert_int_equal(store_address_listen(&addresses.list[0], &listener), LS_OK);
    close(listener);
    return store_address_port(&addresses.list[0]);
}

/* The same as rank `rank` of `ranks` that meet at `host`; `more` are further settings. */
static inline void job_start_rank(job *self, int rank, int ranks, const char *host, int port, const char *more,
                                  const char *const *arguments) {
    char settings[1024];
    snprintf(settings, sizeof settings, "RANK=%d WORLD_SIZE=%d MASTER_ADDR=%s MASTER_PORT=%d %s", rank, ranks, host,
             port, more);
    job_start(self, settings, arguments);
}

/* Reads all they write, until the last has ended; past the limit all are killed and the test fails. */
static inline void job_finish(job *self) {
    for (int open = self->count; open > 0;) {
        struct pollfd polled[JOB_MOST_RANKS];
        for (int i = 0; i < self->count; i++)
            polled[i] = (struct pollfd){.fd = self->ranks[i].output, .events = POLLIN};
        const int64_t left_ms = JOB_LIMIT_S * 1000 - (ls_now_ns() - self->begin_ns) / LS_NS_PER_MS;
        const int ready = left_ms > 0 ? poll(polled, (nfds_t)self->count, (int)left_ms) : 0;
        if (ready <= 0) {
            for (int i = 0; i < self->count; i++) {
                kill(self->ranks[i].pid, SIGKILL);
                print_error("--- process %d\n%s", i, self->ranks[i].text);
            }
            fail_msg("the job took too long");
        }
        for (int i = 0; i < self->count; i++) {
            job_process *each = &self->ranks[i];
            if (!polled[i].revents) continue;
            const ssize_t got = read(each->output, each->text + each->used, sizeof each->text - 1 - each->used);
            if (got > 0) {
                each->used += (size_t)got;
                continue;
            }
            int status = 0;
            close(each->output);
            each->output = -1;
            waitpid(each->pid, &status, 0);
            each->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            each->seconds = (double)(ls_now_ns() - self->begin_ns) / 1e9;
            open--;
        }
    }
}

static inline void job_print(const job *self) {
    for (int i = 0; i < self->count; i++)
        print_error("--- process %d, exit code %d after %.2f s\n%s", i, self->ranks[i].exit_code,
                    self->ranks[i].seconds, self->ranks[i].text);
}

/* All of them ended so, and each wrote this. */
#define assert_job(self, code, says) assert_job_at(self, code, says, __FILE__, __LINE__)
static inline void assert_job_at(const job *self, int code, const char *says, const char *file, int line) {
    for (int i = 0; i < self->count; i++) {
        if (self->ranks[i].exit_code == code && strstr(self->ranks[i].text, says)) continue;
        job_print(self);
        print_error("process %d: expected exit code %d and \"%s\"\n", i, code, says);
        _fail(file, line);
    }
}

#endif
