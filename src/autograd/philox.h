/* philox.h: Philox 4x32-10: a counter and a key yield four random words.
 * Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. */
#ifndef LS_AUTOGRAD_PHILOX_H
#define LS_AUTOGRAD_PHILOX_H

#include <stdint.h>

typedef struct philox_block {
    uint32_t word[4];
} philox_block;

static inline philox_block philox(philox_block counter, uint64_t key) {
    uint32_t *c = counter.word, k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = (uint64_t)0xD2511F53u * c[0], product1 = (uint64_t)0xCD9E8D57u * c[2];
        const philox_block next = {{(uint32_t)(product1 >> 32) ^ c[1] ^ k0, (uint32_t)product1,
                                    (uint32_t)(product0 >> 32) ^ c[3] ^ k1, (uint32_t)product0}};
        counter = next;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return counter;
}

#endif
