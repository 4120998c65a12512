/* inherited.c: the store of the launcher, over the socket that a worker inherits. */
#include "store/backend.h"

#include "base/error.h"

ls_status ls_store_open_inherited(ls_store **store) {
    *store = NULL;
    return ls_fail(LS_ERR_ENVIRONMENT, "this process was not started by `lockstep run`: there is no store to inherit");
}
