/* agreement.h: how ranks come to one verdict. Whatever fails on one rank alone is told to all, so that all return the
 * same status and the same sentence and the group stays in step. */
#ifndef LS_DDP_AGREEMENT_H
#define LS_DDP_AGREEMENT_H

#include "base/error.h"
#include "group/post.h"

/* What an operation of the private group is for: the low byte of its tag; the rest is the step. */
typedef enum agreement_kind {
    AGREE_VERIFY = 1,
    AGREE_BROADCAST,
    AGREE_REBUILD,
    AGREE_HEADER,
    AGREE_BUCKET,
    AGREE_FOOTER,
    AGREE_FAILURE
} agreement_kind;

static inline uint64_t agreement_tag(uint64_t step, agreement_kind kind) {
    return step << 8 | (uint64_t)kind;
}

#define AGREEMENT_TEXT_BYTES 500

/* One rank's failure, as it travels. */
typedef struct agreement_notice {
    int32_t status;
    int32_t reserved; /* no byte on the wire is left unset */
    char text[AGREEMENT_TEXT_BYTES + 4];
} agreement_notice;

/* The memory for an exchange is set aside at the start: telling of a lack of memory must not need any. */
typedef struct ls_agreement {
    ls_group *group; /* borrowed */
    int world_size;
    agreement_notice own;
    agreement_notice *notices; /* [world_size] */
} ls_agreement;

ls_status agreement_init(ls_agreement *agreement, ls_group *group);
void agreement_clear(ls_agreement *agreement);

/* Collective: every rank gives its status (with the thread's sentence); all return the failing rank's, the lowest one's
 * when several failed, with "rank N: " before its sentence; LS_OK when none did. A failure of the group itself is
 * returned as it is. Blocks under the group's limit. */
ls_status agreement_reach(ls_agreement *agreement, ls_status status, uint64_t step, agreement_kind kind);

/* Collective, blocking: gathers `bytes` bytes of every rank into `all` [world size][bytes]. */
ls_status agreement_gather(ls_agreement *agreement, const void *own, void *all, size_t bytes, uint64_t step,
                           agreement_kind kind);

/* Collective, blocking: `bytes` bytes at `data` become those of rank 0. */
ls_status agreement_broadcast(ls_agreement *agreement, void *data, size_t bytes, uint64_t step, agreement_kind kind);

#endif
