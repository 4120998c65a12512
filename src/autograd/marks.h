/* marks.h: which observers take part in a backward. */
#ifndef LS_AUTOGRAD_MARKS_H
#define LS_AUTOGRAD_MARKS_H

#include "autograd/node.h"

/* The tape holds `node`: if it is an observer's mark, the observer takes part. */
void marks_reach(const autograd_node *node);

/* Every listed observer takes part: the forward failed, and nobody knows how far the tape would have reached. */
void marks_reach_all_listed(void);

/* Those that took part leave the list. */
void marks_unlist_called(void);

#endif
