/* word.c: words between two ranks, for barriers that tell who did not come. They go as notices do, beside all collectives,
 * and are received by whoever reads those; then they wait here until somebody hears them. */
#include "group/backend/mpi/plugin/state.h"

ls_status mpi_tell(void *state, int to, uint64_t number, const ls_error *word) {
    const mpi_group *mpi = state;
    mpi_letter *letter = mpi_here.services->alloc(sizeof *letter);
    if (!letter) return LS_ERR_MEMORY;
    letter->notice = (mpi_notice){.group = mpi->number, .word = number, .rank = mpi->rank, .why = *word};
    letter->neighbour_count = 1;
    const ls_status status = mpi_find_ranks(mpi->data, 1, &to, letter->neighbours);
    if (status != LS_OK) {
        mpi_here.services->free(letter);
        return status;
    }
    MPI_TRY(mpi_send_letter(letter), "monitored barrier");
    return LS_OK;
}

void mpi_keep_word(mpi_group *mpi, const mpi_notice *notice) {
    mpi_word *word = mpi_here.services->alloc(sizeof *word);
    if (!word) {
        mpi_here.services->log(LS_LOG_WARNING, "no memory for what rank %d says at a monitored barrier", notice->rank);
        return;
    }
    word->notice = *notice;
    word->next = mpi->words;
    mpi->words = word;
}

static void free_word(mpi_word **link) {
    mpi_word *word = *link;
    *link = word->next;
    mpi_here.services->free(word);
}

bool mpi_hear(void *state, int from, uint64_t number, ls_error *said) {
    mpi_group *mpi = state;
    bool is_there = false;
    mpi_read_notices();
    pthread_mutex_lock(&mpi_here.lock);
    for (mpi_word **link = &mpi->words; *link;) {
        const mpi_notice *notice = &(*link)->notice;
        if (notice->rank != from || notice->word > number) {
            link = &(*link)->next;
            continue;
        }
        if (notice->word == number) {
            *said = notice->why;
            is_there = true;
        }
        free_word(link);
    }
    pthread_mutex_unlock(&mpi_here.lock);
    return is_there;
}

void mpi_free_words(mpi_group *mpi) {
    while (mpi->words) free_word(&mpi->words);
}
