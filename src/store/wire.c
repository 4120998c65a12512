/* wire.c: frames out, frames in.
 *
 * Neither waits: a frame goes out as far as the socket takes it and remembers where it was, and bytes come in as
 * they are there, any number of frames or a part of one. What comes in may be from anybody who has found the socket:
 * sizes are bounded before they are used, and descriptors that nobody announced are closed. */
#include "store/wire.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* A server of thousands has as many inboxes: they begin small, and give back what one large value took. */
enum { FIRST_CAPACITY = 4096, KEPT_CAPACITY = 65536 };

/* A union, so that the bytes are aligned as the kernel's headers in them have to be. */
typedef union control_buffer {
    struct cmsghdr aligned;
    char bytes[CMSG_SPACE(sizeof(int) * STORE_MOST_DESCRIPTORS)];
} control_buffer;

/* --- out ---------------------------------------------------------------------------------------------------------- */

/* The unsent rest of the message as vectors; their number. */
static size_t gather(const store_message *message, struct iovec *vectors) {
    const void *parts[4] = {&message->head, message->parts[0], message->parts[1], message->parts[2]};
    const size_t sizes[4] = {sizeof message->head, message->head.key_bytes, message->head.expected_bytes,
                             message->head.value_bytes};
    size_t skip = message->sent, count = 0;
    for (int i = 0; i < 4; i++) {
        if (skip >= sizes[i]) {
            skip -= sizes[i];
            continue;
        }
        /* In place: a value of a MiB is never copied to be sent. */
        vectors[count].iov_base = (char *)parts[i] + skip;
        vectors[count++].iov_len = sizes[i] - skip;
        skip = 0;
    }
    return count;
}

/* Descriptors ride on a frame's first byte. */
static void attach(struct msghdr *header, control_buffer *control, const int *descriptors, size_t count) {
    memset(control, 0, sizeof *control);
    header->msg_control = control->bytes;
    header->msg_controllen = CMSG_SPACE(sizeof(int) * count);
    struct cmsghdr *item = CMSG_FIRSTHDR(header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(item), descriptors, sizeof(int) * count);
}

ls_status store_message_send(store_message *message, int socket) {
    for (;;) {
        struct iovec vectors[4];
        control_buffer control;
        struct msghdr header = {.msg_iov = vectors, .msg_iovlen = gather(message, vectors)};
        if (header.msg_iovlen == 0) return LS_OK;
        /* Once: a frame that goes out in parts must not carry them twice. */
        if (message->sent == 0 && message->head.descriptor_count > 0)
            attach(&header, &control, message->descriptors, message->head.descriptor_count);
        const ssize_t sent = LS_SYSCALL(ENOBUFS, sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL));
        if (sent >= 0) {
            message->sent += (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return LS_END;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return ls_fail(LS_ERR_PEER_LOST, "the other side of the store's connection is gone");
        } else if (errno != EINTR) {
            return ls_fail_errno(LS_ERR_IO, errno, "cannot send on the store's connection");
        }
    }
}

/* --- in ----------------------------------------------------------------------------------------------------------- */

/* Cannot overflow: check_head has bounded each part. */
static size_t frame_bytes(const store_head *head) {
    return sizeof *head + head->key_bytes + (size_t)head->expected_bytes + head->value_bytes;
}

static ls_status check_head(const store_head *head) {
    /* Sizes are bounded before they are added, and added before memory is asked for. */
    if (head->magic == STORE_FRAME_MAGIC && head->key_bytes <= LS_STORE_KEY_BYTES &&
        head->descriptor_count <= STORE_MOST_DESCRIPTORS && head->expected_bytes <= LS_STORE_VALUE_BYTES &&
        head->value_bytes <= LS_STORE_VALUE_BYTES)
        return LS_OK;
    return ls_fail(LS_ERR_FORMAT,
                   "a frame of the store's protocol starts with what is none: magic %08x, %u + %u + %u bytes, "
                   "%u descriptors",
                   (unsigned)head->magic, head->key_bytes, (unsigned)head->expected_bytes, (unsigned)head->value_bytes,
                   head->descriptor_count);
}

/* The head of the frame at `start`, if it is there. */
static bool peek_head(const store_inbox *inbox, store_head *head) {
    if (inbox->end - inbox->start < sizeof *head) return false;
    memcpy(head, inbox->bytes + inbox->start, sizeof *head);
    return true;
}

/* Makes room for the rest of the frame that has begun, or for another `wanted` bytes. */
static ls_status make_room(store_inbox *inbox, size_t wanted) {
    const size_t held = inbox->end - inbox->start;
    if (held == 0) {
        inbox->start = inbox->end = 0;
        if (inbox->capacity > KEPT_CAPACITY) { /* it grew for one large value */
            ls_free(inbox->bytes);
            inbox->bytes = NULL;
            inbox->capacity = 0;
        }
    }
    store_head head;
    size_t needed = held + wanted;
    if (peek_head(inbox, &head) && frame_bytes(&head) > needed) needed = frame_bytes(&head);
    /* What is held moves to the front only when there is no room behind it: most frames are read where they came. */
    if (inbox->capacity - inbox->start >= needed) return LS_OK;

    unsigned char *bytes = inbox->bytes;
    if (inbox->capacity < needed) {
        const size_t capacity = needed > FIRST_CAPACITY ? needed : FIRST_CAPACITY;
        bytes = ls_alloc_raw(capacity);
        if (!bytes) return LS_ERR_MEMORY;
        inbox->capacity = capacity;
    }
    if (held > 0) memmove(bytes, inbox->bytes + inbox->start, held);
    if (bytes != inbox->bytes) ls_free(inbox->bytes);
    inbox->bytes = bytes;
    inbox->start = 0;
    inbox->end = held;
    return LS_OK;
}

ls_status store_inbox_put(store_inbox *inbox, const void *bytes, size_t count) {
    LS_TRY(make_room(inbox, count));
    if (count > 0) memcpy(inbox->bytes + inbox->end, bytes, count);
    inbox->end += count;
    return LS_OK;
}

/* Takes over the descriptors of a received message. What does not fit was never ours to expect. */
static ls_status take_descriptors(store_inbox *inbox, struct msghdr *header) {
    bool is_refused = false;
    size_t taken = 0;
    for (struct cmsghdr *item = CMSG_FIRSTHDR(header); item; item = CMSG_NXTHDR(header, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor = -1;
            memcpy(&descriptor, CMSG_DATA(item) + i * sizeof(int), sizeof descriptor);
            taken++;
            if (inbox->descriptor_count < (int)(sizeof inbox->descriptors / sizeof inbox->descriptors[0])) {
                inbox->descriptors[inbox->descriptor_count++] = descriptor;
            } else {
                close(descriptor);
                is_refused = true;
            }
        }
    }
    /* The kernel has closed what found no room: with us, if not in the message, and then the frame that announces it fails. */
    if (header->msg_flags & MSG_CTRUNC) {
        inbox->has_lost_some = taken < STORE_MOST_DESCRIPTORS;
        is_refused = is_refused || !inbox->has_lost_some;
    }
    if (is_refused)
        return ls_fail(LS_ERR_FORMAT, "more descriptors came over the store's connection than a frame carries");
    return LS_OK;
}

ls_status store_inbox_receive(store_inbox *inbox, int socket) {
    LS_TRY(make_room(inbox, 1));
    control_buffer control;
    struct iovec vector = {.iov_base = inbox->bytes + inbox->end, .iov_len = inbox->capacity - inbox->end};
    struct msghdr header = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    const ssize_t received = LS_SYSCALL(ENOMEM, recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return LS_END;
    /* A process that is killed with unread bytes resets its connection: to us that is the same end. */
    if (received == 0 || (received < 0 && errno == ECONNRESET))
        return ls_fail(LS_ERR_PEER_LOST, "the other side of the store's connection has closed it");
    if (received < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot receive on the store's connection");
    inbox->end += (size_t)received;
    return take_descriptors(inbox, &header);
}

/* The frame whose descriptors are lost, with those of them that came. */
static ls_status pass_over(store_inbox *inbox, const store_head *head) {
    for (int i = 0; i < inbox->descriptor_count; i++) close(inbox->descriptors[i]);
    inbox->descriptor_count = 0;
    inbox->has_lost_some = false;
    inbox->start += frame_bytes(head);
    return ls_fail_errno(LS_ERR_IO, EMFILE, "process %d cannot take the descriptors that a call of the store carries",
                         (int)getpid());
}

ls_status store_inbox_next(store_inbox *inbox, store_frame *frame) {
    if (!peek_head(inbox, &frame->head)) return LS_END;
    const store_head *head = &frame->head;
    LS_TRY(check_head(head));
    /* Descriptors come with a byte of their frame: what this one does not announce, one behind it has to. */
    const size_t held = inbox->end - inbox->start;
    if (held <= frame_bytes(head) && inbox->descriptor_count > head->descriptor_count)
        return ls_fail(LS_ERR_FORMAT, "descriptors came over the store's connection that no frame announces");
    if (held < frame_bytes(head)) return LS_END;
    const unsigned char *at = inbox->bytes + inbox->start + sizeof *head;
    frame->key = "";
    if (head->key_bytes > 0) {
        frame->key = (const char *)at;
        /* One NUL, and at the end: else the key would be another text to us than to its sender. */
        if (memchr(at, '\0', head->key_bytes) != at + head->key_bytes - 1)
            return ls_fail(LS_ERR_FORMAT, "a frame's key does not end where the frame says");
    }
    /* Pointers into the inbox: valid until the next receive, which is when the caller is done. */
    frame->expected = at + head->key_bytes;
    frame->value = at + head->key_bytes + head->expected_bytes;

    /* Descriptors arrive in the order of the frames that announce them, at the latest with the frame's last byte. */
    if (inbox->descriptor_count < head->descriptor_count && inbox->has_lost_some) return pass_over(inbox, head);
    if (inbox->descriptor_count < head->descriptor_count)
        return ls_fail(LS_ERR_FORMAT, "a frame announces %u descriptors, %d came with it", head->descriptor_count,
                       inbox->descriptor_count);
    memcpy(frame->descriptors, inbox->descriptors, sizeof(int) * head->descriptor_count);
    inbox->descriptor_count -= head->descriptor_count;
    memmove(inbox->descriptors, inbox->descriptors + head->descriptor_count,
            sizeof(int) * (size_t)inbox->descriptor_count);
    inbox->start += frame_bytes(head);
    return LS_OK;
}

void store_inbox_close(store_inbox *inbox) {
    /* Those of a frame that never came whole. */
    for (int i = 0; i < inbox->descriptor_count; i++) close(inbox->descriptors[i]);
    ls_free(inbox->bytes);
    *inbox = (store_inbox){0};
}

ls_status store_frame_request(const store_frame *frame, store_request *request) {
    const store_head *head = &frame->head;
    *request = (store_request){.operation = (store_operation)head->code,
                               .key = frame->key,
                               .expected = frame->expected,
                               .expected_bytes = head->expected_bytes,
                               .value = frame->value,
                               .bytes = head->value_bytes,
                               .number = head->number,
                               .descriptors = frame->descriptors,
                               .descriptor_count = head->descriptor_count};
    /* Bytes from outside: each combination that is not one of ours is refused here, so that nothing behind has to
     * doubt. */
    const bool is_operation = head->code >= STORE_SET && head->code <= STORE_GOODBYE;
    const bool wants_key = head->code < STORE_OPERATION_COUNT && head->code != STORE_COUNT;
    const bool may_have_key = head->code < STORE_OPERATION_COUNT;
    const bool carries_descriptors = head->code == STORE_SET_DESCRIPTORS;
    const bool has_key = frame->key[0] != '\0';
    if (is_operation && (has_key ? may_have_key : !wants_key) && carries_descriptors == (head->descriptor_count > 0))
        return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "a frame is no request: operation %d, a key of %u bytes, %u descriptors",
                   (int)head->code, head->key_bytes, head->descriptor_count);
}
