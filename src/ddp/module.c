/* module.c: a wrapped module. The only file of the room that knows tensors and the tape.
 *
 * The module's forward is hooked to list the wrap in the thread's step and to mark its outputs; the wrap then hears of
 * each backward through an observer, and of each gradient through a hook on the leaf. Gradients live in buckets: the
 * leaf's home.
 *
 *   first forward after a backward    buffers from rank 0, buckets laid out anew, when due
 *   begin of backward                 what is used is known: the header, or nothing under no_sync
 *   a leaf's gradient is complete     marked; its bucket may start
 *   finish of backward                the reducer's end; leaves that only others used have a gradient now
 *
 * All of it runs on the thread that trains.                                                                          */
#include "autograd/observer.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/memory.h"
#include "ddp/bitmap.h"
#include "ddp/coalesced.h"
#include "ddp/reducer.h"
#include "nn/hooks.h"
#include "trace/trace.h"

#include <lockstep/ddp.h>

#include <string.h>

struct ls_ddp {
    ls_module *module; /* held */
    ls_reduction core;
    bool keep_local_buffers, is_hooked;
    int hooked_count;    /* of the leaves */
    int parameter_count; /* of the module when wrapped, ignored ones too */
    int leaf_count;
    ls_tensor **leaves; /* [leaf_count] held, those that are reduced */
    int bystander_count;
    ls_tensor **bystanders; /* [bystander_count] held, not ignored and frozen when wrapped */
    const char **bystander_names;
    int buffer_count;
    ls_tensor **buffers;  /* [buffer_count] held, not ignored */
    memory_piece *pieces; /* room for a broadcast of any of these lists */
    autograd_observer observer;

    int no_sync_depth;
    bool synchronises;    /* the last forward's mode */
    bool buffers_are_due; /* the last backward synchronised, and no forward has come since */
    bool *reached;        /* [leaf_count] by the backward under way */
    bool *used;           /* [leaf_count] reached since the last synchronised backward */
    ls_error kept;        /* a failure under no_sync, for the next header */
    ls_error verdict;     /* of the last backward, until the next forward */
    int64_t forward_start_ns, backward_start_ns;
    ls_ddp_stats stats;
};

/* ---- Gradients' homes ---- */

static ls_status set_home(ls_ddp *ddp, int index, void *memory) {
    ls_tensor *leaf = ddp->leaves[index], *home = NULL;
    if (!memory) return LS_OK; /* no elements */
    int64_t dims[LS_MAX_DIMS];
    for (int dim = 0; dim < ls_tensor_ndim(leaf); dim++) dims[dim] = ls_tensor_dim(leaf, dim);
    /* A tensor over the bucket's memory, of the leaf's shape and layout: kernels write there without knowing of
     * buckets. */
    LS_TRY(ls_tensor_borrow(&home, ls_tensor_dtype(leaf), ls_tensor_ndim(leaf), dims, ls_tensor_layout(leaf), memory,
                            NULL, NULL));
    const ls_status status = autograd_leaf_set_home(leaf, home);
    ls_tensor_close(&home);
    return status;
}

static ls_status move(void *context, int index, void *from, void *to) {
    (void)from; /* the leaf knows where its gradient was */
    return set_home(context, index, to);
}

static void forget_gradients(ls_ddp *ddp) {
    /* The memory stays the leaf's home; it only holds no gradient any more. */
    for (int i = 0; i < ddp->leaf_count; i++) ls_tensor_zero_grad(ddp->leaves[i]);
    memset(ddp->used, 0, (size_t)ddp->leaf_count * sizeof *ddp->used);
}

/* Makes the content of all tensors rank 0's. */
static ls_status broadcast(ls_ddp *ddp, ls_tensor *const *tensors, int count) {
    for (int i = 0; i < count; i++)
        ddp->pieces[i] = (memory_piece){ls_tensor_data_mut(tensors[i]), (size_t)ls_tensor_numel(tensors[i]) *
                                                                            ls_dtype_size(ls_tensor_dtype(tensors[i]))};
    return coalesced_broadcast(&ddp->core.agreement, ddp->pieces, count, ddp->core.step);
}

/* ---- Forward ---- */

static ls_status before_forward(void *context) {
    ls_ddp *ddp = context;
    if (!autograd_grad_is_on()) return LS_OK; /* an evaluation, perhaps on this rank alone: nothing is sent */
    ddp->forward_start_ns = ls_now_ns();
    /* First of all: from here on a backward reaches the peers, whatever fails after it. */
    LS_TRY(autograd_observer_list(&ddp->observer));
    ddp->synchronises = ddp->no_sync_depth == 0;
    ddp->verdict.status = LS_OK;
    /* Due once a backward, so that what is collective happens in the first of several forwards alone: all ranks have as
     * many backwards, not as many forwards. */
    if (ddp->buffers_are_due && !ddp->keep_local_buffers) {
        /* Before the broadcast: a failed one is not tried again by this rank alone. */
        ddp->buffers_are_due = false;
        LS_TRY(broadcast(ddp, ddp->buffers, ddp->buffer_count));
        ls_point("ddp.buffers.broadcast");
    }
    /* Under no_sync gradients are only added to: a rebuild can wait, and the message is saved. */
    return ddp->synchronises ? reducer_rebuild(&ddp->core, move, ddp) : LS_OK;
}

static ls_tensor *after_forward(void *context, ls_tensor *output) {
    ls_ddp *ddp = context;
    if (!autograd_grad_is_on()) return output;
    const int64_t now_ns = ls_now_ns();
    /* Each output passes here; the last one's moment holds. */
    ddp->stats.forward_ns = now_ns - ddp->forward_start_ns;
    trace_span("forward", "forward", ddp->forward_start_ns, now_ns);
    return autograd_observer_mark(&ddp->observer, output);
}

/* ---- Backward ---- */

/* A parameter that was frozen when wrapped, or not there yet, and takes gradients now would diverge without a word. */
static ls_status check_bystanders(const ls_ddp *ddp) {
    const int parameter_count = ls_module_parameter_count(ddp->module);
    if (parameter_count != ddp->parameter_count)
        return ls_fail(LS_ERR_STATE,
                       "the module had %d parameters when it was wrapped and has %d now; the new ones would not be "
                       "averaged: wrap after the module is complete",
                       ddp->parameter_count, parameter_count);
    for (int i = 0; i < ddp->bystander_count; i++)
        if (ls_tensor_requires_grad(ddp->bystanders[i]))
            return ls_fail(
                LS_ERR_STATE,
                "parameter \"%s\" was frozen when the module was wrapped and requires a gradient now; it would "
                "not be averaged: wrap after changing what is trained",
                ddp->bystander_names[i]);
    return LS_OK;
}

/* Unreached gradients that do not exist count as zero, should another rank use the parameter. */
static void zero_absent(ls_ddp *ddp) {
    for (int i = 0; i < ddp->leaf_count; i++)
        if (!ddp->reached[i] && !ls_tensor_grad(ddp->leaves[i]) && ddp->core.bytes[i] > 0)
            memset(storage_gradient(&ddp->core.storage, i), 0, ddp->core.bytes[i]);
}

/* After a failed backward nothing is sent until the next forward: of two losses made before it, a rank on which the
 * second forward failed does not know whether the others run that one by itself. All ranks have the verdict, so all sit
 * it out. */
static ls_status begin_backward(void *context, ls_status failure) {
    ls_ddp *ddp = context;
    if (ddp->verdict.status != LS_OK) return ls_error_raise(&ddp->verdict);
    ddp->backward_start_ns = ls_now_ns();
    for (int i = 0; i < ddp->leaf_count; i++) {
        /* After a failure nobody knows what the tape would have reached; the header carries the failure anyway. */
        ddp->reached[i] = failure == LS_OK && autograd_leaf_is_reached(ddp->leaves[i]);
        ddp->used[i] |= ddp->reached[i];
    }
    /* Here rather than at the forward: the header takes the failure to all ranks. */
    if (failure == LS_OK) failure = check_bystanders(ddp);
    if (!ddp->synchronises) {
        reducer_skip(&ddp->core);
        return failure;
    }
    if (ddp->core.broken.status != LS_OK) return ls_error_raise(&ddp->core.broken);
    /* A failure under no_sync was this rank's alone until now; accumulated gradients are lost with it on all. */
    if (ddp->kept.status != LS_OK) failure = ls_error_raise(&ddp->kept);
    ddp->kept.status = LS_OK;
    zero_absent(ddp);
    const ls_status status = reducer_begin(&ddp->core, failure, ddp->reached, ddp->used);
    return status == LS_OK ? failure : status;
}

static void gradient_ready(void *context, int index) {
    ls_ddp *ddp = context;
    if (ddp->synchronises) reducer_mark(&ddp->core, index); /* a failure is the step's: finish returns it */
}

static void take_stats(ls_ddp *ddp, int64_t compute_end_ns) {
    ls_ddp_stats *stats = &ddp->stats;
    const ls_reduction *core = &ddp->core;
    const int64_t now_ns = ls_now_ns();
    stats->step = core->step;
    stats->bucket_count = core->storage.plan.bucket_count;
    stats->has_rebuilt = core->has_rebuilt;
    stats->backward_ns = now_ns - ddp->backward_start_ns;
    stats->backward_compute_ns = compute_end_ns - ddp->backward_start_ns;
    stats->communication_ns = 0;
    stats->bytes = 0;
    if (!ddp->synchronises) return;
    const int last = stats->bucket_count - 1;
    /* Buckets run in order: the first one's start and the last one's end span all of them. */
    stats->communication_ns = core->slots[last].end_ns - core->slots[0].start_ns;
    for (int i = 0; i < ddp->leaf_count; i++)
        if (bitmap_has(core->used, i)) stats->bytes += core->bytes[i];
}

static ls_status finish_backward(void *context, ls_status failure) {
    ls_ddp *ddp = context;
    if (ddp->verdict.status != LS_OK) return ls_error_raise(&ddp->verdict);
    const int64_t compute_end_ns = ls_now_ns();
    if (!ddp->synchronises) {
        if (failure != LS_OK && ddp->kept.status == LS_OK) ls_error_capture(&ddp->kept, failure);
        take_stats(ddp, compute_end_ns);
        return failure;
    }
    /* Also after a failure: all ranks know of it alike, so all broadcast or none does. */
    ddp->buffers_are_due = true;
    const ls_status status = reducer_finish(&ddp->core, failure);
    if (status != LS_OK) {
        ls_error_capture(&ddp->verdict, status);
        forget_gradients(ddp); /* undefined now: repeat from the first micro-step */
        return status;
    }
    /* What any rank used has an average now, here too; what none used keeps what it has, or nothing. */
    for (int i = 0; i < ddp->leaf_count; i++) {
        if (bitmap_has(ddp->core.used, i)) autograd_leaf_set_has_grad(ddp->leaves[i], true);
        ddp->used[i] = false;
    }
    take_stats(ddp, compute_end_ns);
    return LS_OK;
}

/* ---- Wrapping ---- */

static bool is_ignored(const ls_ddp_options *options, const char *name) {
    for (const char *const *ignored = options->ignored; ignored && *ignored; ignored++)
        if (strcmp(*ignored, name) == 0) return true;
    return false;
}

static ls_status allocate(ls_ddp *ddp) {
    const size_t parameters = (size_t)ls_module_parameter_count(ddp->module);
    const size_t buffers = (size_t)ls_module_buffer_count(ddp->module);
    ddp->leaves = ls_alloc_array(parameters, sizeof(ls_tensor *));
    ddp->bystanders = ls_alloc_array(parameters, sizeof(ls_tensor *));
    ddp->bystander_names = ls_alloc_array(parameters, sizeof(char *));
    ddp->buffers = ls_alloc_array(buffers, sizeof(ls_tensor *));
    ddp->pieces = ls_alloc_array(parameters > buffers ? parameters : buffers, sizeof *ddp->pieces);
    ddp->reached = ls_alloc_array(parameters, sizeof *ddp->reached);
    ddp->used = ls_alloc_array(parameters, sizeof *ddp->used);
    const bool is_whole = ddp->leaves && ddp->bystanders && ddp->bystander_names && ddp->buffers && ddp->pieces &&
                          ddp->reached && ddp->used;
    return is_whole ? LS_OK : LS_ERR_MEMORY;
}

/* A list of what takes part, for comparison over ranks. Dims live in `dims`, which the items point into. */
typedef struct item_list {
    verify_item *items;
    int64_t (*dims)[LS_MAX_DIMS];
    int count;
} item_list;

static void add_item(item_list *list, const char *name, const ls_tensor *tensor, bool requires_grad) {
    int64_t *dims = list->dims[list->count];
    for (int dim = 0; dim < ls_tensor_ndim(tensor); dim++) dims[dim] = ls_tensor_dim(tensor, dim);
    list->items[list->count++] =
        (verify_item){name, ls_tensor_dtype(tensor), ls_tensor_ndim(tensor), dims, requires_grad};
}

static ls_status take_tensors(ls_ddp *ddp, const ls_ddp_options *options, item_list *list) {
    const int parameter_count = ls_module_parameter_count(ddp->module);
    const int buffer_count = ls_module_buffer_count(ddp->module);
    const size_t count = (size_t)parameter_count + (size_t)buffer_count;
    ddp->parameter_count = parameter_count;
    LS_TRY(allocate(ddp));
    list->items = ls_alloc_array(count, sizeof *list->items);
    list->dims = ls_alloc_array(count, sizeof *list->dims);
    if (!list->items || !list->dims) return LS_ERR_MEMORY;
    for (int i = 0; i < parameter_count; i++) {
        const char *name = ls_module_parameter_name(ddp->module, i);
        ls_tensor *tensor = ls_module_parameter(ddp->module, i);
        if (is_ignored(options, name)) continue;
        /* What trains is decided now; check_bystanders watches that it stays so. */
        const bool is_leaf = ls_tensor_requires_grad(tensor);
        add_item(list, name, tensor, is_leaf);
        ls_tensor_keep(tensor);
        if (is_leaf) {
            ddp->leaves[ddp->leaf_count++] = tensor;
        } else {
            ddp->bystander_names[ddp->bystander_count] = name;
            ddp->bystanders[ddp->bystander_count++] = tensor;
        }
    }
    for (int i = 0; i < buffer_count; i++) {
        const char *name = ls_module_buffer_name(ddp->module, i);
        if (is_ignored(options, name)) continue;
        add_item(list, name, ls_module_buffer(ddp->module, i), false);
        ddp->buffers[ddp->buffer_count++] = ls_tensor_keep(ls_module_buffer(ddp->module, i));
    }
    return LS_OK;
}

/* After this every replica holds rank 0's values. */
static ls_status broadcast_state(ls_ddp *ddp) {
    /* Frozen parameters and buffers too: replicas that differ in them would compute different gradients. */
    LS_TRY(broadcast(ddp, ddp->leaves, ddp->leaf_count));
    LS_TRY(broadcast(ddp, ddp->bystanders, ddp->bystander_count));
    LS_TRY(broadcast(ddp, ddp->buffers, ddp->buffer_count));
    ls_point("ddp.wrap.broadcast");
    return LS_OK;
}

/* The module first: when another wrap has hooked it, its leaves are that one's too. Leaves may also be another's
 * through a module within this one, or around it, or a shared parameter: two averages of one gradient cannot be. */
static ls_status hook_up(ls_ddp *ddp) {
    const nn_hooks hooks = {.before = before_forward, .after = after_forward, .context = ddp};
    LS_TRY(nn_module_set_hooks(ddp->module, &hooks));
    ddp->is_hooked = true;
    for (int i = 0; i < ddp->leaf_count; i++) {
        const ls_status status = autograd_leaf_set_hook(ddp->leaves[i], gradient_ready, ddp, i);
        if (status != LS_OK) return ls_fail_within(status, "parameter \"%s\"", ddp->core.names[i]);
        ddp->hooked_count++;
        LS_TRY(set_home(ddp, i, storage_gradient(&ddp->core.storage, i)));
    }
    return LS_OK;
}

static void unhook(ls_ddp *ddp) {
    if (!ddp->is_hooked) return;
    nn_module_set_hooks(ddp->module, NULL);
    for (int i = 0; i < ddp->hooked_count; i++) {
        autograd_leaf_set_hook(ddp->leaves[i], NULL, NULL, 0);
        ls_tensor_zero_grad(ddp->leaves[i]); /* so that leaving the bucket needs no copy and cannot fail */
        autograd_leaf_set_home(ddp->leaves[i], NULL);
    }
}

static ls_status wrap(ls_ddp *ddp, ls_group *group, const ls_ddp_options *options,
                      const reducer_options *core_options) {
    item_list list = {0};
    ls_status status = take_tensors(ddp, options, &list);
    status = reducer_init(&ddp->core, group, status, list.items, list.count, core_options);
    ls_free(list.items);
    ls_free(list.dims);
    if (status == LS_OK) status = broadcast_state(ddp);
    /* A rank that cannot hook (another wrap has the module) must not leave the others wrapped with a partner
     * missing. */
    if (status == LS_OK) status = agreement_reach(&ddp->core.agreement, hook_up(ddp), 0, AGREE_VERIFY);
    return status;
}

ls_status ls_ddp_wrap(ls_ddp **ddp, ls_module *module, ls_group *group, const ls_ddp_options *options) {
    if (!ddp) return ls_fail(LS_ERR_ARGUMENT, "ls_ddp_wrap: the place for the handle is NULL");
    *ddp = NULL;
    if (!module || !group) return ls_fail(LS_ERR_ARGUMENT, "ls_ddp_wrap: expected a module and a group");
    const ls_ddp_options defaults = {0};
    if (!options) options = &defaults;
    const reducer_options core_options = {.bucket_cap_bytes = options->bucket_cap_bytes,
                                          .first_bucket_cap_bytes = options->first_bucket_cap_bytes,
                                          .find_unused_parameters = options->find_unused_parameters,
                                          .find_nonfinite = options->find_nonfinite,
                                          .keep_buckets = options->keep_buckets};
    ls_ddp *made = ls_alloc(sizeof *made);
    if (!made) return reducer_refuse(group, LS_ERR_MEMORY, &core_options);
    made->module = nn_module_keep(module);
    made->keep_local_buffers = options->keep_local_buffers;
    /* As after a step: the first forward is the first of its step. */
    made->buffers_are_due = true;
    made->observer = (autograd_observer){.begin = begin_backward, .finish = finish_backward, .context = made};
    const ls_status status = wrap(made, group, options, &core_options);
    if (status != LS_OK)
        ls_ddp_close(&made);
    else
        *ddp = made;
    return status;
}

static void let_go(ls_tensor **tensors, int count) {
    for (int i = 0; i < count; i++) ls_tensor_close(&tensors[i]);
    ls_free(tensors);
}

void ls_ddp_close(ls_ddp **handle) {
    if (!handle || !*handle) return;
    ls_ddp *ddp = *handle;
    *handle = NULL;
    /* First: the tape and the step may name this wrap still. */
    autograd_observer_forget(&ddp->observer);
    unhook(ddp);
    if (ddp->core.group) reducer_clear(&ddp->core);
    let_go(ddp->leaves, ddp->leaf_count);
    let_go(ddp->bystanders, ddp->bystander_count);
    let_go(ddp->buffers, ddp->buffer_count);
    ls_free(ddp->bystander_names);
    ls_free(ddp->pieces);
    ls_free(ddp->reached);
    ls_free(ddp->used);
    ls_module_close(&ddp->module);
    ls_free(ddp);
}

void ls_ddp_no_sync_begin(ls_ddp *ddp) {
    ddp->no_sync_depth++;
}

void ls_ddp_no_sync_end(ls_ddp *ddp) {
    /* One end too many is harmless, as with ls_no_grad_end. */
    if (ddp->no_sync_depth > 0) ddp->no_sync_depth--;
}

/* ---- What the last backward did ---- */

void ls_ddp_last_stats(const ls_ddp *ddp, ls_ddp_stats *stats) {
    *stats = ddp->stats;
}

ls_status ls_ddp_ready_time(const ls_ddp *ddp, int index, int64_t *ready_ns) {
    if (index < 0 || index >= ddp->leaf_count)
        return ls_fail(LS_ERR_ARGUMENT, "there is no parameter %d: the wrap reduces %d", index, ddp->leaf_count);
    *ready_ns = ddp->core.ready_ns[index];
    return LS_OK;
}

ls_status ls_ddp_bucket_times(const ls_ddp *ddp, int index, int64_t *start_ns, int64_t *end_ns) {
    const int count = ddp->core.storage.plan.bucket_count;
    if (index < 0 || index >= count)
        return ls_fail(LS_ERR_ARGUMENT, "there is no bucket %d: the wrap has %d", index, count);
    *start_ns = ddp->core.slots[index].start_ns;
    *end_ns = ddp->core.slots[index].end_ns;
    return LS_OK;
}
