/* nodelist.c: expands Slurm's notation for sets of hosts.
 *
 *     list    item , item ...
 *     item    text and [ranges], in turn, any number of times: the last ranges count fastest
 *     ranges  7 or 1-12 or 001-012, separated by commas; leading zeros are the width of all numbers of a range
 *
 * Nothing is allocated: the wanted host is computed from its index. The list comes from outside: it is bounded and
 * checked. */
#include "store/nodelist.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* More brackets than names of hosts have, and numbers that can be multiplied. */
enum { MOST_RANGES = 8, MOST_DIGITS = 12 };

static ls_status fail_format(const char *list) {
    return ls_fail(LS_ERR_FORMAT, "\"%.200s\" is no list of hosts as Slurm writes them", list);
}

/* Reads digits at `*at`; false when there are none or too many. */
static bool read_number(const char **at, int64_t *number, int *width) {
    const char *begin = *at;
    *number = 0;
    while (**at >= '0' && **at <= '9' && *at - begin < MOST_DIGITS) *number = *number * 10 + (*(*at)++ - '0');
    *width = (int)(*at - begin);
    return *width > 0 && !(**at >= '0' && **at <= '9');
}

/* The next range within brackets, `*at` behind it. */
static bool read_range(const char **at, int64_t *first, int64_t *last, int *width) {
    int last_width = 0;
    if (!read_number(at, first, width)) return false;
    *last = *first;
    if (**at != '-') return true;
    (*at)++;
    return read_number(at, last, &last_width) && *last >= *first;
}

/* How many numbers the brackets at `*at` stand for; `*at` goes behind them. 0: they are none. */
static int64_t count_bracket(const char **at) {
    int64_t count = 0, first = 0, last = 0;
    int width = 0;
    do {
        (*at)++; /* the bracket, or a comma */
        if (!read_range(at, &first, &last, &width)) return 0;
        count += last - first + 1;
    } while (**at == ',');
    if (**at != ']') return 0;
    (*at)++;
    return count;
}

/* Writes the `index`-th number of the brackets at `at`. */
static int print_bracket(const char *at, int64_t index, char *text, size_t bytes) {
    for (;;) {
        int64_t first = 0, last = 0;
        int width = 0;
        at++;
        if (!read_range(&at, &first, &last, &width)) return 0; /* it was counted: this does not happen */
        if (index <= last - first) return snprintf(text, bytes, "%0*" PRId64, width, first + index);
        index -= last - first + 1;
    }
}

/* The item at `*at`, up to its comma or the list's end: how many hosts it is (0: none that could be read), and the
 * numbers of each of its brackets. */
static int64_t count_item(const char **at, int64_t counts[MOST_RANGES], int *brackets) {
    int64_t total = 1;
    *brackets = 0;
    const char *begin = *at;
    while (**at && **at != ',') {
        if (**at == ']') return 0;
        if (**at != '[') {
            (*at)++;
            continue;
        }
        if (*brackets == MOST_RANGES) return 0;
        const int64_t count = count_bracket(at);
        if (count == 0 || __builtin_mul_overflow(total, count, &total)) return 0;
        counts[(*brackets)++] = count;
    }
    return *at > begin ? total : 0;
}

/* Host `index` of the item at `at`. False: it does not fit. */
static bool print_item(const char *at, int64_t index, const int64_t counts[MOST_RANGES], int brackets, char *host,
                       size_t bytes) {
    int64_t chosen[MOST_RANGES] = {0};
    /* As digits of a number: the last bracket counts fastest. */
    for (int i = brackets - 1; i >= 0; i--) {
        chosen[i] = index % counts[i];
        index /= counts[i];
    }
    size_t used = 0;
    for (int bracket = 0; *at && *at != ',' && used < bytes;) {
        if (*at != '[') {
            host[used++] = *at++;
            continue;
        }
        used += (size_t)print_bracket(at, chosen[bracket++], host + used, bytes - used);
        at += strcspn(at, "]") + 1;
    }
    if (used >= bytes) return false;
    host[used] = '\0';
    return true;
}

ls_status store_nodelist_host(const char *list, int64_t index, char *host, size_t bytes) {
    for (const char *at = list;; at++) {
        int64_t counts[MOST_RANGES];
        int brackets = 0;
        const char *item = at;
        const int64_t count = count_item(&at, counts, &brackets);
        if (count == 0) return fail_format(list);
        if (index < count) return print_item(item, index, counts, brackets, host, bytes) ? LS_OK : fail_format(list);
        index -= count;
        if (!*at) return LS_END;
    }
}
