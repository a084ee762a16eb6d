/* Runtime: what the printed rows of every protocol call.

   Numbers are computed in 128 bits, and each operation and each store is checked: where Python would raise an error, or
   would leave a number that its field cannot hold, `wrong` is set, and the step has no result.  Texts, lists and sets
   without bound never change once made; new ones lie in the run's memory until its owner takes it back. */

#include <stdint.h>

typedef uint64_t W;
typedef __int128 I;
typedef struct { W low, high; } Wide;
typedef struct { W w[MASK_WORDS]; } Mask;
typedef struct { W n; const W *w; } Set;
typedef struct { W n; const uint8_t *p; } Text;
typedef struct { W n; const int64_t *p; } Numbers;
typedef struct { W wrong; W made; uint8_t *free, *end; } Run;
typedef struct { W tag; W words[BOX_WORDS]; } Box;
typedef struct { W tag; W words[OUT_WORDS]; } Out;
typedef struct { double period, longest; } Timer;

#define INSIDE static inline __attribute__((always_inline, unused))
#define ROW static __attribute__((unused))
#define MOST_BITS (1 << 24) /* numbers that a set may hold are below */

INSIDE void fail(Run *run) { run->wrong = 1; }
INSIDE W *fresh(Run *run, W words) {
    static W nowhere[1];
    W *made = (W *)run->free;
    if (words > (W)((W *)run->end - made)) { fail(run); return nowhere; }
    run->free += 8 * words;
    return made;
}

/* ------------------------------------------------------------------------------------------------ numbers */
INSIDE I add(Run *run, I a, I b) { I c; if (__builtin_add_overflow(a, b, &c)) fail(run); return c; }
INSIDE I sub(Run *run, I a, I b) { I c; if (__builtin_sub_overflow(a, b, &c)) fail(run); return c; }
INSIDE I mul(Run *run, I a, I b) { I c; if (__builtin_mul_overflow(a, b, &c)) fail(run); return c; }
INSIDE I neg(Run *run, I a) { return sub(run, 0, a); }
INSIDE int small(I a) { return a == (int64_t)a; }
INSIDE I floor_div(Run *run, I a, I b) {
    if (b == 0) { fail(run); return 0; }
    I q = small(a) && small(b) && b != -1 ? (int64_t)a / (int64_t)b : a / b;
    return q - (q * b != a && (a < 0) != (b < 0));
}
INSIDE I floor_mod(Run *run, I a, I b) { return sub(run, a, mul(run, floor_div(run, a, b), b)); }
INSIDE I min_I(I a, I b) { return b < a ? b : a; }
INSIDE I max_I(I a, I b) { return b > a ? b : a; }
INSIDE double min_double(double a, double b) { return b < a ? b : a; }
INSIDE double max_double(double a, double b) { return b > a ? b : a; }
INSIDE double real_div(Run *run, double a, double b) { if (b == 0) { fail(run); return 0; } return a / b; }
INSIDE double real(Run *run, I a) { if (a > (I)1 << 53 || a < -((I)1 << 53)) fail(run); return (double)a; }

INSIDE I of_wide(Wide a) { return (I)((unsigned __int128)a.high << 64 | a.low); }
INSIDE W to_unsigned(Run *run, I a, int bits) { if (a < 0 || a >> bits) fail(run); return (W)a; }
INSIDE W to_signed(Run *run, I a, int bits) {
    if (a < -((I)1 << (bits - 1)) || a >= (I)1 << (bits - 1)) fail(run);
    return (W)(int64_t)a;
}
INSIDE Wide to_wide(Run *run, I a, int bits) {
    if (a < 0 || a >> bits) fail(run);
    return (Wide){(W)a, (W)(a >> 64)};
}

/* -------------------------------------------------------------------------------------- masks with a bound */
#define EACH for (int i = 0; i < MASK_WORDS; i++)
INSIDE Mask mask_or(Mask a, Mask b) { EACH a.w[i] |= b.w[i]; return a; }
INSIDE Mask mask_and(Mask a, Mask b) { EACH a.w[i] &= b.w[i]; return a; }
INSIDE Mask mask_less(Mask a, Mask b) { EACH a.w[i] &= ~b.w[i]; return a; }
INSIDE int mask_any(Mask a) { W any = 0; EACH any |= a.w[i]; return any != 0; }
INSIDE int mask_same(Mask a, Mask b) { W other = 0; EACH other |= a.w[i] ^ b.w[i]; return other == 0; }
INSIDE I mask_count(Mask a) { I count = 0; EACH count += __builtin_popcountll(a.w[i]); return count; }
INSIDE Mask mask_one(Run *run, I n) {
    Mask made = {{0}};
    if (n < 0 || n >= 64 * MASK_WORDS) { fail(run); return made; }
    made.w[(int)n >> 6] = (W)1 << ((int)n & 63);
    return made;
}
INSIDE Mask mask_first(Run *run, I n) {
    Mask made = {{0}};
    if (n < 0 || n > 64 * MASK_WORDS) { fail(run); return made; }
    EACH made.w[i] = n >= 64 * (i + 1) ? ~(W)0 : n > 64 * i ? ((W)1 << ((int)n & 63)) - 1 : 0;
    return made;
}
INSIDE I mask_has(Run *run, Mask a, I n) {
    if (n < 0) { fail(run); return 0; }
    return n < 64 * MASK_WORDS && a.w[(int)n >> 6] >> ((int)n & 63) & 1;
}

/* ----------------------------------------------------------------------------- sets: masks without a bound */
INSIDE W set_word(Set a, W at) { return at < a.n ? a.w[at] : 0; }
INSIDE Set set_cut(W *words, W n) { while (n && !words[n - 1]) n--; return (Set){n, words}; }
INSIDE int set_any(Set a) { return a.n != 0; }
static Set set_or(Run *run, Set a, Set b) {
    W n = a.n > b.n ? a.n : b.n, *made = fresh(run, n);
    if (run->wrong) return (Set){0, made};
    for (W i = 0; i < n; i++) made[i] = set_word(a, i) | set_word(b, i);
    return set_cut(made, n);
}
static Set set_and(Run *run, Set a, Set b) {
    W n = a.n < b.n ? a.n : b.n, *made = fresh(run, n);
    if (run->wrong) return (Set){0, made};
    for (W i = 0; i < n; i++) made[i] = a.w[i] & b.w[i];
    return set_cut(made, n);
}
static Set set_less(Run *run, Set a, Set b) {
    W *made = fresh(run, a.n);
    if (run->wrong) return (Set){0, made};
    for (W i = 0; i < a.n; i++) made[i] = a.w[i] & ~set_word(b, i);
    return set_cut(made, a.n);
}
static int set_same(Set a, Set b) {
    if (a.n != b.n) return 0;
    for (W i = 0; i < a.n; i++) if (a.w[i] != b.w[i]) return 0;
    return 1;
}
static I set_count(Set a) {
    I count = 0;
    for (W i = 0; i < a.n; i++) count += __builtin_popcountll(a.w[i]);
    return count;
}
static Set set_first(Run *run, I n) {
    if (n < 0 || n > MOST_BITS) { fail(run); return (Set){0, 0}; }
    W words = (W)(n + 63) / 64, *made = fresh(run, words);
    if (run->wrong) return (Set){0, made};
    for (W i = 0; i < words; i++) made[i] = n >= 64 * (I)(i + 1) ? ~(W)0 : ((W)1 << ((int)n & 63)) - 1;
    return (Set){words, made};
}
static Set set_one(Run *run, I n) {
    if (n < 0 || n >= MOST_BITS) { fail(run); return (Set){0, 0}; }
    W words = (W)n / 64 + 1, *made = fresh(run, words);
    if (run->wrong) return (Set){0, made};
    for (W i = 0; i < words; i++) made[i] = 0;
    made[words - 1] = (W)1 << ((int)n & 63);
    return (Set){words, made};
}
INSIDE I set_has(Run *run, Set a, I n) {
    if (n < 0) { fail(run); return 0; }
    return n < MOST_BITS && set_word(a, (W)n / 64) >> ((int)n & 63) & 1;
}
static Set mask_set(Run *run, Mask a) {
    W *made = fresh(run, MASK_WORDS);
    if (run->wrong) return (Set){0, made};
    EACH made[i] = a.w[i];
    return set_cut(made, MASK_WORDS);
}
static Mask set_mask(Run *run, Set a) {
    Mask made = {{0}};
    if (a.n > MASK_WORDS) fail(run);
    EACH made.w[i] = set_word(a, (W)i);
    return made;
}

/* ------------------------------------------------------------------------------------------ texts and lists */
INSIDE int text_same(Text a, Text b) {
    if (a.n != b.n) return 0;
    for (W i = 0; i < a.n; i++) if (a.p[i] != b.p[i]) return 0;
    return 1;
}
static Text text_join(Run *run, int parts, const Text *each) {
    W n = 0, at = 0;
    for (int i = 0; i < parts; i++) n += each[i].n;
    uint8_t *made = (uint8_t *)fresh(run, n / 8 + 1);
    if (run->wrong) return (Text){0, made};
    for (int i = 0; i < parts; i++) for (W j = 0; j < each[i].n; j++) made[at++] = each[i].p[j];
    return (Text){n, made};
}
INSIDE int numbers_same(Numbers a, Numbers b) {
    if (a.n != b.n) return 0;
    for (W i = 0; i < a.n; i++) if (a.p[i] != b.p[i]) return 0;
    return 1;
}
INSIDE I place_in(I at, W n) { if (at < 0) at += n; return at < 0 ? 0 : at > n ? (I)n : at; }
INSIDE Numbers numbers_part(Numbers a, I from, I to) {
    from = place_in(from, a.n), to = place_in(to, a.n);
    return from < to ? (Numbers){(W)(to - from), a.p + (W)from} : (Numbers){0, a.p};
}

/* --------------------------------------------------------------------------------------------------- timers */
INSIDE double whole_below(double a) { double b = (double)(int64_t)a; return b > a ? b - 1 : b; }
/* the wheel's next slot after this */
INSIDE double slot(double due) {
    double slots = due * SLOTS; /* a power of two: exact */
    return (slots < 4e18 && slots > -4e18 ? whole_below(slots) : slots) / SLOTS + 1.0 / SLOTS;
}
/* when a timer ends that starts now, and has ended so often in this state */
INSIDE double due(Timer timer, double now, I times) {
    double period = timer.period;
    if (times > 0 && timer.longest > period) {
        double after = period;
        for (int i = 0; i < (times < 64 ? (int)times : 64) && after < timer.longest; i++) after *= 2;
        after = after < timer.longest ? after : timer.longest;
        period = after > period ? after : period;
    }
    return slot(now + period);
}
