/* flight.c: `lockstep doctor --flight DIR`: what the ranks' flight recorders say together: which rank is stuck where.
 *
 * Each file is one rank's view of one group. Of a group all files are laid side by side: the earliest operation that
 * is not complete everywhere is where it hangs; who has not come to it is who the others wait for. */
#include "tools/flight.h"

#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One file: what one rank knows of one group. */
typedef struct view {
    char group[128];
    int rank, world_size;
    json_t *file;
} view;

typedef struct view_list {
    view *all;
    size_t count;
} view_list;

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    /* A member that is missing reads as empty: files of other versions are merged as far as they go. */
    return text ? text : "";
}

static int64_t number_of(const json_t *object, const char *name) {
    return (int64_t)json_integer_value(json_object_get(object, name));
}

#define MOST_RANKS (1 << 20) /* far more than any job has */

/* NULL and a sentence where it is not a file of that rank's recorder: folders may hold anything, and what is printed
 * goes by the numbers in it. */
static json_t *load(const char *path, int rank) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    json_t *file = NULL;
    if (ls_file_read(path, &bytes, &size) == LS_OK) file = json_loadb((const char *)bytes, size, 0, NULL);
    ls_free(bytes);
    const int64_t world_size = number_of(file, "world_size");
    if (json_is_array(json_object_get(file, "entries")) && world_size <= MOST_RANKS && rank >= 0 && rank < world_size)
        return file;
    fprintf(stderr, "lockstep doctor: %s is no file of the flight recorder; it is left out\n", path);
    json_decref(file);
    return NULL;
}

/* A file's group stands in its name, as every entry's does: a group without entries has one too. */
static void take_file(view_list *views, const char *folder, const char *name) {
    char path[1024];
    int rank = 0, begin = 0;
    const size_t length = strlen(name);
    /* Other files may lie there. */
    if (sscanf(name, "flight-%d-%n", &rank, &begin) != 1 || begin == 0 || length < 5 ||
        strcmp(name + length - 5, ".json") != 0)
        return;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *file = load(path, rank);
    if (!file) return;
    view *one = &views->all[views->count++];
    *one = (view){.rank = rank, .world_size = (int)number_of(file, "world_size"), .file = file};
    /* Between the rank and the ending: names of groups may hold dashes. */
    snprintf(one->group, sizeof one->group, "%.*s", (int)(length - 5 - (size_t)begin), name + begin);
}

static int by_group_and_rank(const void *left, const void *right) {
    const view *a = left, *b = right;
    const int order = strcmp(a->group, b->group);
    /* Files of one group come to lie together, in the order of ranks. */
    return order ? order : a->rank - b->rank;
}

/* --- one group ---------------------------------------------------------------------------------------------------- */

/* Operation `number` as this rank has it; NULL: it has not begun it. */
static const json_t *entry_of(const view *one, int64_t number) {
    size_t index;
    json_t *entry;
    json_array_foreach(json_object_get(one->file, "entries"), index, entry) {
        if (number_of(entry, "collective_seq_id") == number && !json_is_true(json_object_get(entry, "is_p2p")) &&
            /* Posted only: to the others it has not come yet. */
            strcmp(text_of(entry, "state"), "scheduled") != 0)
            return entry;
    }
    return NULL;
}

static bool is_complete(const json_t *entry) {
    return entry && strcmp(text_of(entry, "state"), "completed") == 0;
}

/* The last operation that this rank has completed with all before it. Numbers grow without gaps, and a group
 * completes its operations in order. */
static int64_t last_complete(const view *one) {
    int64_t last = 0;
    size_t index;
    json_t *entry;
    json_array_foreach(json_object_get(one->file, "entries"), index, entry) {
        const int64_t number = number_of(entry, "collective_seq_id");
        if (is_complete(entry) && number > last) last = number;
    }
    return last;
}

/* "1, 3" of those that `tells`, each a rank of the group; returns how many. */
typedef bool teller(const view *one, int64_t number);

/* Those that the others wait for. */
static bool has_not_come(const view *one, int64_t number) {
    return !entry_of(one, number);
}

/* Those that wait. */
static bool is_in_it(const view *one, int64_t number) {
    const json_t *entry = entry_of(one, number);
    return entry && !is_complete(entry);
}

static void say_ranks(const char *before, const view *group, size_t count, teller *tells, int64_t number,
                      const char *after) {
    int said = 0;
    for (size_t i = 0; i < count; i++) {
        if (!tells(&group[i], number)) continue;
        printf("%s%d", said++ ? ", " : before, group[i].rank);
    }
    if (said) printf("%s", after);
}

/* Ranks without a file: killed, or not asked. */
static void say_silent(const view *group, size_t count) {
    int said = 0;
    for (int rank = 0; rank < group[0].world_size; rank++) {
        size_t i = 0;
        while (i < count && group[i].rank != rank) i++;
        if (i == count) printf("%s%d", said++ ? ", " : "  no file of rank ", rank);
    }
    if (said) printf(": it died, or was in no call of the group when the others wrote\n");
}

/* The calls of an operation that not all ranks called alike. */
static bool say_differences(const view *group, size_t count, int64_t number) {
    const json_t *first = NULL;
    bool differs = false;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = entry_of(&group[i], number);
        /* The lowest rank that has come: what the others' calls are compared with. */
        if (!first) first = entry;
        differs |= entry && strcmp(text_of(entry, "profiling_name"), text_of(first, "profiling_name")) != 0;
    }
    /* Once they differ all are said, in the order of ranks: who is right nobody knows. */
    for (size_t i = 0; differs && i < count; i++) {
        const json_t *entry = entry_of(&group[i], number);
        if (entry) printf("  rank %d called %s\n", group[i].rank, text_of(entry, "profiling_name"));
    }
    return differs;
}

/* Messages have numbers of their own, and no order among ranks: each that is not complete is said by itself. */
static void say_messages(const view *one) {
    size_t index;
    json_t *entry;
    json_array_foreach(json_object_get(one->file, "entries"), index, entry) {
        if (json_is_true(json_object_get(entry, "is_p2p")) && !is_complete(entry))
            printf("  rank %d waits in %s\n", one->rank, text_of(entry, "profiling_name"));
    }
}

static void say_group(const view *group, size_t count) {
    int64_t first = INT64_MAX;
    const char *call = NULL;
    for (size_t i = 0; i < count; i++) {
        const int64_t last = last_complete(&group[i]);
        /* Operations complete in order, so the first that some rank lacks is where all hang. */
        first = last + 1 < first ? last + 1 : first;
    }
    for (size_t i = 0; i < count && !call; i++) {
        const json_t *entry = entry_of(&group[i], first);
        if (entry) call = text_of(entry, "profiling_name");
    }
    printf("group %s of %d ranks: ", group[0].group, group[0].world_size);
    if (!call)
        printf("nothing is under way; all have completed operation %" PRId64 "\n", first - 1);
    else
        printf("stuck in operation %" PRId64 ", %s\n", first, call);
    if (call && !say_differences(group, count, first)) {
        say_ranks("  waiting in it: rank ", group, count, is_in_it, first, "\n");
        say_ranks("  has not come to it: rank ", group, count, has_not_come, first, "\n");
    }
    say_silent(group, count);
    for (size_t i = 0; i < count; i++) {
        say_messages(&group[i]);
        if (*text_of(group[i].file, "failure"))
            printf("  rank %d says: %s\n", group[i].rank, text_of(group[i].file, "failure"));
    }
}

int doctor_flight(const char *folder) {
    DIR *directory = opendir(folder);
    if (!directory) {
        fprintf(stderr, "lockstep doctor: cannot open the folder \"%s\"; name that of LOCKSTEP_FLIGHT_DIR\n", folder);
        return 1;
    }
    size_t files = 0;
    /* Counted first, as each may be a rank's: a table is made once. */
    while (readdir(directory)) files++;
    view_list views = {.all = ls_alloc_array(files, sizeof(view))};
    rewinddir(directory);
    /* Those that came since are for the next time. */
    for (const struct dirent *file = NULL; views.all && files > 0 && (file = readdir(directory)); files--)
        take_file(&views, folder, file->d_name);
    closedir(directory);
    if (views.count == 0) {
        fprintf(stderr,
                "lockstep doctor: \"%s\" has no file of a flight recorder; ranks write them when a group is lost or on "
                "SIGUSR2, with LOCKSTEP_FLIGHT_DIR set\n",
                folder);
        ls_free(views.all);
        return 1;
    }
    /* So that a group is a run of the table. */
    qsort(views.all, views.count, sizeof *views.all, by_group_and_rank);
    for (size_t first = 0, end = 0; first < views.count; first = end) {
        while (end < views.count && strcmp(views.all[end].group, views.all[first].group) == 0) end++;
        say_group(&views.all[first], end - first);
    }
    for (size_t i = 0; i < views.count; i++) json_decref(views.all[i].file);
    ls_free(views.all);
    return 0;
}
