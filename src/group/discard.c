/* discard.c: giving back pages of group memory whose content is not needed any more, while the rest stays. */
#include "group/post.h"

#include <sys/mman.h>
#include <unistd.h>

void group_discard(void *data, size_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)data;
    const uintptr_t first = (start + page - 1) / page * page, end = (start + bytes) / page * page;
    if (first >= end) return;
    void *pages = (char *)data + (first - start);
    /* Shared memory gives pages back by a hole in its object; memory of a world of one is private and just forgets them. */
    if (madvise(pages, end - first, MADV_REMOVE) != 0) madvise(pages, end - first, MADV_DONTNEED);
}
