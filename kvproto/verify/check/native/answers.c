/* Answers: asks Python once for each thing that a search looks up, and keeps what Python said.

   C knows nothing of ranks.  It knows *deeds*: an input of a node, an item that enters a link, a price that a budget pays.
   A deed concerns one part of a state, whose place is in the deed's number.  Done to a part with some number it leads to
   another number and to further deeds; Python says to which, and that is an *outcome*. */

/* A deed: its place (5 bits), whether it is a timer's end, whether it puts an item into a link, and a serial number. */
#define PLACE(deed) ((deed) & 31)
#define IS_TIMER(deed) ((deed) >> 5 & 1)
#define IS_ITEM(deed) ((deed) >> 6 & 1)

enum Question { OUTCOME, MENU, OFFERS, COUPLE, CALLS, BUDGET, EXCHANGED, ASLEEP, SETTLED, END };
enum Verdict { FINE, BROKEN, NOTHING_LEFT };
enum Kind { FAULT, TIMER, WORK };

typedef struct { N now, deeds, count, verdict; } Outcome;

/* One of a node's moves: how `menus` of enabled_steps.py sorts them, and what each kind is offered under. */
enum Section { PLAIN, COSTLY, SHORT, BEAT, LONG, RARE, SECTIONS };
typedef struct { N deed, outcome, price, links, end, room, ending, rank, bit; } Choice;
typedef struct { N begin[SECTIONS + 1], at_once; } Menu;

/* One thing that a link can do at one of its ends. */
enum Manner { FREE, PAID, LOST, CALL };
typedef struct { N end, manner, wire, deed, price, rank, bit, report; } Offer;
typedef struct { N begin, middle, end; } Offers; /* the decode end's, the prefill end's */

typedef struct { N left_alone, broken, untold; } Couple; /* left_alone: PREFILL_ALONE, DECODE_ALONE */
typedef struct { N poor, hard, blamed; Mask asleep; } Budget;

typedef int64_t (*Ask)(N question, N a, N b, N c, N d);
typedef struct {
    N nodes, links, swaps, early, timeout, forgets, groups, swift, hasty, live, slow; /* slow: what a delay costs */
    N ends[MOST_PARTS][2]; /* of each link: its decode rank's place, and its prefill rank's */
} Rules;

/* How many edges a state has, and how many states were met first from it: so the next state's follow. */
typedef struct { uint16_t edges, born; } Row;

typedef struct {
    Rules rules;
    Ask ask;
    N *answer; /* where Python writes */
    N parts, last;
    /* what was answered */
    Map outcome_of, couple_of, calls_of, mask_of, asleep_of;
    List menu_of[MOST_PARTS], offers_of[MOST_PARTS], budget_of, settled_of[MOST_PARTS], *exchanged_of, *ends_of;
    List deeds, calls;
    Outcome *outcomes; Menu *menus; Choice *choices; Offers *offers; Offer *offered; Couple *couples; Budget *budgets;
    N outcome_count, menu_count, choice_count, offers_count, offered_count, couple_count, budget_count;
    /* the search */
    States states;
    List edges, kinds, next; /* next: of the state that is being expanded, with their kinds */
    Row *rows; /* of every state that is expanded; the edges of one lie behind those of the state before it */
    uint64_t roots, row_room, done, level, transitions, depth;
} Search;

/* The array with room for one more: it is doubled whenever its count is a power of two. */
static void *with_room(void *array, N count, uint64_t size) {
    return count & (count - 1) ? array : grown(array, size * (count ? 2 * (uint64_t)count : 1));
}
#define ROOM_FOR(array, count) ((array) = with_room(array, count, sizeof *(array)))

static N asked(Search *s, enum Question question, N a, N b, N c, N d) {
    int64_t count = s->ask(question, a, b, c, d);
    if (count < 0) longjmp(leave, RAISED);
    return (N)count;
}

static N outcome(Search *s, N deed, N number) {
    uint64_t key = (uint64_t)deed << 32 | number;
    N at = found(&s->outcome_of, key);
    if (at == NONE) {
        N count = asked(s, OUTCOME, deed, number, 0, 0);
        Outcome made = {s->answer[1], (N)s->deeds.count, count - 2, s->answer[0]};
        for (N i = 2; i < count; i++) append(&s->deeds, s->answer[i]);
        ROOM_FOR(s->outcomes, s->outcome_count);
        at = s->outcome_count++;
        s->outcomes[at] = made;
        remember(&s->outcome_of, key, at);
    }
    return at;
}

static N menu(Search *s, N at, N number) {
    N which = *slot(&s->menu_of[at], number);
    if (which == NONE) {
        N count = asked(s, MENU, at, number, 0, 0);
        const N *from = s->answer;
        Menu made = {{0}, *from++};
        for (N section = 0; section < SECTIONS; section++) {
            made.begin[section] = s->choice_count;
            for (N left = *from++; left; left--, from += 8) {
                ROOM_FOR(s->choices, s->choice_count);
                s->choices[s->choice_count++] =
                    (Choice){from[0], NONE, from[1], from[2], from[3], from[4], from[5], from[6], from[7]};
            }
        }
        made.begin[SECTIONS] = s->choice_count;
        if (from != s->answer + count) longjmp(leave, RAISED);
        ROOM_FOR(s->menus, s->menu_count);
        which = s->menu_count++;
        s->menus[which] = made;
        *slot(&s->menu_of[at], number) = which;
    }
    return which;
}

static Offers offers(Search *s, N link, N wire) {
    N which = *slot(&s->offers_of[link], wire);
    if (which == NONE) {
        N count = asked(s, OFFERS, link, wire, 0, 0) / 8, begin = s->offered_count;
        Offers made = {begin, begin, begin + count};
        for (N i = 0; i < count; i++) {
            const N *from = s->answer + 8 * i;
            ROOM_FOR(s->offered, s->offered_count);
            s->offered[s->offered_count++] =
                (Offer){from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]};
            made.middle += !from[0];
        }
        ROOM_FOR(s->offers, s->offers_count);
        which = s->offers_count++;
        s->offers[which] = made;
        *slot(&s->offers_of[link], wire) = which;
    }
    return s->offers[which];
}

/* What concerns a link of the node at one of its ends, by a number; few nodes differ in it. */
static N end_of(Search *s, N link, N end, N number) {
    List *list = &s->ends_of[2 * link + end];
    N known = *slot(list, number);
    if (known == NONE) {
        asked(s, END, link, end, number, 0);
        known = *slot(list, number) = s->answer[0];
    }
    return known;
}

/* The relation of a link's two ends in this state. */
static N couple(Search *s, N link, const N *state) {
    N prefill = end_of(s, link, 1, state[s->rules.ends[link][1]]);
    N decode = end_of(s, link, 0, state[s->rules.ends[link][0]]);
    uint64_t key = (uint64_t)link << 48 | (uint64_t)prefill << 24 | decode;
    N which = found(&s->couple_of, key);
    if (which == NONE) {
        asked(s, COUPLE, link, prefill, decode, 0);
        Couple made = {s->answer[0], s->answer[1], s->answer[2]};
        ROOM_FOR(s->couples, s->couple_count);
        which = s->couple_count++;
        s->couples[which] = made;
        remember(&s->couple_of, key, which);
    }
    return which;
}

/* The inputs that a link's calls are, in the order of its offers: each has an epoch that is new to both ends. */
static N calls(Search *s, N link, const N *state) {
    N prefill = state[s->rules.ends[link][1]], decode = state[s->rules.ends[link][0]];
    N wire = state[s->rules.nodes + link];
    uint64_t key = (uint64_t)couple(s, link, state) << 32 | wire; /* an end has its epoch */
    N which = found(&s->calls_of, key);
    if (which == NONE) {
        N count = asked(s, CALLS, link, prefill, decode, wire);
        which = (N)s->calls.count;
        for (N i = 0; i < count; i++) append(&s->calls, s->answer[i]);
        remember(&s->calls_of, key, which);
    }
    return which;
}

static Budget budget(Search *s, N number) {
    N which = *slot(&s->budget_of, number);
    if (which == NONE) {
        asked(s, BUDGET, number, 0, 0, 0);
        const N *from = s->answer;
        ROOM_FOR(s->budgets, s->budget_count);
        which = s->budget_count++;
        s->budgets[which] = (Budget){from[0], from[1], from[2], from[3] | (Mask)from[4] << 32};
        *slot(&s->budget_of, number) = which;
    }
    return s->budgets[which];
}

static N with_asleep(Search *s, N number, Mask asleep) {
    N mask = found(&s->mask_of, asleep);
    if (mask == NONE) remember(&s->mask_of, asleep, mask = (N)s->mask_of.count);
    uint64_t key = (uint64_t)mask << 32 | number;
    N new = found(&s->asleep_of, key);
    if (new == NONE) {
        asked(s, ASLEEP, number, (N)asleep, (N)(asleep >> 32), 0);
        remember(&s->asleep_of, key, new = s->answer[0]);
    }
    return new;
}

static N exchanged(Search *s, N swap, N at, N number) {
    List *list = &s->exchanged_of[swap * s->parts + at];
    N new = *slot(list, number);
    if (new == NONE) {
        asked(s, EXCHANGED, swap, at, number, 0);
        new = *slot(list, number) = s->answer[0];
    }
    return new;
}

static int settled(Search *s, N at, N number) {
    N known = *slot(&s->settled_of[at], number);
    if (known == NONE) {
        asked(s, SETTLED, at, number, 0, 0);
        known = *slot(&s->settled_of[at], number) = s->answer[0];
    }
    return (int)known;
}
