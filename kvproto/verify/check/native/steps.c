/* Steps: the next states of a state, in the order in which `Explorer.successors` of successors.py has them.

   A step that breaks a property, or that Python cannot answer for, is left to Python: `leave` goes back to
   `search_advance`, and the same state is expanded again there. */

static void add(Search *s, const N *now, enum Kind kind) {
    append(&s->kinds, kind);
    reserve(&s->next, s->parts);
    memcpy(s->next.at + s->next.count, now, s->parts * sizeof(N));
    s->next.count += s->parts;
}

static void carry(Search *s, N *now, N which) {
    Outcome made = s->outcomes[which];
    for (N i = 0; i < made.count; i++) {
        N deed = s->deeds.at[made.deeds + i], at = PLACE(deed), next = outcome(s, deed, now[at]);
        if (s->outcomes[next].verdict != FINE) longjmp(leave, FAULTY);
        now[at] = s->outcomes[next].now;
        if (s->outcomes[next].count) carry(s, now, next);
    }
}
static void take(Search *s, N *now, N deed, N which, enum Kind kind) {
    if (s->outcomes[which].verdict != FINE) longjmp(leave, FAULTY);
    now[PLACE(deed)] = s->outcomes[which].now;
    if (s->outcomes[which].count) carry(s, now, which);
    add(s, now, kind);
}
static enum Kind free_kind(N deed) { return IS_TIMER(deed) ? TIMER : WORK; }

/* The budget's number after it has paid; NONE: nothing is left for it. */
static N paid(Search *s, N from, N price) {
    N which = outcome(s, price, from);
    return s->outcomes[which].verdict == FINE ? s->outcomes[which].now : NONE;
}

static N chosen(Search *s, N choice, N number) {
    N which = s->choices[choice].outcome;
    if (which == NONE) {
        which = outcome(s, s->choices[choice].deed, number);
        s->choices[choice].outcome = which;
    }
    return which;
}
static void take_choice(Search *s, const N *state, N choice) {
    N now[MOST_PARTS], deed = s->choices[choice].deed;
    memcpy(now, state, sizeof now);
    take(s, now, deed, chosen(s, choice, now[PLACE(deed)]), free_kind(deed));
}
static void pay_choice(Search *s, const N *state, N choice) {
    N left = paid(s, state[s->last], s->choices[choice].price), now[MOST_PARTS], deed = s->choices[choice].deed;
    if (left == NONE) return;
    memcpy(now, state, sizeof now);
    now[s->last] = left;
    take(s, now, deed, chosen(s, choice, now[PLACE(deed)]), FAULT);
}

/* ------------------------------------------------------------------------------------------------ links */
/* The outcome of a message at its end; `plain`: nothing comes of it but answers on this link, which are then there. */
static N delivered(Search *s, const N *state, N link, const Offer *offer, N *now, int *plain) {
    N wire = s->rules.nodes + link, at = PLACE(offer->deed), which = outcome(s, offer->deed, state[at]);
    memcpy(now, state, MOST_PARTS * sizeof(N));
    now[wire] = offer->wire;
    Outcome made = s->outcomes[which];
    *plain = made.verdict == FINE;
    int items = 1;
    for (N i = 0; i < made.count; i++) items &= IS_ITEM(s->deeds.at[made.deeds + i]);
    if (!items) *plain = 0;
    for (N i = 0; items && i < made.count; i++) {
        N deed = s->deeds.at[made.deeds + i];
        N answer = PLACE(deed) == wire ? outcome(s, deed, now[wire]) : NONE; /* it may move the array */
        if (answer == NONE) *plain = 0;
        else now[wire] = s->outcomes[answer].now;
    }
    now[at] = made.now;
    return which;
}

static void pay_offer(Search *s, const N *state, N link, const Offer *offer) {
    N left = paid(s, state[s->last], offer->price), now[MOST_PARTS];
    if (left == NONE) return;
    memcpy(now, state, sizeof now);
    now[s->last] = left;
    now[s->rules.nodes + link] = offer->wire;
    if (offer->manner == LOST) add(s, now, FAULT);
    else take(s, now, offer->deed, outcome(s, offer->deed, now[PLACE(offer->deed)]), FAULT);
}
static void take_offer(Search *s, const N *state, N link, const Offer *offer) {
    N now[MOST_PARTS];
    memcpy(now, state, sizeof now);
    now[s->rules.nodes + link] = offer->wire;
    take(s, now, offer->deed, outcome(s, offer->deed, now[PLACE(offer->deed)]), WORK);
}
/* A call with the epoch that it gets in this state. */
static Offer called(Search *s, const Offer *offer, N first, N *at) {
    Offer call = *offer;
    call.deed = s->calls.at[first + (*at)++];
    return call;
}

/* What needs no turn: faults of the network, and calls that are to be paid for. */
static void pay_network(Search *s, const N *state, N link, N from, N to, int rich) {
    for (N i = from; rich && i < to; i++)
        if (s->offered[i].manner == PAID || s->offered[i].manner == LOST) {
            Offer offer = s->offered[i];
            pay_offer(s, state, link, &offer);
        }
}
static Mask deliver(Search *s, const N *state, int rich) {
    Mask noisy = 0;
    for (N link = 0; link < s->rules.links; link++) {
        N wire = state[s->rules.nodes + link], now[MOST_PARTS];
        if (!wire) continue;
        noisy |= (Mask)1 << link;
        Offers all = offers(s, link, wire);
        for (N end = 0, call = 0; end < 2; end++) {
            N from = end ? all.middle : all.begin, to = end ? all.end : all.middle;
            int plain, others = 0;
            for (N i = from; i < to; i++) {
                Offer offer = s->offered[i];
                if (offer.manner != FREE) continue;
                delivered(s, state, link, &offer, now, &plain);
                if (plain) add(s, now, WORK);
                others |= !plain;
            }
            for (N i = from; others && i < to; i++) {
                Offer offer = s->offered[i];
                if (offer.manner != FREE) continue;
                delivered(s, state, link, &offer, now, &plain);
                if (!plain) take_offer(s, state, link, &offer);
            }
            pay_network(s, state, link, from, to, rich);
            for (N i = from; i < to; i++)
                if (s->offered[i].manner == CALL) {
                    Offer offer = s->offered[i], made = called(s, &offer, calls(s, link, state), &call);
                    if (made.price == NONE) take_offer(s, state, link, &made);
                    else if (rich) pay_offer(s, state, link, &made);
                }
        }
    }
    return noisy;
}

/* ------------------------------------------------------------------------------------------------ timers */
/* Which ends take their link for up alone: two bits a link. */
static Mask alone(Search *s, const N *state) {
    Mask found = 0;
    for (N link = 0; link < s->rules.links; link++) {
        N which = couple(s, link, state); /* it may move the array */
        Couple pair = s->couples[which];
        if (pair.broken || (pair.untold && !state[s->rules.nodes + link])) longjmp(leave, FAULTY);
        found |= (Mask)pair.left_alone << 2 * link;
    }
    return found;
}
static void long_timers(Search *s, const N *state, const N *menus, N patient) {
    for (N at = 0; at < s->rules.nodes; at++) {
        Menu all = s->menus[menus[at]];
        for (N i = all.begin[LONG]; patient && i < all.begin[LONG + 1]; i++)
            if (s->choices[i].room == NONE || patient >> s->choices[i].room & 1) take_choice(s, state, i);
        for (N i = all.begin[patient ? RARE : LONG]; s->rules.timeout && i < all.begin[RARE + 1]; i++)
            pay_choice(s, state, i);
    }
}
static void timers(Search *s, const N *state, const N *menus, Mask noisy, int moving) {
    Budget spent = budget(s, state[s->last]);
    int early = s->rules.early && !spent.poor, ticking = 0;
    Mask lonely = alone(s, state);
    for (N at = 0; at < s->rules.nodes; at++) {
        Menu all = s->menus[menus[at]];
        for (N i = all.begin[SHORT]; i < all.begin[SHORT + 1]; i++)
            if (!(noisy & s->choices[i].links)) { ticking = 1; take_choice(s, state, i); }
            else if (early) pay_choice(s, state, i);
        for (N i = all.begin[BEAT]; lonely && i < all.begin[BEAT + 1]; i++) {
            N link = s->choices[i].links;
            if (lonely >> 2 * link & s->choices[i].end && !(noisy >> link & 1)) { ticking = 1; take_choice(s, state, i); }
        }
    }
    int untold = s->rules.forgets && !ticking, patient = !(moving || noisy) && (untold || spent.hard);
    if (patient || s->rules.timeout)
        long_timers(s, state, menus, !patient ? 0 : s->rules.groups && !untold ? spent.blamed : UINT32_MAX);
}

/* ------------------------------------------------------------------------------------------------ all together */
static void pay_costly(Search *s, const N *state, N which, int ending) {
    Menu all = s->menus[which];
    for (N i = all.begin[COSTLY]; i < all.begin[COSTLY + 1]; i++)
        if (!ending || s->choices[i].ending) pay_choice(s, state, i);
}
/* In a swift world: the next kernel, write or report that ends, well or ill; 0: there is none. */
static int at_once(Search *s, const N *state) {
    for (N at = 0; at < s->rules.nodes; at++) {
        N which = menu(s, at, state[at]);
        if (s->menus[which].at_once == NONE) continue;
        take_choice(s, state, s->menus[which].begin[PLAIN] + s->menus[which].at_once);
        pay_costly(s, state, which, 1);
        return 1;
    }
    for (N link = 0; link < s->rules.links; link++) {
        Offers all = offers(s, link, state[s->rules.nodes + link]);
        for (N i = all.begin; i < all.end; i++)
            if (s->offered[i].report) {
                Offer offer = s->offered[i];
                take_offer(s, state, link, &offer);
                return 1;
            }
    }
    return 0;
}
static void next_states(Search *s, const N *state) {
    if (s->rules.swift && at_once(s, state)) return;
    N menus[MOST_PARTS];
    int moving = 0;
    for (N at = 0; at < s->rules.nodes; at++) {
        menus[at] = menu(s, at, state[at]);
        N from = s->menus[menus[at]].begin[PLAIN], to = s->menus[menus[at]].begin[PLAIN + 1];
        for (N i = from; i < to; i++) take_choice(s, state, i);
        moving |= from < to;
    }
    int rich = !budget(s, state[s->last]).poor;
    for (N at = 0; rich && at < s->rules.nodes; at++) pay_costly(s, state, menus[at], 0);
    timers(s, state, menus, deliver(s, state, rich), moving);
}
