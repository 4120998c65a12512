/* file.h: a whole file into memory, and a whole file in place of another. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include <lockstep/base.h>

/* Reads the regular file `path`: `bytes` [size] is the caller's, freed by ls_free. On error `bytes` is NULL.
 * Errors: LS_ERR_IO names the path, LS_ERR_MEMORY. */
ls_status ls_file_read(const char *path, uint8_t **bytes, size_t *size);

/* A file on its way to replace `path`: written under the name "<path>.partial", synced, then renamed. Until then, and
 * after any failure, `path` is as it was; a reader sees the old content or the new, never a part. What a killed process
 * left under the temporary name is taken over by the next writer. */
typedef struct ls_replacement {
    const char *path; /* borrowed */
    char *partial;
    int file, directory;
} ls_replacement;

/* Errors: LS_ERR_IO (also when another process is writing there, or `path` is something else than a file),
 * LS_ERR_MEMORY; nothing is left open then. */
ls_status ls_replacement_open(ls_replacement *self, const char *path);

/* Appends. Errors: LS_ERR_IO, and the caller discards. */
ls_status ls_replacement_write(ls_replacement *self, const void *bytes, size_t count);

/* Puts the file in place and closes. Errors: LS_ERR_IO; everything is cleaned up also then. */
ls_status ls_replacement_commit(ls_replacement *self);

/* Gives up: removes the temporary file and closes. */
void ls_replacement_discard(ls_replacement *self);

#endif
