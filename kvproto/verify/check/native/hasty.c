/* Hasty: the next states where few things are slow, in the order of `DelayBoundedExplorer` of delay_bounded.py. */

#define MOST_TURNS 512

typedef struct { N rank, bit, choice, link; Offer offer; } Turn; /* a node's choice (link: NONE), or a link's offer */
typedef struct { Turn at[MOST_TURNS]; N count; } Turns;

static void add_turn(Turns *turns, Turn turn) {
    if (turns->count == MOST_TURNS) longjmp(leave, FULL);
    turns->at[turns->count++] = turn;
}
static void take_turn(Search *s, const N *state, const Turn *turn) {
    if (turn->link == NONE) take_choice(s, state, turn->choice);
    else take_offer(s, state, turn->link, &turn->offer);
}

static Mask listen(Search *s, const N *state, int rich, Turns *turns) {
    Mask noisy = 0;
    for (N link = 0; link < s->rules.links; link++) {
        N wire = state[s->rules.nodes + link], now[MOST_PARTS];
        if (!wire) continue;
        noisy |= (Mask)1 << link;
        Offers all = offers(s, link, wire);
        for (N end = 0, call = 0; end < 2; end++) {
            N from = end ? all.middle : all.begin, to = end ? all.end : all.middle, first = turns->count;
            for (N i = from; i < to; i++) { /* those with plain outcomes first, as `Free.all` has them */
                Offer offer = s->offered[i];
                int plain;
                if (offer.manner != FREE) continue;
                delivered(s, state, link, &offer, now, &plain);
                add_turn(turns, (Turn){offer.rank, offer.bit, NONE, link, offer});
                if (!plain) continue;
                Turn last = turns->at[turns->count - 1];
                memmove(turns->at + first + 1, turns->at + first, (turns->count - 1 - first) * sizeof(Turn));
                turns->at[first++] = last;
            }
            pay_network(s, state, link, from, to, rich);
            for (N i = from; i < to; i++)
                if (s->offered[i].manner == CALL) {
                    Offer offer = s->offered[i], made = called(s, &offer, calls(s, link, state), &call);
                    if (made.price == NONE) add_turn(turns, (Turn){made.rank, made.bit, NONE, link, made});
                    else if (rich) pay_offer(s, state, link, &made);
                }
        }
    }
    return noisy;
}

/* Run the first in turn, or delay it while the budget lasts. */
static void run_first(Search *s, const N *before, const Turns *turns) {
    N state[MOST_PARTS], first = NONE, others = 0;
    memcpy(state, before, sizeof state);
    Mask asleep = budget(s, state[s->last]).asleep;
    for (int again = 0; first == NONE; again++) {
        if (again) { asleep = 0; state[s->last] = with_asleep(s, state[s->last], 0); }
        for (N i = 0; i < turns->count; i++) {
            if (asleep >> turns->at[i].bit & 1) continue;
            if (first == NONE || turns->at[i].rank < turns->at[first].rank) first = i;
        }
    }
    N bit = turns->at[first].bit;
    for (N i = 0; i < turns->count; i++)
        if (turns->at[i].bit == bit) take_turn(s, state, turns->at + i);
        else others = 1;
    N left = paid(s, state[s->last], s->rules.slow);
    if (left == NONE || !others) return;
    state[s->last] = with_asleep(s, left, asleep | (Mask)1 << bit);
    add(s, state, FAULT);
}
static void next_hasty_states(Search *s, const N *state) {
    N menus[MOST_PARTS];
    Turns turns;
    turns.count = 0;
    for (N at = 0; at < s->rules.nodes; at++) {
        menus[at] = menu(s, at, state[at]);
        Menu all = s->menus[menus[at]];
        for (N i = all.begin[PLAIN]; i < all.begin[PLAIN + 1]; i++)
            add_turn(&turns, (Turn){s->choices[i].rank, s->choices[i].bit, i, NONE, {0}});
    }
    int rich = !budget(s, state[s->last]).poor;
    for (N at = 0; rich && at < s->rules.nodes; at++) pay_costly(s, state, menus[at], 0);
    Mask noisy = listen(s, state, rich, &turns);
    if (turns.count) run_first(s, state, &turns);
    timers(s, state, menus, turns.count ? ~(Mask)0 : noisy, turns.count > 0);
}
