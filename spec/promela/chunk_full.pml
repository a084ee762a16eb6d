/* Made from the tables by python -m witness.promela: do not edit.
   One chunk, two writers, one decode rank; the ring is full.
   30 and 30 values of the writers, 54 of the decode rank; 817 rows. */

#define STILL 0
#define STAGED 1
#define PAGED 2
#define STAGED_DOUBT 3
#define PAGED_DOUBT 4
#define LANDED 5
#define FLYING(m) ((m) != STILL && (m) != LANDED)
#define TO_RING(m) ((m) == STAGED || (m) == STAGED_DOUBT)

short w0 = 0, w1 = 0, r = 0;  /* the ranks */
int net = 32769;                   /* messages that were ever sent */
byte m0, m1;                   /* the writers' writes */
bit s0, s1, p0, p1;            /* bytes in the region, in the pages */
bit open, failed, gone;        /* the region may be written; the room has failed; its pages were given back */
bit over0, over1, over2;       /* the ranks' rooms are over */

#define LAND(m, s, p, said) \
    assert(!(s || p));                          /* S2 */ \
    if \
    :: TO_RING(m) -> assert(open); s = 1; net = net | said  /* S1 */ \
    :: else -> assert(!gone); p = 1             /* S4 */ \
    fi; \
    m = LANDED

active proctype writer0() {
    do
    :: d_step { FLYING(m0) -> LAND(m0, s0, p0, 0) }
    :: d_step { w0 == 0 -> w0 = 1 }  /* OPEN/ASKING  produce  OPEN/ASKING */
    :: d_step { w0 == 0 -> w0 = 1 }  /* OPEN/ASKING  produce late  OPEN/ASKING */
    :: d_step { w0 == 0 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  timer */
    :: d_step { w0 == 0 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 0 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w0 == 0 && net & 128 -> w0 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w0 == 0 && net & 128 -> w0 = 5 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w0 == 0 && net & 256 -> w0 = 6 }  /* OPEN/ASKING  IN_QUEUE  OPEN/TURN */
    :: d_step { w0 == 0 && net & 512 -> w0 = 7; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 0 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 1 -> w0 = 3; net = net | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 1 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w0 == 1 && net & 128 -> w0 = 8 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 1 && net & 128 -> w0 = 9; net = net | 2 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net & 256 -> w0 = 10 }  /* OPEN/ASKING  IN_QUEUE  OPEN/TURN */
    :: d_step { w0 == 1 && net & 512 -> w0 = 3; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 2 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w0 == 2 && net & 128 -> w0 = 11 }  /* UNNOTED/NONE  RSP_OPEN  UNNOTED/NONE */
    :: d_step { w0 == 2 && net & 128 -> w0 = 11 }  /* UNNOTED/NONE  RSP_OPEN late  UNNOTED/NONE */
    :: d_step { w0 == 2 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w0 == 2 && net & 16384 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 3 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 3 && net & 128 -> w0 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w0 == 3 && net & 128 -> w0 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 3 && net & 1024 -> w0 = 12; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w0 == 3 && net & 1024 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 3 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 4 && net & 128 -> w0 = 13 }  /* FAILED/NONE  RSP_OPEN  FAILED/NONE */
    :: d_step { w0 == 4 && net & 128 -> w0 = 13 }  /* FAILED/NONE  RSP_OPEN late  FAILED/NONE */
    :: d_step { w0 == 4 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* FAILED/NONE  ABORT */
    :: d_step { w0 == 5 -> w0 = 8 }  /* OPEN/NO_KV  produce  OPEN/GATHERING */
    :: d_step { w0 == 5 -> w0 = 9; net = net | 2 }  /* OPEN/NO_KV  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 14; net = net | 2 }  /* OPEN/NO_KV  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 14; net = net | 2 }  /* OPEN/NO_KV  beat  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV  abort  UNNOTED/NONE */
    :: d_step { w0 == 5 && net & 8192 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 6 -> w0 = 10 }  /* OPEN/TURN  produce  OPEN/TURN */
    :: d_step { w0 == 6 -> w0 = 10 }  /* OPEN/TURN  produce late  OPEN/TURN */
    :: d_step { w0 == 6 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/TURN  timer */
    :: d_step { w0 == 6 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/TURN  beat */
    :: d_step { w0 == 6 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TURN  abort  UNNOTED/NONE */
    :: d_step { w0 == 6 && net & 128 -> w0 = 5 }  /* OPEN/TURN  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w0 == 6 && net & 128 -> w0 = 15; net = net | 1 }  /* OPEN/TURN  RSP_OPEN late  OPEN/TURN */
    :: d_step { w0 == 6 && net & 512 -> w0 = 7; net = net | 2 }  /* OPEN/TURN  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 6 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TURN  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 7 -> w0 = 3 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 -> w0 = 3 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 7 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 7 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 7 && net & 128 -> w0 = 14 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 && net & 128 -> w0 = 14 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 && net & 1024 -> w0 = 16 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 7 && net & 1024 -> w0 = 16 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 7 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 8 -> w0 = 17 }  /* OPEN/GATHERING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 8 -> w0 = 17 }  /* OPEN/GATHERING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 8 -> w0 = 18; assert(m0 == STILL); m0 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w0 == 8 -> w0 = 9; net = net | 2 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 8 -> w0 = 17 }  /* OPEN/GATHERING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 8 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/GATHERING  gather failed  UNNOTED/NONE */
    :: d_step { w0 == 8 && net & 8192 -> w0 = 17 }  /* OPEN/GATHERING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 9 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 9 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 9 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 9 && net & 1024 -> w0 = 19; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w0 == 9 && net & 1024 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 9 && net & 8192 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 10 -> w0 = 3; net = net | 2 }  /* OPEN/TURN  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 10 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/TURN  beat */
    :: d_step { w0 == 10 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TURN  abort  UNNOTED/NONE */
    :: d_step { w0 == 10 && net & 128 -> w0 = 8 }  /* OPEN/TURN  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 10 && net & 128 -> w0 = 20; net = net | 1 }  /* OPEN/TURN  RSP_OPEN late  OPEN/TURN */
    :: d_step { w0 == 10 && net & 512 -> w0 = 3; net = net | 2 }  /* OPEN/TURN  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 10 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TURN  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 11 -> w0 = 13; over0 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w0 == 11 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w0 == 11 && net & 16384 -> w0 = 13; over0 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w0 == 12 -> w0 = 21 }  /* OPEN/SLICING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 12 -> w0 = 21 }  /* OPEN/SLICING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 12 -> w0 = 21 }  /* OPEN/SLICING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 12 && net & 128 -> w0 = 19 }  /* OPEN/SLICING  RSP_OPEN  OPEN/SLICING */
    :: d_step { w0 == 12 && net & 128 -> w0 = 19 }  /* OPEN/SLICING  RSP_OPEN late  OPEN/SLICING */
    :: d_step { w0 == 12 && net & 8192 -> w0 = 21 }  /* OPEN/SLICING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 12 && (m0 == LANDED) -> m0 = STILL; w0 = 22; net = net | 16 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w0 == 12 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/SLICING  failed  UNNOTED/NONE */
    :: d_step { w0 == 12 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 21 }  /* OPEN/SLICING  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 13 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* FAILED/NONE  ABORT */
    :: d_step { w0 == 14 -> w0 = 9 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w0 == 14 -> w0 = 9 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 14 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 14 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 14 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 14 && net & 1024 -> w0 = 23 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 14 && net & 1024 -> w0 = 23 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 14 && net & 8192 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 15 -> w0 = 20 }  /* OPEN/TURN  produce  OPEN/TURN */
    :: d_step { w0 == 15 -> w0 = 20 }  /* OPEN/TURN  produce late  OPEN/TURN */
    :: d_step { w0 == 15 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/TURN  timer */
    :: d_step { w0 == 15 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/TURN  beat */
    :: d_step { w0 == 15 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TURN  abort  UNNOTED/NONE */
    :: d_step { w0 == 15 && net & 128 -> w0 = 5 }  /* OPEN/TURN  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w0 == 15 && net & 128 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/TURN  RSP_OPEN late */
    :: d_step { w0 == 15 && net & 512 -> w0 = 14; net = net | 2 }  /* OPEN/TURN  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 15 && net & 8192 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TURN  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 16 -> w0 = 12; assert(m0 == STILL); m0 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w0 == 16 -> w0 = 3; net = net | 2 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 16 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV_FOR_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 16 && net & 128 -> w0 = 23 }  /* OPEN/NO_KV_FOR_PAGES  RSP_OPEN  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 16 && net & 128 -> w0 = 23 }  /* OPEN/NO_KV_FOR_PAGES  RSP_OPEN late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 16 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV_FOR_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 17 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  gathered  UNNOTED/NONE */
    :: d_step { w0 == 17 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  gathered late  UNNOTED/NONE */
    :: d_step { w0 == 17 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  gather failed  UNNOTED/NONE */
    :: d_step { w0 == 18 -> w0 = 24 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 18 -> w0 = 24 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 18 -> w0 = 24 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 18 && net & 8192 -> w0 = 24 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 18 && (m0 == LANDED) -> m0 = STILL; w0 = 25; net = net | 8 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w0 == 18 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/WRITING  failed  UNNOTED/NONE */
    :: d_step { w0 == 18 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 24 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 19 -> w0 = 26 }  /* OPEN/SLICING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 19 -> w0 = 26 }  /* OPEN/SLICING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 19 -> w0 = 26 }  /* OPEN/SLICING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 19 && net & 8192 -> w0 = 26 }  /* OPEN/SLICING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 19 && (m0 == LANDED) -> m0 = STILL; w0 = 27; net = net | 16 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w0 == 19 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/SLICING  failed  UNNOTED/NONE */
    :: d_step { w0 == 19 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 26 }  /* OPEN/SLICING  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 20 -> w0 = 9; net = net | 2 }  /* OPEN/TURN  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 20 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/TURN  beat */
    :: d_step { w0 == 20 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TURN  abort  UNNOTED/NONE */
    :: d_step { w0 == 20 && net & 128 -> w0 = 8 }  /* OPEN/TURN  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 20 && net & 128 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/TURN  RSP_OPEN late */
    :: d_step { w0 == 20 && net & 512 -> w0 = 9; net = net | 2 }  /* OPEN/TURN  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 20 && net & 8192 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TURN  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 21 && net & 128 -> w0 = 26 }  /* DRAINING/STOPPING  RSP_OPEN  DRAINING/STOPPING */
    :: d_step { w0 == 21 && net & 128 -> w0 = 26 }  /* DRAINING/STOPPING  RSP_OPEN late  DRAINING/STOPPING */
    :: d_step { w0 == 21 && (m0 == LANDED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w0 == 21 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w0 == 21 && (m0 == STAGED_DOUBT || m0 == PAGED_DOUBT) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w0 == 21 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w0 == 22 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w0 == 22 && (net & 16) != 16 -> net = net | 16 }  /* OPEN/TELLING  beat */
    :: d_step { w0 == 22 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w0 == 22 && net & 128 -> w0 = 27 }  /* OPEN/TELLING  RSP_OPEN  OPEN/TELLING */
    :: d_step { w0 == 22 && net & 128 -> w0 = 27 }  /* OPEN/TELLING  RSP_OPEN late  OPEN/TELLING */
    :: d_step { w0 == 22 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 22 && net & 4096 -> w0 = 28; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 23 -> w0 = 19; assert(m0 == STILL); m0 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w0 == 23 -> w0 = 9; net = net | 2 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 23 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV_FOR_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 23 && net & 8192 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV_FOR_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 24 && (m0 == LANDED) -> m0 = STILL; w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w0 == 24 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w0 == 24 && (m0 == STAGED_DOUBT || m0 == PAGED_DOUBT) -> m0 = STILL; w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w0 == 24 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w0 == 25 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w0 == 25 && (net & 8) != 8 -> net = net | 8 }  /* OPEN/TELLING  beat */
    :: d_step { w0 == 25 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w0 == 25 && net & 8192 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 25 && net & 4096 -> w0 = 29; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 26 && (m0 == LANDED) -> m0 = STILL; w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w0 == 26 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w0 == 26 && (m0 == STAGED_DOUBT || m0 == PAGED_DOUBT) -> m0 = STILL; w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w0 == 26 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w0 == 27 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w0 == 27 && (net & 16) != 16 -> net = net | 16 }  /* OPEN/TELLING  beat */
    :: d_step { w0 == 27 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w0 == 27 && net & 8192 -> w0 = 11; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 27 && net & 4096 -> w0 = 29; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 28 && net & 128 -> w0 = 29 }  /* DONE/NONE  RSP_OPEN  DONE/NONE */
    :: d_step { w0 == 28 && net & 128 -> w0 = 29 }  /* DONE/NONE  RSP_OPEN late  DONE/NONE */
    :: d_step { w0 == 28 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* DONE/NONE  ABORT */
    :: d_step { w0 == 29 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* DONE/NONE  ABORT */
    od
}

active proctype writer1() {
    do
    :: d_step { FLYING(m1) -> LAND(m1, s1, p1, 0) }
    :: d_step { w1 == 0 -> w1 = 1 }  /* OPEN/ASKING  produce  OPEN/ASKING */
    :: d_step { w1 == 0 -> w1 = 1 }  /* OPEN/ASKING  produce late  OPEN/ASKING */
    :: d_step { w1 == 0 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  timer */
    :: d_step { w1 == 0 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 0 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w1 == 0 && net & 4194304 -> w1 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w1 == 0 && net & 4194304 -> w1 = 5 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w1 == 0 && net & 8388608 -> w1 = 6 }  /* OPEN/ASKING  IN_QUEUE  OPEN/TURN */
    :: d_step { w1 == 0 && net & 16777216 -> w1 = 7; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 0 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 1 -> w1 = 3; net = net | 65536 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 1 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w1 == 1 && net & 4194304 -> w1 = 8 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 1 && net & 4194304 -> w1 = 9; net = net | 65536 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net & 8388608 -> w1 = 10 }  /* OPEN/ASKING  IN_QUEUE  OPEN/TURN */
    :: d_step { w1 == 1 && net & 16777216 -> w1 = 3; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 2 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w1 == 2 && net & 4194304 -> w1 = 11 }  /* UNNOTED/NONE  RSP_OPEN  UNNOTED/NONE */
    :: d_step { w1 == 2 && net & 4194304 -> w1 = 11 }  /* UNNOTED/NONE  RSP_OPEN late  UNNOTED/NONE */
    :: d_step { w1 == 2 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w1 == 2 && net & 536870912 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 3 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 3 && net & 4194304 -> w1 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w1 == 3 && net & 4194304 -> w1 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 3 && net & 33554432 -> w1 = 12; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w1 == 3 && net & 33554432 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 3 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 4 && net & 4194304 -> w1 = 13 }  /* FAILED/NONE  RSP_OPEN  FAILED/NONE */
    :: d_step { w1 == 4 && net & 4194304 -> w1 = 13 }  /* FAILED/NONE  RSP_OPEN late  FAILED/NONE */
    :: d_step { w1 == 4 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* FAILED/NONE  ABORT */
    :: d_step { w1 == 5 -> w1 = 8 }  /* OPEN/NO_KV  produce  OPEN/GATHERING */
    :: d_step { w1 == 5 -> w1 = 9; net = net | 65536 }  /* OPEN/NO_KV  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 14; net = net | 65536 }  /* OPEN/NO_KV  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 14; net = net | 65536 }  /* OPEN/NO_KV  beat  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV  abort  UNNOTED/NONE */
    :: d_step { w1 == 5 && net & 268435456 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 6 -> w1 = 10 }  /* OPEN/TURN  produce  OPEN/TURN */
    :: d_step { w1 == 6 -> w1 = 10 }  /* OPEN/TURN  produce late  OPEN/TURN */
    :: d_step { w1 == 6 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/TURN  timer */
    :: d_step { w1 == 6 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/TURN  beat */
    :: d_step { w1 == 6 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TURN  abort  UNNOTED/NONE */
    :: d_step { w1 == 6 && net & 4194304 -> w1 = 5 }  /* OPEN/TURN  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w1 == 6 && net & 4194304 -> w1 = 15; net = net | 32768 }  /* OPEN/TURN  RSP_OPEN late  OPEN/TURN */
    :: d_step { w1 == 6 && net & 16777216 -> w1 = 7; net = net | 65536 }  /* OPEN/TURN  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 6 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TURN  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 7 -> w1 = 3 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 -> w1 = 3 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 7 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 7 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 7 && net & 4194304 -> w1 = 14 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 && net & 4194304 -> w1 = 14 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 && net & 33554432 -> w1 = 16 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 7 && net & 33554432 -> w1 = 16 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 7 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 8 -> w1 = 17 }  /* OPEN/GATHERING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 8 -> w1 = 17 }  /* OPEN/GATHERING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 8 -> w1 = 18; assert(m1 == STILL); m1 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w1 == 8 -> w1 = 9; net = net | 65536 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 8 -> w1 = 17 }  /* OPEN/GATHERING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 8 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/GATHERING  gather failed  UNNOTED/NONE */
    :: d_step { w1 == 8 && net & 268435456 -> w1 = 17 }  /* OPEN/GATHERING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 9 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 9 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 9 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 9 && net & 33554432 -> w1 = 19; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w1 == 9 && net & 33554432 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 9 && net & 268435456 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 10 -> w1 = 3; net = net | 65536 }  /* OPEN/TURN  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 10 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/TURN  beat */
    :: d_step { w1 == 10 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TURN  abort  UNNOTED/NONE */
    :: d_step { w1 == 10 && net & 4194304 -> w1 = 8 }  /* OPEN/TURN  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 10 && net & 4194304 -> w1 = 20; net = net | 32768 }  /* OPEN/TURN  RSP_OPEN late  OPEN/TURN */
    :: d_step { w1 == 10 && net & 16777216 -> w1 = 3; net = net | 65536 }  /* OPEN/TURN  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 10 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TURN  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 11 -> w1 = 13; over1 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w1 == 11 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w1 == 11 && net & 536870912 -> w1 = 13; over1 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w1 == 12 -> w1 = 21 }  /* OPEN/SLICING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 12 -> w1 = 21 }  /* OPEN/SLICING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 12 -> w1 = 21 }  /* OPEN/SLICING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 12 && net & 4194304 -> w1 = 19 }  /* OPEN/SLICING  RSP_OPEN  OPEN/SLICING */
    :: d_step { w1 == 12 && net & 4194304 -> w1 = 19 }  /* OPEN/SLICING  RSP_OPEN late  OPEN/SLICING */
    :: d_step { w1 == 12 && net & 268435456 -> w1 = 21 }  /* OPEN/SLICING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 12 && (m1 == LANDED) -> m1 = STILL; w1 = 22; net = net | 524288 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w1 == 12 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/SLICING  failed  UNNOTED/NONE */
    :: d_step { w1 == 12 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 21 }  /* OPEN/SLICING  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 13 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* FAILED/NONE  ABORT */
    :: d_step { w1 == 14 -> w1 = 9 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w1 == 14 -> w1 = 9 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 14 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 14 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 14 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 14 && net & 33554432 -> w1 = 23 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 14 && net & 33554432 -> w1 = 23 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 14 && net & 268435456 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 15 -> w1 = 20 }  /* OPEN/TURN  produce  OPEN/TURN */
    :: d_step { w1 == 15 -> w1 = 20 }  /* OPEN/TURN  produce late  OPEN/TURN */
    :: d_step { w1 == 15 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/TURN  timer */
    :: d_step { w1 == 15 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/TURN  beat */
    :: d_step { w1 == 15 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TURN  abort  UNNOTED/NONE */
    :: d_step { w1 == 15 && net & 4194304 -> w1 = 5 }  /* OPEN/TURN  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w1 == 15 && net & 4194304 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/TURN  RSP_OPEN late */
    :: d_step { w1 == 15 && net & 16777216 -> w1 = 14; net = net | 65536 }  /* OPEN/TURN  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 15 && net & 268435456 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TURN  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 16 -> w1 = 12; assert(m1 == STILL); m1 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w1 == 16 -> w1 = 3; net = net | 65536 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 16 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV_FOR_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 16 && net & 4194304 -> w1 = 23 }  /* OPEN/NO_KV_FOR_PAGES  RSP_OPEN  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 16 && net & 4194304 -> w1 = 23 }  /* OPEN/NO_KV_FOR_PAGES  RSP_OPEN late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 16 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV_FOR_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 17 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  gathered  UNNOTED/NONE */
    :: d_step { w1 == 17 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  gathered late  UNNOTED/NONE */
    :: d_step { w1 == 17 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  gather failed  UNNOTED/NONE */
    :: d_step { w1 == 18 -> w1 = 24 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 18 -> w1 = 24 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 18 -> w1 = 24 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 18 && net & 268435456 -> w1 = 24 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 18 && (m1 == LANDED) -> m1 = STILL; w1 = 25; net = net | 262144 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w1 == 18 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/WRITING  failed  UNNOTED/NONE */
    :: d_step { w1 == 18 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 24 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 19 -> w1 = 26 }  /* OPEN/SLICING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 19 -> w1 = 26 }  /* OPEN/SLICING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 19 -> w1 = 26 }  /* OPEN/SLICING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 19 && net & 268435456 -> w1 = 26 }  /* OPEN/SLICING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 19 && (m1 == LANDED) -> m1 = STILL; w1 = 27; net = net | 524288 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w1 == 19 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/SLICING  failed  UNNOTED/NONE */
    :: d_step { w1 == 19 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 26 }  /* OPEN/SLICING  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 20 -> w1 = 9; net = net | 65536 }  /* OPEN/TURN  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 20 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/TURN  beat */
    :: d_step { w1 == 20 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TURN  abort  UNNOTED/NONE */
    :: d_step { w1 == 20 && net & 4194304 -> w1 = 8 }  /* OPEN/TURN  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 20 && net & 4194304 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/TURN  RSP_OPEN late */
    :: d_step { w1 == 20 && net & 16777216 -> w1 = 9; net = net | 65536 }  /* OPEN/TURN  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 20 && net & 268435456 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TURN  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 21 && net & 4194304 -> w1 = 26 }  /* DRAINING/STOPPING  RSP_OPEN  DRAINING/STOPPING */
    :: d_step { w1 == 21 && net & 4194304 -> w1 = 26 }  /* DRAINING/STOPPING  RSP_OPEN late  DRAINING/STOPPING */
    :: d_step { w1 == 21 && (m1 == LANDED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w1 == 21 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w1 == 21 && (m1 == STAGED_DOUBT || m1 == PAGED_DOUBT) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w1 == 21 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w1 == 22 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w1 == 22 && (net & 524288) != 524288 -> net = net | 524288 }  /* OPEN/TELLING  beat */
    :: d_step { w1 == 22 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w1 == 22 && net & 4194304 -> w1 = 27 }  /* OPEN/TELLING  RSP_OPEN  OPEN/TELLING */
    :: d_step { w1 == 22 && net & 4194304 -> w1 = 27 }  /* OPEN/TELLING  RSP_OPEN late  OPEN/TELLING */
    :: d_step { w1 == 22 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 22 && net & 134217728 -> w1 = 28; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 23 -> w1 = 19; assert(m1 == STILL); m1 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w1 == 23 -> w1 = 9; net = net | 65536 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 23 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV_FOR_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 23 && net & 268435456 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV_FOR_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 24 && (m1 == LANDED) -> m1 = STILL; w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w1 == 24 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w1 == 24 && (m1 == STAGED_DOUBT || m1 == PAGED_DOUBT) -> m1 = STILL; w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w1 == 24 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w1 == 25 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w1 == 25 && (net & 262144) != 262144 -> net = net | 262144 }  /* OPEN/TELLING  beat */
    :: d_step { w1 == 25 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w1 == 25 && net & 268435456 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 25 && net & 134217728 -> w1 = 29; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 26 && (m1 == LANDED) -> m1 = STILL; w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w1 == 26 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w1 == 26 && (m1 == STAGED_DOUBT || m1 == PAGED_DOUBT) -> m1 = STILL; w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w1 == 26 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w1 == 27 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w1 == 27 && (net & 524288) != 524288 -> net = net | 524288 }  /* OPEN/TELLING  beat */
    :: d_step { w1 == 27 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w1 == 27 && net & 268435456 -> w1 = 11; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 27 && net & 134217728 -> w1 = 29; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 28 && net & 4194304 -> w1 = 29 }  /* DONE/NONE  RSP_OPEN  DONE/NONE */
    :: d_step { w1 == 28 && net & 4194304 -> w1 = 29 }  /* DONE/NONE  RSP_OPEN late  DONE/NONE */
    :: d_step { w1 == 28 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* DONE/NONE  ABORT */
    :: d_step { w1 == 29 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* DONE/NONE  ABORT */
    od
}

active proctype reader() {
    do
    :: d_step { over0 && over1 && over2 -> skip }
    :: d_step { r == 0 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/NONE  abort  DRAINING/NONE */
    :: d_step { r == 0 -> r = 2 }  /* OPEN/NONE  other freed  OPEN/NONE */
    :: d_step { r == 0 && net & 1 -> r = 3; net = net | 256 }  /* OPEN/NONE  REQ  OPEN/QUEUED */
    :: d_step { r == 0 && net & 2 -> r = 4; net = net | 1024 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 0 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 0 && net & 32768 -> r = 6; net = net | 8388608 }  /* OPEN/NONE  REQ  OPEN/QUEUED */
    :: d_step { r == 0 && net & 65536 -> r = 4; net = net | 33554432 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 0 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 -> r = 8 }  /* DRAINING/NONE  other freed  DRAINING/NONE */
    :: d_step { r == 1 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 1 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 1 && net & 32 -> r = 5; net = net | 16384 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 1 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 1 && net & 1048576 -> r = 7; net = net | 536870912 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 1 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 1 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 1 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 2 -> r = 8; failed = 1; net = net | 268443648 }  /* OPEN/NONE  abort  DRAINING/NONE */
    :: d_step { r == 2 && net & 1 -> r = 9; open = 1; net = net | 128 }  /* OPEN/NONE  REQ  OPEN/FILLING */
    :: d_step { r == 2 && net & 2 -> r = 10; net = net | 1024 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 2 && net & 32 -> r = 11; failed = 1; net = net | 268460032 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 2 && net & 32768 -> r = 12; open = 1; net = net | 4194304 }  /* OPEN/NONE  REQ  OPEN/FILLING */
    :: d_step { r == 2 && net & 65536 -> r = 10; net = net | 33554432 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 2 && net & 1048576 -> r = 13; failed = 1; net = net | 805314560 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 3 -> r = 9; open = 1; net = net | 128 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 3 && net & 1 && (net & 256) != 256 -> net = net | 256 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 3 && net & 2 -> r = 14; net = net | 1024 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/QUEUED */
    :: d_step { r == 3 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 && net & 32768 -> r = 15; net = net | 8388608 }  /* OPEN/QUEUED  REQ  OPEN/QUEUED */
    :: d_step { r == 3 && net & 65536 -> r = 16; net = net | 33554432 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/QUEUED */
    :: d_step { r == 3 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 4 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 4 -> r = 10 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 4 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 4 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 4 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 4 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 4 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 4 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 4 && net & 16 -> r = 29; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 4 && net & 524288 -> r = 30; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 5 -> r = 11 }  /* DRAINING/NONE  other freed  DRAINING/NONE */
    :: d_step { r == 5 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 5 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 5 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 5 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 5 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 5 && net & 1048576 -> r = 17; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net = net | 536870912 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 5 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 5 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 5 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 5 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 6 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 6 -> r = 12; open = 1; net = net | 4194304 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 6 && net & 1 -> r = 15; net = net | 256 }  /* OPEN/QUEUED  REQ  OPEN/QUEUED */
    :: d_step { r == 6 && net & 2 -> r = 18; net = net | 1024 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/QUEUED */
    :: d_step { r == 6 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 6 && net & 32768 && (net & 8388608) != 8388608 -> net = net | 8388608 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 6 && net & 65536 -> r = 19; net = net | 33554432 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/QUEUED */
    :: d_step { r == 6 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 7 -> r = 13 }  /* DRAINING/NONE  other freed  DRAINING/NONE */
    :: d_step { r == 7 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 7 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 7 && net & 32 -> r = 17; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net = net | 16384 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 7 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 7 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 7 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 7 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 7 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 7 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 7 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 8 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 8 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 8 && net & 32 -> r = 11; net = net | 16384 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 8 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 8 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 8 && net & 1048576 -> r = 13; net = net | 536870912 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 8 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 8 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 8 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 8 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 9 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 9 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 9 && net & 2 -> r = 21; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 9 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 9 && net & 32768 -> r = 23; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 9 && net & 65536 -> r = 24; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 9 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 9 && net & 8 -> r = 31; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 9 && net & 262144 -> r = 32; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 10 -> r = 8; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 10 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 10 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 10 && net & 32 -> r = 11; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 10 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 10 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 10 && net & 1048576 -> r = 13; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 10 && net & 16 -> r = 33; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 10 && net & 524288 -> r = 34; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 11 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 11 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 11 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 11 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 11 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 11 && net & 1048576 -> r = 26; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net = net | 536870912 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 11 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 11 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 11 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 11 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 12 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 12 && net & 1 -> r = 23; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 12 && net & 2 -> r = 27; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 12 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 12 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 12 && net & 65536 -> r = 28; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 12 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 12 && net & 8 -> r = 35; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 12 && net & 262144 -> r = 36; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 13 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 13 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 13 && net & 32 -> r = 26; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net = net | 16384 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 13 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 13 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 13 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 13 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 13 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 13 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 13 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 14 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 14 -> r = 21; open = 1 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 14 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 14 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/QUEUED  PAGES_REQ */
    :: d_step { r == 14 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 14 && net & 32768 -> r = 18; net = net | 8388608 }  /* OPEN/QUEUED  REQ  OPEN/QUEUED */
    :: d_step { r == 14 && net & 65536 -> r = 4; net = net | 33554432 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 14 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 14 && net & 16 -> r = 37; net = net | 4096 }  /* OPEN/QUEUED  NOTE_PAGES  OPEN/QUEUED */
    :: d_step { r == 15 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 15 -> r = 23; open = 1; net = net | 4194432 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 15 && net & 1 && (net & 256) != 256 -> net = net | 256 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 15 && net & 2 -> r = 18; net = net | 1024 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/QUEUED */
    :: d_step { r == 15 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 15 && net & 32768 && (net & 8388608) != 8388608 -> net = net | 8388608 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 15 && net & 65536 -> r = 16; net = net | 33554432 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/QUEUED */
    :: d_step { r == 15 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 16 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 16 -> r = 24; open = 1; net = net | 128 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 16 && net & 1 && (net & 256) != 256 -> net = net | 256 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 16 && net & 2 -> r = 4; net = net | 1024 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 16 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 16 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 16 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/QUEUED  PAGES_REQ */
    :: d_step { r == 16 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 16 && net & 524288 -> r = 38; net = net | 134217728 }  /* OPEN/QUEUED  NOTE_PAGES  OPEN/QUEUED */
    :: d_step { r == 17 -> r = 26 }  /* FAILED/NONE  other freed  FAILED/NONE */
    :: d_step { r == 17 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  REQ */
    :: d_step { r == 17 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 17 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 17 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  REQ */
    :: d_step { r == 17 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 17 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 17 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  NOTE_STAGED */
    :: d_step { r == 17 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 17 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  NOTE_STAGED */
    :: d_step { r == 17 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 18 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 18 -> r = 27; open = 1; net = net | 4194304 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 18 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 18 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/QUEUED  PAGES_REQ */
    :: d_step { r == 18 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 18 && net & 32768 && (net & 8388608) != 8388608 -> net = net | 8388608 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 18 && net & 65536 -> r = 4; net = net | 33554432 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 18 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 18 && net & 16 -> r = 39; net = net | 4096 }  /* OPEN/QUEUED  NOTE_PAGES  OPEN/QUEUED */
    :: d_step { r == 19 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 19 -> r = 28; open = 1 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 19 && net & 1 -> r = 16; net = net | 256 }  /* OPEN/QUEUED  REQ  OPEN/QUEUED */
    :: d_step { r == 19 && net & 2 -> r = 4; net = net | 1024 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 19 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 19 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 19 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/QUEUED  PAGES_REQ */
    :: d_step { r == 19 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 19 && net & 524288 -> r = 40; net = net | 134217728 }  /* OPEN/QUEUED  NOTE_PAGES  OPEN/QUEUED */
    :: d_step { r == 20 && net & 32 -> r = 22; net = net | 16384 }  /* DRAINING/QUARANTINED  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 20 && net & 1048576 -> r = 25; net = net | 536870912 }  /* DRAINING/QUARANTINED  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 21 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 21 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 21 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 21 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 21 && net & 32768 -> r = 27; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 21 && net & 65536 -> r = 10; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 21 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 21 && net & 16 -> r = 41; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 21 && net & 262144 -> r = 42; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 22 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DRAINING/QUARANTINED  DRAINED */
    :: d_step { r == 22 && net & 1048576 -> r = 26; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; open = 0; gone = 1; over2 = 1; net = net | 536870912 }  /* DRAINING/QUARANTINED  DRAINED  FAILED/NONE */
    :: d_step { r == 23 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 23 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 23 && net & 2 -> r = 27; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 23 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 23 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 23 && net & 65536 -> r = 24; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 23 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 23 && net & 8 -> r = 35; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 23 && net & 262144 -> r = 32; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 24 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 24 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 24 && net & 2 -> r = 10; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 24 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 24 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 24 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 24 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 24 && net & 8 -> r = 43; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 24 && net & 524288 -> r = 44; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 25 && net & 32 -> r = 26; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; open = 0; gone = 1; over2 = 1; net = net | 16384 }  /* DRAINING/QUARANTINED  DRAINED  FAILED/NONE */
    :: d_step { r == 25 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DRAINING/QUARANTINED  DRAINED */
    :: d_step { r == 26 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  REQ */
    :: d_step { r == 26 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 26 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 26 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  REQ */
    :: d_step { r == 26 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 26 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 26 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  NOTE_STAGED */
    :: d_step { r == 26 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 26 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  NOTE_STAGED */
    :: d_step { r == 26 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 27 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 27 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 27 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 27 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 27 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 27 && net & 65536 -> r = 10; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 27 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 27 && net & 16 -> r = 45; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 27 && net & 262144 -> r = 42; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 28 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 28 && net & 1 -> r = 24; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 28 && net & 2 -> r = 10; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 28 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 28 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 28 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 28 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 28 && net & 8 -> r = 43; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 28 && net & 524288 -> r = 46; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 29 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 29 -> r = 33 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 29 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 29 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 29 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 29 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 29 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 29 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 29 && net & 524288 -> r = 47; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 29 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 30 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 30 -> r = 34 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 30 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 30 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 30 && net & 16 -> r = 47; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 30 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 30 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 30 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 30 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 30 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 31 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 31 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 31 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 31 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 31 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 31 && net & 32768 -> r = 35; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 31 && net & 65536 -> r = 43; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 31 && net & 262144 -> r = 48; assert(s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 31 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 32 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 32 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 32 && net & 2 -> r = 42; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 32 && net & 8 -> r = 48; assert(s0 && s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 32 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 32 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 32 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 32 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 32 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 33 -> r = 8; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 33 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 33 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 33 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 33 && net & 32 -> r = 11; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 33 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 33 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 33 && net & 524288 -> r = 49; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 33 && net & 1048576 -> r = 13; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 34 -> r = 8; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 34 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 34 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 34 && net & 16 -> r = 49; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 34 && net & 32 -> r = 11; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 34 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 34 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 34 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 34 && net & 1048576 -> r = 13; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 35 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 35 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 35 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 35 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 35 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 35 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 35 && net & 65536 -> r = 43; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 35 && net & 262144 -> r = 48; assert(s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 35 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 36 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 36 && net & 1 -> r = 32; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 36 && net & 2 -> r = 42; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 36 && net & 8 -> r = 48; assert(s0 && s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 36 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 36 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 36 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 36 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 36 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 37 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 37 -> r = 41; open = 1 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 37 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 37 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/QUEUED  NOTE_PAGES */
    :: d_step { r == 37 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 37 && net & 32768 -> r = 39; net = net | 8388608 }  /* OPEN/QUEUED  REQ  OPEN/QUEUED */
    :: d_step { r == 37 && net & 65536 -> r = 29; net = net | 33554432 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 37 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 38 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 38 -> r = 44; open = 1; net = net | 128 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 38 && net & 1 && (net & 256) != 256 -> net = net | 256 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 38 && net & 2 -> r = 30; net = net | 1024 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 38 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 38 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 38 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/QUEUED  NOTE_PAGES */
    :: d_step { r == 38 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 39 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 39 -> r = 45; open = 1; net = net | 4194304 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 39 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 39 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/QUEUED  NOTE_PAGES */
    :: d_step { r == 39 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 39 && net & 32768 && (net & 8388608) != 8388608 -> net = net | 8388608 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 39 && net & 65536 -> r = 29; net = net | 33554432 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 39 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 40 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/QUEUED  abort  DRAINING/NONE */
    :: d_step { r == 40 -> r = 46; open = 1 }  /* OPEN/QUEUED  other freed  OPEN/FILLING */
    :: d_step { r == 40 && net & 1 -> r = 38; net = net | 256 }  /* OPEN/QUEUED  REQ  OPEN/QUEUED */
    :: d_step { r == 40 && net & 2 -> r = 30; net = net | 1024 }  /* OPEN/QUEUED  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 40 && net & 32 -> r = 5; failed = 1; net = net | 268460032 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 40 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/QUEUED  REQ */
    :: d_step { r == 40 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/QUEUED  NOTE_PAGES */
    :: d_step { r == 40 && net & 1048576 -> r = 7; failed = 1; net = net | 805314560 }  /* OPEN/QUEUED  DRAINED  DRAINING/NONE */
    :: d_step { r == 41 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 41 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 41 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 41 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 41 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 41 && net & 32768 -> r = 45; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 41 && net & 65536 -> r = 33; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 41 && net & 262144 -> r = 48; assert(p0 && !s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 41 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 42 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 42 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 42 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 42 && net & 16 -> r = 48; assert(p0 && !s0 && s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 42 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 42 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 42 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 42 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 42 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 43 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 43 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 43 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 43 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 43 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 43 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 43 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 43 && net & 524288 -> r = 48; assert(s0 && p1 && !s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 43 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 44 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 44 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 44 && net & 2 -> r = 34; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 44 && net & 8 -> r = 48; assert(s0 && p1 && !s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 44 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 44 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 44 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 44 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 44 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 45 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 45 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 45 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 45 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 45 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 45 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 45 && net & 65536 -> r = 33; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 45 && net & 262144 -> r = 48; assert(p0 && !s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 45 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 46 -> r = 20; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 46 && net & 1 -> r = 44; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 46 && net & 2 -> r = 34; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 46 && net & 8 -> r = 48; assert(s0 && p1 && !s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 46 && net & 32 -> r = 22; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 46 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 46 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 46 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 46 && net & 1048576 -> r = 25; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 47 -> r = 49 }  /* DONE/NONE  other freed  DONE/NONE */
    :: d_step { r == 47 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 47 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 47 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 47 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 47 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 47 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 48 -> r = 50; failed = 1; net = net | 268443648 }  /* OPEN/SCATTERING  abort  DRAINING/SCATTERING */
    :: d_step { r == 48 -> r = 49; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 48 -> r = 8; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; failed = 1; net = net | 268443648 }  /* OPEN/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 48 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 48 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 48 && net & 32 -> r = 51; failed = 1; net = net | 268460032 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 48 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 48 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 48 && net & 1048576 -> r = 52; failed = 1; net = net | 805314560 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 49 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 49 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 49 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 49 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 49 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 49 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 50 -> r = 8; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 50 -> r = 8; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 50 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 50 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 50 && net & 32 -> r = 51; net = net | 16384 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 50 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 50 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 50 && net & 1048576 -> r = 52; net = net | 536870912 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 51 -> r = 11; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 51 -> r = 11; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 51 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 51 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 51 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 51 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 51 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 51 && net & 1048576 -> r = 53; net = net | 536870912 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 52 -> r = 13; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 52 -> r = 13; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 52 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 52 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 52 && net & 32 -> r = 53; net = net | 16384 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 52 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 52 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 52 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 53 -> r = 26; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scattered  FAILED/NONE */
    :: d_step { r == 53 -> r = 26; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scatter failed  FAILED/NONE */
    :: d_step { r == 53 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 53 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 53 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 53 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 53 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 53 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* SETTLING/SCATTERING  DRAINED */
    od
}

