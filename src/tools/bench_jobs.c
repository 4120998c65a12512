/* bench_jobs.c: the jobs that `lockstep bench all-reduce` sets side by side: starting them, and ordering rounds of
 * them. How they are spoken to stands in bench/round.h. */
#include "tools/bench.h"

#include "base/clock.h"
#include "base/wait.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Generous: PyTorch alone is slow to start, and so is everything where ranks share processors. */
#define START_NS (120 * LS_NS_PER_S)
#define ROUND_NS (60 * LS_NS_PER_S)
#define END_NS (10 * LS_NS_PER_S)
#define LOOK_NS (LS_NS_PER_S / 5)

/* Descriptors that ranks open through our folder in /proc have numbers in a row from here on, for each job. */
#define FIRST_DESCRIPTOR 100

static void close_pipes(bench_job *job) {
    for (int i = 0; i < job->ranks; i++)
        if (job->orders[i] >= 0) close(job->orders[i]);
    if (job->answers >= 0) close(job->answers);
    /* Our copies of what the ranks have open: while one is left, no pipe ends. */
    for (int i = 0; i <= job->ranks; i++) close(job->first + i);
    job->answers = -1;
    for (int i = 0; i < job->ranks; i++) job->orders[i] = -1;
}

static bool make_pipes(bench_job *job) {
    job->answers = -1;
    for (int i = 0; i < job->ranks; i++) job->orders[i] = -1;
    for (int i = 0; i <= job->ranks; i++) {
        int ends[2];
        /* Closed in what is started: ranks open what they need by our folder in /proc, under whatever launcher they
         * are. */
        if (pipe2(ends, O_CLOEXEC) != 0) return false;
        const int theirs = i < job->ranks ? ends[0] : ends[1];
        /* Under a number that the ranks are told beforehand. */
        const int placed = fcntl(theirs, F_DUPFD_CLOEXEC, job->first + i);
        close(theirs);
        if (i < job->ranks)
            job->orders[i] = ends[1];
        else
            job->answers = ends[0];
        if (placed != job->first + i) return false;
    }
    return true;
}

static bool has_ended(const bench_job *job) {
    /* Without taking its status: end() does that, once. */
    siginfo_t ended = {.si_pid = 0};
    return waitid(P_PID, (id_t)job->process, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != 0;
}

/* A rank's line without its newline; false when none came. */
static bool read_line(const bench_job *job, char *line, size_t bytes, int64_t limit_ns) {
    const int64_t deadline_ns = ls_now_ns() + limit_ns;
    for (size_t used = 0; used < bytes;) {
        struct pollfd answers = {.fd = job->answers, .events = POLLIN};
        if (ls_descriptors_wait(&answers, 1, ls_now_ns() + LOOK_NS) == 0) {
            /* A job that has died says nothing more, and is not waited for. */
            if (has_ended(job) || ls_now_ns() >= deadline_ns) return false;
            continue;
        }
        if (read(job->answers, &line[used], 1) != 1) return false;
        if (line[used] == '\n') {
            line[used] = '\0';
            return true;
        }
        used++;
    }
    return false;
}

/* Rank 0's line, once all ranks have answered: who still works would disturb the next contender. */
static bool read_answers(const bench_job *job, char *answer, size_t bytes, int64_t limit_ns) {
    char line[128];
    for (int i = 0; i < job->ranks; i++) {
        if (!read_line(job, line, sizeof line, limit_ns)) return false;
        /* Rank 0 answers with its times, all others with "done". */
        if (strcmp(line, "done") != 0) snprintf(answer, bytes, "%s", line);
        /* A failure: the others may never answer. */
        if (line[0] == '!') return true;
    }
    return true;
}

/* The job ends as its pipes close; what does not is killed. */
static void end(bench_job *job) {
    close_pipes(job);
    const int64_t deadline_ns = ls_now_ns() + END_NS;
    while (job->process && !has_ended(job) && ls_now_ns() < deadline_ns) ls_sleep_until(ls_now_ns() + LOOK_NS / 10);
    if (job->process) {
        /* The whole group: an MPI's launcher has its ranks in it. */
        if (!has_ended(job)) kill(-job->process, SIGKILL);
        waitpid(job->process, NULL, 0);
    }
    job->process = 0;
    job->is_ready = false;
}

static bool start(bench_job *job, char *const *program) {
    char line[128];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    /* Spawned, not forked: nothing of this process is copied, and a program that is not there is an error here. */
    if (posix_spawn_file_actions_init(&actions) || posix_spawnattr_init(&attributes)) return false;
    /* What a launcher says is no record of ours. In a group of its own it can be killed whole. */
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int failure = posix_spawn(&job->process, program[0], &actions, &attributes, program, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (failure) job->process = 0;
    return !failure && read_line(job, line, sizeof line, START_NS) &&
           sscanf(line, "= %23[^|]|%63[^\n]", job->impl, job->version) == 2;
}

/* Adds the job that `program` starts, or leaves it out. */
static int add(bench_job *jobs, int count, int ranks, char *const *program) {
    bench_job *job = &jobs[count];
    *job = (bench_job){.ranks = ranks, .first = FIRST_DESCRIPTOR + count * (BENCH_MOST_RANKS + 1)};
    /* One job after the other: while one starts, no other is measured, nor started. */
    job->is_ready = make_pipes(job) && start(job, program);
    if (job->is_ready) return count + 1;
    /* A peer that does not run here is no reason to measure nothing. */
    fprintf(stderr, "lockstep bench: left out: the ranks that %s starts did not come up\n", program[0]);
    end(job);
    return count;
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

typedef char peer_name[64];

/* The names of what is in a folder of peers, in order. */
static int list_peers(const char *folder, peer_name *names, int most) {
    DIR *directory = opendir(folder);
    const struct dirent *entry = NULL;
    int count = 0;
    while (directory && count < most && (entry = readdir(directory)))
        if (entry->d_name[0] != '.') snprintf(names[count++], sizeof *names, "%.63s", entry->d_name);
    if (directory) closedir(directory);
    /* A folder lists in any order; a record is to be the same each time. */
    qsort(names, (size_t)count, sizeof *names, by_name);
    return count;
}

int bench_jobs_start(bench_job *jobs, int ranks, size_t most_bytes, const char *peers) {
    char own[4096], most[24], process[16], count[16], first[16];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    snprintf(most, sizeof most, "%zu", most_bytes);
    snprintf(process, sizeof process, "%d", (int)getpid());
    snprintf(count, sizeof count, "%d", ranks);
    snprintf(first, sizeof first, "%d", FIRST_DESCRIPTOR);
    /* Our own ranks come through our own launcher, as a user's would. */
    char *library[] = {own,  "run",   "-n",  count, "--label", "none", "--", own, "bench", "all-reduce-worker",
                       most, process, first, NULL};
    int jobs_ready = add(jobs, 0, ranks, library);
    peer_name names[BENCH_MOST_JOBS];
    const int found = peers && jobs_ready ? list_peers(peers, names, BENCH_MOST_JOBS) : 0;
    for (int i = 0; i < found && jobs_ready < BENCH_MOST_JOBS; i++) {
        char program[4200];
        snprintf(program, sizeof program, "%s/%s/start", peers, names[i]);
        /* A folder may hold what the peers are built from. */
        if (access(program, X_OK) != 0) continue;
        snprintf(first, sizeof first, "%d", FIRST_DESCRIPTOR + jobs_ready * (BENCH_MOST_RANKS + 1));
        char *peer[] = {program, count, most, process, first, NULL};
        jobs_ready = add(jobs, jobs_ready, ranks, peer);
    }
    return jobs_ready;
}

bool bench_job_run(bench_job *job, bench_job_round *round) {
    char line[128];
    if (!job->is_ready) return false;
    /* An order is a line of text: peers are programs of other languages, too (bench/round.h). */
    const int length = snprintf(line, sizeof line, "%s %zu %d %d %.3f\n", round->way, round->bytes, round->is_fresh,
                                round->operations, round->pause_us);
    for (int rank = 0; rank < job->ranks; rank++) /* A line is far shorter than what a pipe takes at once. */
        if (write(job->orders[rank], line, (size_t)length) != length) job->is_ready = false;
    if (job->is_ready && read_answers(job, line, sizeof line, ROUND_NS) &&
        sscanf(line, "%lf %lf", &round->median_us, &round->best_us) == 2)
        return true;
    fprintf(stderr, "lockstep bench: %s %s failed at %zu bytes (%s): left out from here on\n", job->impl, job->version,
            round->bytes, round->way);
    end(job);
    return false;
}

void bench_jobs_end(bench_job *jobs, int count) {
    for (int i = 0; i < count; i++) end(&jobs[i]);
}
