/* table.h: one walk through the table of collectives: each collective, type and op, over sizes and memories, against the
 * serial oracle. The ranks of `group` walk alike, be they threads or processes, whatever carries the group.
 *
 * A walk runs six lines of every (collective, type, op), each in another cell: a size (none, one, odd, large), a memory
 * (ordinary, off its alignment, the group's), in place or apart where the interface leaves that open. Any six cells in a
 * row hold every size, memory and place, and the next turn goes on where this one ends: four turns are all cells. */
#ifndef LS_TEST_TABLE_H
#define LS_TEST_TABLE_H

#include <lockstep/group.h>

#define TABLE_ENTRIES (9 * LS_DTYPE_COUNT * LS_OP_COUNT)

/* The cells that were met, a bit each, of every collective, type and op. */
typedef struct table_coverage {
    uint32_t cells[TABLE_ENTRIES];
} table_coverage;

typedef struct table_plan {
    uint64_t seed;
    int turn;
    int every;              /* runs one of so many lines; 0: all */
    bool adds_in_any_order; /* sums and products of f32 and f64 may round differently, as MPI's do */
    bool adds_by_host;      /* those of all floats may, and of reduce-scatters: inside hosts first, then over hosts */
} table_plan;

/* Adds to `covered` what it met, unless that is NULL. Returns false, behind a sentence on stderr, when a result is wrong. */
bool table_walk(ls_group *group, const table_plan *plan, table_coverage *covered);

/* Every collective with rows of 17 MiB, in which a backend's pieces end where they like. */
bool table_walk_large(ls_group *group, const table_plan *plan);

/* Whether all cells were met; else says where they were not. */
bool table_is_covered(const table_coverage *covered);

#endif
