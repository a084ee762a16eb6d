/* Memory: arrays that grow, a hash table of numbers, and the states that were met.

   A state is a row of numbers below 2^24, each in as many bytes as the largest of its part needs so far; states lie one
   behind the other in the order in which they were met.  A hash table of places in that order finds them again.  No room
   is left between states, and none is kept for the hash: it is computed again when the table grows, or a part. */

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t N;
typedef uint64_t Mask; /* of links, or of what is slow */

#define NONE UINT32_MAX
#define MOST_PARTS 32
#define FORESEEN 64        /* states that are looked for at a time */
#define MOST_STATES 0x7fffffffu /* an edge's highest bit says that it is a timer */
enum Ending { WELL, FAULTY, STUCK, RAISED, FULL };

static _Thread_local jmp_buf leave; /* how a step is given up: back to `search_advance` */

static void *grown(void *old, uint64_t bytes) {
    void *made = realloc(old, bytes);
    if (!made) longjmp(leave, FULL);
    return made;
}

/* An array of numbers.  Pages that were never written take no memory, so doubling costs nothing but addresses. */
typedef struct { N *at; uint64_t count, room; } List;

static void reserve(List *list, uint64_t more) {
    if (list->count + more <= list->room) return;
    uint64_t room = list->room ? list->room : 1024;
    while (room < list->count + more) room *= 2;
    list->at = grown(list->at, room * sizeof(N));
    list->room = room;
}
static void append(List *list, N number) {
    reserve(list, 1);
    list->at[list->count++] = number;
}

/* The answers about small numbers, by number: NONE stands for one that was not asked for yet. */
static N *slot(List *list, N number) {
    if (number >= list->count) {
        reserve(list, number + 1 - list->count);
        memset(list->at + list->count, 0xff, (number + 1 - list->count) * sizeof(N));
        list->count = number + 1;
    }
    return list->at + number;
}

static inline uint64_t mixed(uint64_t x) {
    x ^= x >> 32; x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32; x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* A hash table from 64 bits to a number; no key has all bits set. */
typedef struct { uint64_t key; N value; } __attribute__((packed, aligned(4))) Pair;
typedef struct { Pair *at; uint64_t mask, count; } Map;

static Pair *place(const Map *map, uint64_t key) {
    uint64_t at = mixed(key) & map->mask;
    while (map->at[at].key != UINT64_MAX && map->at[at].key != key) at = (at + 1) & map->mask;
    return map->at + at;
}
static N found(const Map *map, uint64_t key) {
    if (!map->at) return NONE;
    const Pair *pair = place(map, key);
    return pair->key == key ? pair->value : NONE;
}
static void remember(Map *map, uint64_t key, N value) {
    if (!map->at || 3 * map->count >= 2 * map->mask) {
        Map old = *map;
        map->mask = old.at ? 2 * old.mask + 1 : 1023;
        map->at = grown(NULL, (map->mask + 1) * sizeof(Pair));
        memset(map->at, 0xff, (map->mask + 1) * sizeof(Pair));
        for (uint64_t i = 0; old.at && i <= old.mask; i++)
            if (old.at[i].key != UINT64_MAX) *place(map, old.at[i].key) = old.at[i];
        free(old.at);
    }
    *place(map, key) = (Pair){key, value};
    map->count++;
}

/* ------------------------------------------------------------------------------------------------ states met */
typedef struct {
    uint8_t *bytes;
    N *table;
    uint64_t count, room, mask;
    N parts, size;
    uint8_t width[MOST_PARTS]; /* of each part, in bytes; `size` is their sum */
} States;

/* Returns 0 if a number is wider than its part: no state that was met has it. */
static int pack(const States *states, const N *numbers, uint8_t *to) {
    N lost = 0;
    for (N i = 0; i < states->parts; to += states->width[i++]) {
        N number = numbers[i], width = states->width[i];
        to[0] = (uint8_t)number;
        if (width > 1) to[1] = (uint8_t)(number >> 8);
        if (width > 2) to[2] = (uint8_t)(number >> 16);
        lost |= number >> 8 * width;
    }
    return !lost;
}
static void unpack(const States *states, uint64_t at, N *numbers) {
    const uint8_t *from = states->bytes + at * states->size;
    for (N i = 0; i < states->parts; from += states->width[i++]) {
        N width = states->width[i], number = from[0];
        if (width > 1) number |= (N)from[1] << 8;
        if (width > 2) number |= (N)from[2] << 16;
        numbers[i] = number;
    }
}
static uint64_t hash(const States *states, const uint8_t *bytes) {
    uint64_t sum = 0, word = 0;
    N at = 0;
    for (; at + 8 <= states->size; at += 8) { memcpy(&word, bytes + at, 8); sum = mixed(sum ^ word); }
    word = 0;
    memcpy(&word, bytes + at, states->size - at);
    return mixed(sum ^ word);
}
static int same(const uint8_t *a, const uint8_t *b, N size) { /* a call of memcmp takes longer than so few bytes */
    for (; size >= 8; size -= 8, a += 8, b += 8) {
        uint64_t x, y;
        memcpy(&x, a, 8); memcpy(&y, b, 8);
        if (x != y) return 0;
    }
    while (size--) if (a[size] != b[size]) return 0;
    return 1;
}
static N *entry(const States *states, const uint8_t *bytes) {
    uint64_t at = hash(states, bytes) & states->mask;
    while (states->table[at] != NONE &&
           !same(states->bytes + (uint64_t)states->table[at] * states->size, bytes, states->size))
        at = (at + 1) & states->mask;
    return states->table + at;
}
/* Fetch what `known` will read for each of these states: most of a search waits for memory, and so it waits once. */
static void foresee(const States *states, const N *numbers, uint64_t count) {
    uint64_t places[FORESEEN];
    for (uint64_t i = 0; i < count; i++, numbers += states->parts) {
        uint8_t bytes[3 * MOST_PARTS];
        places[i] = pack(states, numbers, bytes) ? hash(states, bytes) & states->mask : 0;
        __builtin_prefetch(states->table + places[i]);
    }
    for (uint64_t i = 0; i < count; i++) {
        N place = states->table[places[i]];
        if (place != NONE) __builtin_prefetch(states->bytes + (uint64_t)place * states->size);
    }
}
/* A new table of all states; `mask` is its size less one. */
static void rebuild(States *states, uint64_t mask) {
    free(states->table);
    states->table = NULL;
    states->mask = mask;
    states->table = grown(NULL, (mask + 1) * sizeof(N));
    memset(states->table, 0xff, (mask + 1) * sizeof(N));
    for (uint64_t i = 0; i < states->count; i++) *entry(states, states->bytes + i * states->size) = (N)i;
}
/* Make parts as wide as these numbers need; states move from the last on, since each gets longer. */
static void widen(States *states, const N *numbers) {
    States old = *states;
    states->size = 0;
    for (N i = 0; i < states->parts; i++) {
        while (numbers[i] >> 8 * states->width[i]) states->width[i]++;
        states->size += states->width[i];
    }
    states->bytes = old.bytes = grown(states->bytes, states->room * states->size);
    for (uint64_t at = states->count; at--;) {
        N state[MOST_PARTS];
        unpack(&old, at, state);
        pack(states, state, states->bytes + at * states->size);
    }
    rebuild(states, states->mask);
}
static N known(const States *states, const N *numbers) {
    uint8_t bytes[3 * MOST_PARTS];
    return pack(states, numbers, bytes) ? *entry(states, bytes) : NONE;
}
static N meet(States *states, const N *numbers) {
    uint8_t bytes[3 * MOST_PARTS];
    if (states->count >= MOST_STATES) longjmp(leave, FULL);
    if (4 * states->count >= 3 * states->mask) rebuild(states, 2 * states->mask + 1);
    if (states->count == states->room) {
        states->room = states->room ? 2 * states->room : 1024;
        states->bytes = grown(states->bytes, states->room * states->size);
    }
    if (!pack(states, numbers, bytes)) {
        widen(states, numbers);
        pack(states, numbers, bytes);
    }
    memcpy(states->bytes + states->count * states->size, bytes, states->size);
    *entry(states, bytes) = (N)states->count;
    return (N)states->count++;
}
