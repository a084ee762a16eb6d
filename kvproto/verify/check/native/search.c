/* Search: breadth first, as framework/search.py goes, over states that are rows of numbers.

   Python tells what each number leads to (answers.c), so nothing of the protocol is here.  States are met in the same
   order as there, and have the same numbers: a way to a state is the same way. */

#include "memory.c"
#include "answers.c"
#include "steps.c"
#include "hasty.c"
#include "graph.c"

/* Whether `a` comes before `b`, as numbers whose first part counts most. */
static int before(const N *a, const N *b, N parts) {
    for (N i = 0; i < parts; i++) if (a[i] != b[i]) return a[i] < b[i];
    return 0;
}
/* The least of the states that differ from this one by exchanging rooms. */
static void canonical(Search *s, N *state) {
    N best[MOST_PARTS], other[MOST_PARTS];
    memcpy(best, state, s->parts * sizeof(N));
    for (N swap = 0; swap < s->rules.swaps; swap++) {
        N first = *slot(&s->exchanged_of[swap * s->parts], state[0]);
        if (first != NONE && first > best[0]) continue; /* the first part decides, unless it stays as it is */
        for (N at = 0; at < s->parts; at++) other[at] = exchanged(s, swap, at, state[at]);
        if (before(other, best, s->parts)) memcpy(best, other, s->parts * sizeof(N));
    }
    memcpy(state, best, s->parts * sizeof(N));
}

static N reached(Search *s, N *state) {
    N to = known(&s->states, state);
    if (to != NONE) return to;
    if (s->rules.swaps) {
        canonical(s, state);
        to = known(&s->states, state);
        if (to != NONE) return to;
    }
    return meet(&s->states, state);
}
/* Expand a state; returns whether nothing but faults can happen there. */
static int expand(Search *s, uint64_t at) {
    N state[MOST_PARTS] = {0}, moves = 0;
    unpack(&s->states, at, state);
    s->next.count = s->kinds.count = 0;
    if (s->rules.hasty) next_hasty_states(s, state);
    else next_states(s, state);
    uint64_t first = s->edges.count, met = s->states.count;
    for (uint64_t i = 0; i < s->kinds.count; i++) {
        if (i % FORESEEN == 0) {
            uint64_t left = s->kinds.count - i;
            foresee(&s->states, s->next.at + i * s->parts, left < FORESEEN ? left : FORESEEN);
        }
        N kind = s->kinds.at[i], to = reached(s, s->next.at + i * s->parts);
        moves |= kind;
        if (kind != FAULT && s->rules.live) append(&s->edges, to | (kind == TIMER ? TIMER_EDGE : 0));
    }
    if (at == s->row_room) {
        s->row_room = at ? 2 * at : 1024;
        s->rows = grown(s->rows, s->row_room * sizeof(Row));
    }
    s->rows[at] = (Row){(uint16_t)(s->edges.count - first), (uint16_t)(s->states.count - met)};
    if (s->kinds.count > UINT16_MAX) longjmp(leave, FULL);
    s->transitions += s->kinds.count;
    return !moves;
}
static int rests(Search *s, const N *state) {
    for (N at = 0; at < s->rules.nodes; at++) if (!settled(s, at, state[at])) return 0;
    for (N at = s->rules.nodes; at < s->last; at++) if (state[at]) return 0;
    return 1;
}

/* ------------------------------------------------------------------------------------------------ what Python calls */
Search *search_new(const Rules *rules, Ask ask, N *answer) {
    Search *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->rules = *rules;
    s->ask = ask;
    s->answer = answer;
    s->level = 1;
    s->last = rules->nodes + rules->links;
    s->parts = s->last + 1;
    s->states = (States){.parts = s->parts, .size = s->parts, .mask = 1023};
    memset(s->states.width, 1, sizeof s->states.width);
    s->states.table = malloc(1024 * sizeof(N));
    s->exchanged_of = calloc((uint64_t)rules->swaps * s->parts + 1, sizeof(List));
    s->ends_of = calloc(2 * (uint64_t)rules->links + 1, sizeof(List));
    if (!s->states.table || !s->exchanged_of || !s->ends_of) {
        free(s->states.table); free(s->exchanged_of); free(s->ends_of); free(s);
        return NULL;
    }
    memset(s->states.table, 0xff, 1024 * sizeof(N));
    return s;
}
void search_free(Search *s) {
    Map *maps[] = {&s->outcome_of, &s->couple_of, &s->calls_of, &s->mask_of, &s->asleep_of};
    List *lists[] = {&s->budget_of, &s->deeds, &s->calls, &s->edges, &s->kinds, &s->next};
    void *arrays[] = {s->outcomes, s->menus, s->choices, s->offers, s->offered, s->couples, s->budgets, s->rows,
                      s->states.bytes, s->states.table};
    for (N i = 0; i < sizeof maps / sizeof *maps; i++) free(maps[i]->at);
    for (N i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->at);
    for (N i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    for (N i = 0; i < MOST_PARTS; i++) { free(s->menu_of[i].at); free(s->offers_of[i].at); free(s->settled_of[i].at); }
    for (N i = 0; i < s->rules.swaps * s->parts; i++) free(s->exchanged_of[i].at);
    for (N i = 0; i < 2 * s->rules.links; i++) free(s->ends_of[i].at);
    free(s->exchanged_of);
    free(s->ends_of);
    free(s);
}
/* Meet a state from which the search begins. */
int search_meet(Search *s, const N *state) {
    int ended = setjmp(leave);
    if (ended) return ended;
    meet(&s->states, state);
    s->roots++;
    return WELL;
}
/* Expand states until `upto` of them are, or one needs Python: then `done` is its place. */
int search_advance(Search *s, uint64_t upto) {
    int ended = setjmp(leave);
    if (ended) return ended;
    while (s->done < s->states.count && s->done < upto) {
        if (s->done == s->level) { s->depth++; s->level = s->states.count; }
        int stuck = expand(s, s->done);
        N state[MOST_PARTS];
        unpack(&s->states, s->done, state);
        if (stuck && !rests(s, state)) return STUCK;
        s->done++;
    }
    return WELL;
}
uint64_t search_states(const Search *s) { return s->states.count; }
uint64_t search_done(const Search *s) { return s->done; }
/* What states and edges take, answers apart. */
uint64_t search_bytes(const Search *s) {
    uint64_t table = s->states.table ? s->states.mask + 1 : 0;
    return s->states.count * s->states.size + (table + s->edges.count) * sizeof(N) + s->done * sizeof(Row);
}
uint64_t search_depth(const Search *s) { return s->depth; }
uint64_t search_transitions(const Search *s) { return s->transitions; }
/* The way to a state, from its end to its beginning, unless `path` is NULL; returns its length. */
uint64_t search_path(const Search *s, uint64_t at, N *path) {
    uint64_t length = 0, from = s->done, born = s->roots; /* born: the first state that was met from `from` */
    for (uint64_t i = 0; i < s->done; i++) born += s->rows[i].born;
    for (;;) {
        if (path) path[length] = (N)at;
        length++;
        if (!at) return length;
        if (at < s->roots) { at = 0; continue; } /* a search may begin with several states: all follow the first */
        while (born > at) born -= s->rows[--from].born;
        at = from;
    }
}
void search_state(const Search *s, uint64_t at, N *numbers) { unpack(&s->states, at, numbers); }
/* Mark every state of rest; the hash table goes, since nothing is met any more. */
int search_rests(Search *s, uint8_t *marks) {
    int ended = setjmp(leave);
    if (ended) return ended;
    free(s->states.table);
    s->states.table = NULL;
    for (uint64_t at = 0; at < s->states.count; at++) {
        N state[MOST_PARTS];
        unpack(&s->states, at, state);
        marks[at] = (uint8_t)rests(s, state);
    }
    return WELL;
}
int search_lost(Search *s, uint8_t *marks, int64_t *found) {
    int ended = setjmp(leave);
    if (ended) return ended;
    *found = cannot_reach(s, marks);
    return WELL;
}
int search_circle(Search *s, int64_t *found) {
    int ended = setjmp(leave);
    if (ended) return ended;
    *found = circle(s);
    return WELL;
}
