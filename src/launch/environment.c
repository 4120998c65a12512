/* environment.c: torchrun's variables, so that programs written for it find what they expect, and ours.
 *
 * Whatever the launcher's own shell holds of them is stale: it is replaced, or taken out where this launcher has
 * nothing to say. It opens no port, so MASTER_ADDR and MASTER_PORT are taken out: a program that wants them says so at
 * once, where a left-over address would make it wait for somebody else. `lockstep run -n 2 env MASTER_PORT=... program`
 * sets them on purpose.                                                                                              */
#include "launch/environment.h"

#include "store/wire.h"

#include "base/environment.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const taken_out[] = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE",
                                        "TORCHELASTIC_USE_AGENT_STORE"};

enum { MOST_SETTINGS = 24, SETTING_BYTES = 128, TAKEN_OUT = sizeof taken_out / sizeof taken_out[0] };

/* The array handed out, and behind it the texts that are not the process's own. */
typedef struct settings {
    char **environment;
    size_t count;
    char *text, *end;
} settings;

static void put(settings *made, const char *format, ...) LS_PRINTF(2, 3);
static void put(settings *made, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    /* SETTING_BYTES a setting holds the longest of them; only LOCKSTEP_JOB has no limit, and its length is added. */
    const int bytes = vsnprintf(made->text, (size_t)(made->end - made->text), format, arguments);
    va_end(arguments);
    made->environment[made->count++] = made->text;
    made->text += bytes + 1;
}

static void put_all(settings *made, const launch_place *place) {
    put(made, "RANK=%d", place->rank);
    put(made, "WORLD_SIZE=%d", place->ranks);
    put(made, "LOCAL_RANK=%d", place->rank);
    put(made, "LOCAL_WORLD_SIZE=%d", place->ranks);
    put(made, "GROUP_RANK=0"); /* the host's number, as torchrun has it */
    put(made, "GROUP_WORLD_SIZE=1");
    put(made, "ROLE_RANK=%d", place->rank);
    put(made, "ROLE_WORLD_SIZE=%d", place->ranks);
    put(made, "ROLE_NAME=default");
    put(made, "TORCHELASTIC_RESTART_COUNT=0");
    put(made, "TORCHELASTIC_MAX_RESTARTS=0");
    put(made, "TORCHELASTIC_RUN_ID=%s", place->job);
    put(made, STORE_ENV_DOOR "=%d", place->door);
    put(made, STORE_ENV_SOCKET "=%s", place->socket);
    put(made, STORE_ENV_LAUNCHER "=%d", (int)place->launcher);
    put(made, STORE_ENV_PLACE "=%d/%d", place->rank, place->ranks);

    /* Under another launcher both find their processes by it. */
    const char *outer = ls_env_text(LAUNCH_ENV_JOB);
    put(made, LAUNCH_ENV_JOB "=%s%s%s", outer ? outer : "", outer ? "," : "", place->job);

    /* What every rank would take by itself is all of them: more threads than cores, and each step waits for the
     * last. */
    const int share = place->cores / place->ranks;
    if (!ls_env_text("OMP_NUM_THREADS")) put(made, "OMP_NUM_THREADS=%d", share > 1 ? share : 1);
}

static bool has_name(const char *setting, const char *name, size_t length) {
    return strncmp(setting, name, length) == 0 && setting[length] == '=';
}

/* Whether a variable of the process is taken out, or stands among the `own` first settings already. */
static bool is_replaced(const settings *made, size_t own, const char *variable) {
    for (size_t i = 0; i < TAKEN_OUT; i++)
        if (has_name(variable, taken_out[i], strlen(taken_out[i]))) return true;
    for (size_t i = 0; i < own; i++) {
        const char *setting = made->environment[i];
        if (has_name(variable, setting, (size_t)(strchr(setting, '=') - setting))) return true;
    }
    return false;
}

char **launch_environment_create(const launch_place *place) {
    size_t inherited = 0;
    while (environ[inherited]) inherited++;
    const char *outer = ls_env_text(LAUNCH_ENV_JOB);
    const size_t array_bytes = (inherited + MOST_SETTINGS + 1) * sizeof(char *);
    const size_t text_bytes = (size_t)MOST_SETTINGS * SETTING_BYTES + (outer ? strlen(outer) : 0);
    char **environment = ls_alloc(array_bytes + text_bytes);
    if (!environment) return NULL;

    settings made = {.environment = environment, .text = (char *)environment + array_bytes};
    made.end = made.text + text_bytes;
    put_all(&made, place);
    const size_t own = made.count;
    for (size_t i = 0; i < inherited; i++)
        /* Pointers into the process's own: the launcher does not change it while a rank is started. */
        if (!is_replaced(&made, own, environ[i])) environment[made.count++] = environ[i];
    return environment;
}
