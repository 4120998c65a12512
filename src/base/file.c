/* file.c: reading whole files; replacing files so that no moment shows half of one.
 *
 * The order that makes a replacement safe: content synced before the rename, or after a power failure the name may
 * stand for an empty file; the directory synced after it, or the rename itself may be lost. The temporary name is
 * fixed, so that killed writers leave one file at most, and locked, so that two writers at once cannot mix their
 * contents. */
#include "base/file.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading ---- */

/* Reads up to `size` bytes: fewer when the file has shrunk meanwhile. */
static ls_status read_all(int file, const char *path, uint8_t *bytes, size_t size, size_t *got) {
    *got = 0;
    while (*got < size) {
        const ssize_t part = LS_SYSCALL(EIO, read(file, bytes + *got, size - *got));
        /* The file has shrunk since it was measured: the caller's parser says what is missing from it. */
        if (part == 0) return LS_OK;
        if (part > 0)
            *got += (size_t)part;
        else if (errno != EINTR)
            return ls_fail_errno(LS_ERR_IO, errno, "cannot read \"%s\"", path);
    }
    return LS_OK;
}

ls_status ls_file_read(const char *path, uint8_t **bytes, size_t *size) {
    *bytes = NULL;
    ls_status status;
    /* Not blocking: a pipe without a writer is refused below, not waited for. */
    const int file = LS_SYSCALL(EMFILE, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot open \"%s\"", path);
    struct stat found;
    if (LS_SYSCALL(EIO, fstat(file, &found)) != 0) {
        status = ls_fail_errno(LS_ERR_IO, errno, "cannot look at \"%s\"", path);
        goto out;
    }
    if (!S_ISREG(found.st_mode)) {
        status = ls_fail(LS_ERR_IO, "\"%s\" is not a file; name the file itself", path);
        goto out;
    }
    *bytes = ls_alloc_raw((size_t)found.st_size);
    status = *bytes ? read_all(file, path, *bytes, (size_t)found.st_size, size) : LS_ERR_MEMORY;
out:
    close(file);
    if (status) {
        ls_free(*bytes);
        *bytes = NULL;
    }
    return status;
}

/* ---- Replacing ---- */

static void close_all(ls_replacement *self) {
    if (self->file >= 0) close(self->file);
    if (self->directory >= 0) close(self->directory);
    ls_free(self->partial);
    *self = (ls_replacement){.file = -1, .directory = -1};
}

/* The directory that `path` lies in, opened to be synced later. */
static ls_status open_directory(ls_replacement *self) {
    const char *slash = strrchr(self->path, '/');
    const size_t length = slash ? (size_t)(slash - self->path) : 0;
    char *name = ls_alloc(length + 2);
    if (!name) return LS_ERR_MEMORY;
    memcpy(name, self->path, length);
    if (length == 0) name[0] = slash ? '/' : '.';
    /* Before anything is written: a directory that cannot be synced later is known now. */
    self->directory = LS_SYSCALL(EMFILE, open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ls_status status = LS_OK;
    if (self->directory < 0)
        status = ls_fail_errno(LS_ERR_IO, errno, "cannot write \"%s\": its directory cannot be opened; make it first",
                               self->path);
    ls_free(name);
    return status;
}

/* Whether the temporary name still stands for the file that was opened and locked: another writer may have renamed
 * it. */
static bool is_still_there(const ls_replacement *self) {
    struct stat opened, named;
    return fstat(self->file, &opened) == 0 && stat(self->partial, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* A rename would put a file in place of whatever has the name: of /dev/null, for root, as well. */
static ls_status check_target(const char *path) {
    struct stat there;
    if (stat(path, &there) != 0 || S_ISREG(there.st_mode)) return LS_OK;
    return ls_fail(LS_ERR_IO, "cannot write \"%s\": it is there and is no file; name another place", path);
}

ls_status ls_replacement_open(ls_replacement *self, const char *path) {
    *self = (ls_replacement){.path = path, .file = -1, .directory = -1};
    LS_TRY(check_target(path));
    ls_status status = LS_ERR_MEMORY;
    const size_t bytes = strlen(path) + sizeof ".partial";
    self->partial = ls_alloc(bytes);
    if (!self->partial) goto out;
    snprintf(self->partial, bytes, "%s.partial", path);
    if ((status = open_directory(self))) goto out;

    /* Not blocking: a pipe that somebody has put there is an error, not a wait for its reader. */
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    self->file = LS_SYSCALL(ENOSPC, open(self->partial, flags, 0666));
    if (self->file < 0) {
        status = ls_fail_errno(LS_ERR_IO, errno, "cannot write \"%s\"", self->partial);
        goto out;
    }
    /* File systems without locks go on without one. */
    const bool is_locked = flock(self->file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (!is_locked || !is_still_there(self)) {
        status =
            ls_fail(LS_ERR_IO, "cannot write \"%s\": another process is writing it; let one rank alone do so", path);
        goto out;
    }
    /* Only under the lock: what is there may be another writer's, half done. */
    if (LS_SYSCALL(EIO, ftruncate(self->file, 0)) == 0) return LS_OK;
    status = ls_fail_errno(LS_ERR_IO, errno, "cannot write \"%s\"", self->partial);
    ls_replacement_discard(self);
    return status;
out:
    close_all(self);
    return status;
}

ls_status ls_replacement_write(ls_replacement *self, const void *bytes, size_t count) {
    for (const char *next = bytes; count > 0;) {
        const ssize_t part = LS_SYSCALL(ENOSPC, write(self->file, next, count));
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0)
            return ls_fail_errno(LS_ERR_IO, part == 0 ? ENOSPC : errno,
                                 "cannot write \"%s\", which is as it was; make room or choose another place",
                                 self->path);
        next += part;
        count -= (size_t)part;
    }
    return LS_OK;
}

ls_status ls_replacement_commit(ls_replacement *self) {
    ls_point("file.replace.written");
    /* The rename may reach the disk before the content does, unless the content is there already. */
    const bool is_synced = LS_SYSCALL(EIO, fsync(self->file)) == 0;
    ls_point("file.replace.synced");
    if (!is_synced || LS_SYSCALL(EIO, rename(self->partial, self->path)) != 0) {
        const ls_status status =
            ls_fail_errno(LS_ERR_IO, errno, "cannot put \"%s\" in place, which is as it was", self->path);
        ls_replacement_discard(self);
        return status;
    }
    ls_point("file.replace.renamed");
    ls_status status = LS_OK;
    if (LS_SYSCALL(EIO, fsync(self->directory)) != 0)
        status = ls_fail_errno(LS_ERR_IO, errno,
                               "\"%s\" is written, but its directory cannot be synced: after a power failure the "
                               "old content may be back",
                               self->path);
    close_all(self);
    return status;
}

void ls_replacement_discard(ls_replacement *self) {
    unlink(self->partial);
    close_all(self);
}
