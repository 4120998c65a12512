/* half.h: 16-bit floating point, to f32 and back. Widening is exact; narrowing rounds to nearest, ties to even, and keeps a
 * NaN a NaN. Plain bit code without a branch, which compilers turn into vectors on every processor.
 *
 * f16    1 sign, 5 exponent (bias 15), 10 fraction bits; bf16 is the upper half of an f32                            */
#ifndef LS_GROUP_HALF_H
#define LS_GROUP_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define F32_INFINITY_BITS UINT32_C(0x7f800000)
#define F16_TO_F32_BIAS ((UINT32_C(127) - 15) << 23)

static inline float f16_widen(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = (uint32_t)(half & 0x7fff) << 13;
    const uint32_t exponent = magnitude & (UINT32_C(0x1f) << 23);
    /* Infinity and NaN have the largest exponent in both. */
    const uint32_t special = exponent == UINT32_C(0x1f) << 23 ? F16_TO_F32_BIAS : 0;
    const uint32_t normal = magnitude + F16_TO_F32_BIAS + special;
    /* A subnormal's fraction counts in 2^-24: beside the least normal number's leading one, which is then taken away. */
    const float least = f32_of_bits(F16_TO_F32_BIAS + (UINT32_C(1) << 23));
    const uint32_t subnormal = f32_bits(f32_of_bits(f32_bits(least) + magnitude) - least);
    return f32_of_bits((exponent ? normal : subnormal) | sign);
}

static inline uint16_t f16_narrow(float value) {
    const uint32_t bits = f32_bits(value), sign = bits & UINT32_C(0x80000000), magnitude = bits ^ sign;
    /* Half of the last place, less one when the last bit is even; a carry goes on into the exponent, up to infinity. */
    const uint32_t rounded = magnitude - F16_TO_F32_BIAS + 0xfff + (magnitude >> 13 & 1);
    /* Below 2^-14: added to a number whose last place is 2^-24, the processor rounds. */
    const uint32_t last_place = (UINT32_C(127) - 1) << 23;
    const uint32_t subnormal = f32_bits(f32_of_bits(magnitude) + f32_of_bits(last_place)) - last_place;
    uint32_t half = magnitude < F16_TO_F32_BIAS + (UINT32_C(1) << 23) ? subnormal : rounded >> 13;
    half = magnitude >= (UINT32_C(127) + 16) << 23 ? 0x7c00 : half;
    half = magnitude > F32_INFINITY_BITS ? 0x7e00 | (magnitude >> 13 & 0x3ff) : half;
    return (uint16_t)(half | sign >> 16);
}

static inline float bf16_widen(uint16_t half) {
    return f32_of_bits((uint32_t)half << 16);
}

static inline uint16_t bf16_narrow(float value) {
    const uint32_t bits = f32_bits(value), is_nan = (bits & UINT32_C(0x7fffffff)) > F32_INFINITY_BITS;
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((is_nan ? bits | UINT32_C(0x400000) : rounded) >> 16);
}

#endif
