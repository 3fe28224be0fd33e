/* What dropout drops: a function of a seed and of an element's place, so that it is kept nowhere. */
#pragma once

#include "numbers.h"

/* MurmurHash3's finalizer (Appleby 2011): every bit of h changes about half of the result's. */
static inline uint32_t mixed(uint32_t h)
{
    h = (h ^ (h >> 16)) * 0x85ebca6b;
    h = (h ^ (h >> 13)) * 0xc2b2ae35;
    return h ^ (h >> 16);
}

/* The two keys of a seed; seeds that differ in a bit share neither. */
typedef struct { uint32_t first, second; } keys;

static inline keys keys_of(i64 seed)
{
    uint32_t low = mixed((uint32_t)seed), high = mixed((uint32_t)((uint64_t)seed >> 32) + 0x9e3779b9);
    return (keys){mixed(low ^ high), mixed(low + 3 * high + 1)};
}

/* Sixteen bits for an element that look like chance, whatever the number of threads. */
static inline uint32_t fate(uint32_t index, keys seed)
{
    return mixed(mixed(index ^ seed.first) + seed.second) >> 16;
}
