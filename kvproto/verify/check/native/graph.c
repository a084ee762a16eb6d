/* Graph: the two questions of framework/liveness.py, answered without a reversed graph.

   A state's edges lie behind those of the state before it.  Most edges lead to states that were met later, so a walk from
   the last state to the first nearly always finds in one round what reaches an end, and one from the first to the last
   what lies on no circle.  Rounds go on until one changes nothing. */

#define TIMER_EDGE 0x80000000u

static int all_timers(const Search *s, uint64_t from, uint64_t to) {
    for (; from < to; from++) if (!(s->edges.at[from] & TIMER_EDGE)) return 0;
    return 1;
}

/* The first state from which none of `ends` is reached, if any, those that have nothing but timers before others. */
static int64_t cannot_reach(const Search *s, uint8_t *reached) {
    for (int changed = 1; changed;) {
        uint64_t to = s->edges.count;
        changed = 0;
        for (uint64_t at = s->done; at--;) {
            uint64_t from = to - s->rows[at].edges;
            for (uint64_t i = from; i < to && !reached[at]; i++)
                if (reached[s->edges.at[i] & ~TIMER_EDGE]) reached[at] = changed = 1;
            to = from;
        }
    }
    int64_t first = -1;
    uint64_t from = 0;
    for (uint64_t at = 0; at < s->done; from += s->rows[at++].edges) {
        if (reached[at]) continue;
        if (all_timers(s, from, from + s->rows[at].edges)) return (int64_t)at;
        if (first < 0) first = (int64_t)at;
    }
    return first;
}

/* The first state on, or behind, a circle of edges that are no timers; -1: there is no circle. */
static int64_t circle(const Search *s) {
    uint64_t count = s->done;
    N *incoming = grown(NULL, (count + 1) * sizeof(N));
    memset(incoming, 0, (count + 1) * sizeof(N));
    for (uint64_t i = 0; i < s->edges.count; i++)
        if (!(s->edges.at[i] & TIMER_EDGE)) incoming[s->edges.at[i]]++;
    for (int changed = 1; changed;) {
        uint64_t from = 0;
        changed = 0;
        for (uint64_t at = 0; at < count; from += s->rows[at++].edges) {
            if (incoming[at]) continue;
            incoming[at] = NONE; /* taken away */
            changed = 1;
            for (uint64_t i = from; i < from + s->rows[at].edges; i++)
                if (!(s->edges.at[i] & TIMER_EDGE)) incoming[s->edges.at[i]]--;
        }
    }
    int64_t found = -1;
    for (uint64_t at = 0; at < count && found < 0; at++) if (incoming[at] != NONE) found = (int64_t)at;
    free(incoming);
    return found;
}
