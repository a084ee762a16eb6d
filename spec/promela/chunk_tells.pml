/* Made from the tables by python -m witness.promela: do not edit.
   One chunk, two writers, one decode rank; the ring is empty, and staged writes carry their notification.
   18 and 18 values of the writers, 34 of the decode rank; 470 rows. */

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
    :: d_step { FLYING(m0) -> LAND(m0, s0, p0, 8) }
    :: d_step { w0 == 0 -> w0 = 1 }  /* OPEN/ASKING  produce  OPEN/ASKING */
    :: d_step { w0 == 0 -> w0 = 1 }  /* OPEN/ASKING  produce late  OPEN/ASKING */
    :: d_step { w0 == 0 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  timer */
    :: d_step { w0 == 0 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 0 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w0 == 0 && net & 128 -> w0 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w0 == 0 && net & 128 -> w0 = 5 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w0 == 0 && net & 512 -> w0 = 6; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 0 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 1 -> w0 = 3; net = net | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 1 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w0 == 1 && net & 128 -> w0 = 7 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 1 && net & 128 -> w0 = 3; net = net | 2 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net & 512 -> w0 = 3; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 2 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w0 == 2 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w0 == 2 && net & 16384 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 3 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 3 && net & 1024 -> w0 = 8; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w0 == 3 && net & 1024 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 3 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 4 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* FAILED/NONE  ABORT */
    :: d_step { w0 == 5 -> w0 = 7 }  /* OPEN/NO_KV  produce  OPEN/GATHERING */
    :: d_step { w0 == 5 -> w0 = 3; net = net | 2 }  /* OPEN/NO_KV  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 6; net = net | 2 }  /* OPEN/NO_KV  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 6; net = net | 2 }  /* OPEN/NO_KV  beat  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV  abort  UNNOTED/NONE */
    :: d_step { w0 == 5 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 6 -> w0 = 3 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w0 == 6 -> w0 = 3 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 6 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 6 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 6 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 6 && net & 1024 -> w0 = 9 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 6 && net & 1024 -> w0 = 9 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 6 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 7 -> w0 = 10 }  /* OPEN/GATHERING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 7 -> w0 = 10 }  /* OPEN/GATHERING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 7 -> w0 = 11; assert(m0 == STILL); m0 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w0 == 7 -> w0 = 3; net = net | 2 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 -> w0 = 10 }  /* OPEN/GATHERING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 7 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/GATHERING  gather failed  UNNOTED/NONE */
    :: d_step { w0 == 7 && net & 8192 -> w0 = 10 }  /* OPEN/GATHERING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 8 -> w0 = 12 }  /* OPEN/SLICING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 8 -> w0 = 12 }  /* OPEN/SLICING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 8 -> w0 = 12 }  /* OPEN/SLICING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 8 && net & 8192 -> w0 = 12 }  /* OPEN/SLICING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 8 && (m0 == LANDED) -> m0 = STILL; w0 = 13; net = net | 16 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w0 == 8 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/SLICING  failed  UNNOTED/NONE */
    :: d_step { w0 == 8 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 12 }  /* OPEN/SLICING  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 9 -> w0 = 8; assert(m0 == STILL); m0 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w0 == 9 -> w0 = 3; net = net | 2 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 9 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV_FOR_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 9 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV_FOR_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 10 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  gathered  UNNOTED/NONE */
    :: d_step { w0 == 10 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  gathered late  UNNOTED/NONE */
    :: d_step { w0 == 10 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  gather failed  UNNOTED/NONE */
    :: d_step { w0 == 11 -> w0 = 14 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 11 -> w0 = 14 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 11 -> w0 = 14 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 11 && net & 4096 -> w0 = 15 }  /* OPEN/WRITING  ACK  OPEN/WRITING */
    :: d_step { w0 == 11 && net & 8192 -> w0 = 14 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 11 && (m0 == LANDED) -> m0 = STILL; w0 = 16 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w0 == 11 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/WRITING  failed  UNNOTED/NONE */
    :: d_step { w0 == 11 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 14 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 12 && (m0 == LANDED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w0 == 12 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w0 == 12 && (m0 == STAGED_DOUBT || m0 == PAGED_DOUBT) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w0 == 12 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w0 == 13 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w0 == 13 && (net & 16) != 16 -> net = net | 16 }  /* OPEN/TELLING  beat */
    :: d_step { w0 == 13 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w0 == 13 && net & 4096 -> w0 = 17; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 13 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 14 && (m0 == LANDED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w0 == 14 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w0 == 14 && (m0 == STAGED_DOUBT || m0 == PAGED_DOUBT) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w0 == 14 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w0 == 15 -> w0 = 14 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 15 -> w0 = 14 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 15 -> w0 = 14 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 15 && net & 8192 -> w0 = 14 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 15 && (m0 == LANDED) -> m0 = STILL; w0 = 17; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/WRITING  completed  DONE/NONE */
    :: d_step { w0 == 15 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/WRITING  failed  UNNOTED/NONE */
    :: d_step { w0 == 15 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 14 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 16 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w0 == 16 && (net & 8) != 8 -> net = net | 8 }  /* OPEN/TELLING  beat */
    :: d_step { w0 == 16 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w0 == 16 && net & 4096 -> w0 = 17; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 16 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 17 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* DONE/NONE  ABORT */
    od
}

active proctype writer1() {
    do
    :: d_step { FLYING(m1) -> LAND(m1, s1, p1, 262144) }
    :: d_step { w1 == 0 -> w1 = 1 }  /* OPEN/ASKING  produce  OPEN/ASKING */
    :: d_step { w1 == 0 -> w1 = 1 }  /* OPEN/ASKING  produce late  OPEN/ASKING */
    :: d_step { w1 == 0 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  timer */
    :: d_step { w1 == 0 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 0 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w1 == 0 && net & 4194304 -> w1 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w1 == 0 && net & 4194304 -> w1 = 5 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w1 == 0 && net & 16777216 -> w1 = 6; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 0 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 1 -> w1 = 3; net = net | 65536 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 1 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w1 == 1 && net & 4194304 -> w1 = 7 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 1 && net & 4194304 -> w1 = 3; net = net | 65536 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net & 16777216 -> w1 = 3; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 2 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w1 == 2 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w1 == 2 && net & 536870912 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 3 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 3 && net & 33554432 -> w1 = 8; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w1 == 3 && net & 33554432 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 3 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 4 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* FAILED/NONE  ABORT */
    :: d_step { w1 == 5 -> w1 = 7 }  /* OPEN/NO_KV  produce  OPEN/GATHERING */
    :: d_step { w1 == 5 -> w1 = 3; net = net | 65536 }  /* OPEN/NO_KV  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 6; net = net | 65536 }  /* OPEN/NO_KV  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 6; net = net | 65536 }  /* OPEN/NO_KV  beat  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV  abort  UNNOTED/NONE */
    :: d_step { w1 == 5 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 6 -> w1 = 3 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w1 == 6 -> w1 = 3 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 6 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 6 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 6 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 6 && net & 33554432 -> w1 = 9 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 6 && net & 33554432 -> w1 = 9 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 6 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 7 -> w1 = 10 }  /* OPEN/GATHERING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 7 -> w1 = 10 }  /* OPEN/GATHERING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 7 -> w1 = 11; assert(m1 == STILL); m1 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w1 == 7 -> w1 = 3; net = net | 65536 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 -> w1 = 10 }  /* OPEN/GATHERING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 7 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/GATHERING  gather failed  UNNOTED/NONE */
    :: d_step { w1 == 7 && net & 268435456 -> w1 = 10 }  /* OPEN/GATHERING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 8 -> w1 = 12 }  /* OPEN/SLICING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 8 -> w1 = 12 }  /* OPEN/SLICING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 8 -> w1 = 12 }  /* OPEN/SLICING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 8 && net & 268435456 -> w1 = 12 }  /* OPEN/SLICING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 8 && (m1 == LANDED) -> m1 = STILL; w1 = 13; net = net | 524288 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w1 == 8 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/SLICING  failed  UNNOTED/NONE */
    :: d_step { w1 == 8 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 12 }  /* OPEN/SLICING  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 9 -> w1 = 8; assert(m1 == STILL); m1 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w1 == 9 -> w1 = 3; net = net | 65536 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 9 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV_FOR_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 9 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV_FOR_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 10 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  gathered  UNNOTED/NONE */
    :: d_step { w1 == 10 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  gathered late  UNNOTED/NONE */
    :: d_step { w1 == 10 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  gather failed  UNNOTED/NONE */
    :: d_step { w1 == 11 -> w1 = 14 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 11 -> w1 = 14 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 11 -> w1 = 14 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 11 && net & 134217728 -> w1 = 15 }  /* OPEN/WRITING  ACK  OPEN/WRITING */
    :: d_step { w1 == 11 && net & 268435456 -> w1 = 14 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 11 && (m1 == LANDED) -> m1 = STILL; w1 = 16 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w1 == 11 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/WRITING  failed  UNNOTED/NONE */
    :: d_step { w1 == 11 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 14 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 12 && (m1 == LANDED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w1 == 12 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w1 == 12 && (m1 == STAGED_DOUBT || m1 == PAGED_DOUBT) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w1 == 12 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w1 == 13 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w1 == 13 && (net & 524288) != 524288 -> net = net | 524288 }  /* OPEN/TELLING  beat */
    :: d_step { w1 == 13 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w1 == 13 && net & 134217728 -> w1 = 17; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 13 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 14 && (m1 == LANDED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w1 == 14 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w1 == 14 && (m1 == STAGED_DOUBT || m1 == PAGED_DOUBT) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w1 == 14 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w1 == 15 -> w1 = 14 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 15 -> w1 = 14 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 15 -> w1 = 14 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 15 && net & 268435456 -> w1 = 14 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 15 && (m1 == LANDED) -> m1 = STILL; w1 = 17; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/WRITING  completed  DONE/NONE */
    :: d_step { w1 == 15 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/WRITING  failed  UNNOTED/NONE */
    :: d_step { w1 == 15 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 14 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 16 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w1 == 16 && (net & 262144) != 262144 -> net = net | 262144 }  /* OPEN/TELLING  beat */
    :: d_step { w1 == 16 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w1 == 16 && net & 134217728 -> w1 = 17; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 16 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 17 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* DONE/NONE  ABORT */
    od
}

active proctype reader() {
    do
    :: d_step { over0 && over1 && over2 -> skip }
    :: d_step { r == 0 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/NONE  abort  DRAINING/NONE */
    :: d_step { r == 0 && net & 1 -> r = 2; open = 1; net = net | 128 }  /* OPEN/NONE  REQ  OPEN/FILLING */
    :: d_step { r == 0 && net & 2 -> r = 3; net = net | 1024 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 0 && net & 32 -> r = 4; failed = 1; net = net | 268460032 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 0 && net & 32768 -> r = 5; open = 1; net = net | 4194304 }  /* OPEN/NONE  REQ  OPEN/FILLING */
    :: d_step { r == 0 && net & 65536 -> r = 3; net = net | 33554432 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 0 && net & 1048576 -> r = 6; failed = 1; net = net | 805314560 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 1 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 1 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 1 && net & 32 -> r = 4; net = net | 16384 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 1 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 1 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 1 && net & 1048576 -> r = 6; net = net | 536870912 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 1 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 2 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 2 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 2 && net & 2 -> r = 8; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 2 && net & 8 -> r = 9; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 2 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 2 && net & 32768 -> r = 11; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 2 && net & 65536 -> r = 12; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 2 && net & 262144 -> r = 13; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 2 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 3 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 3 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 3 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 3 && net & 32 -> r = 4; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 3 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 3 && net & 1048576 -> r = 6; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 && net & 16 -> r = 28; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 3 && net & 524288 -> r = 29; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 4 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 4 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 4 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 4 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 4 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 4 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 4 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 4 && net & 1048576 -> r = 15; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net = net | 536870912 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 4 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 4 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 5 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 5 && net & 1 -> r = 11; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 5 && net & 2 -> r = 16; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 5 && net & 8 -> r = 17; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 5 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 5 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 5 && net & 65536 -> r = 18; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 5 && net & 262144 -> r = 19; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 5 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 6 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 6 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 6 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 6 && net & 32 -> r = 15; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net = net | 16384 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 6 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 6 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 6 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 6 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 6 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 6 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 7 && net & 32 -> r = 10; net = net | 16384 }  /* DRAINING/QUARANTINED  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 7 && net & 1048576 -> r = 14; net = net | 536870912 }  /* DRAINING/QUARANTINED  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 8 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 8 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 8 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 8 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 8 && net & 32768 -> r = 16; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 8 && net & 65536 -> r = 3; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 8 && net & 262144 -> r = 20; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 8 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 8 && net & 16 -> r = 30; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 9 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 9 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 9 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 9 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 9 && net & 32768 -> r = 17; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 9 && net & 65536 -> r = 21; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 9 && net & 262144 -> r = 22; assert(s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 9 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 9 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 10 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DRAINING/QUARANTINED  DRAINED */
    :: d_step { r == 10 && net & 1048576 -> r = 15; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; open = 0; gone = 1; over2 = 1; net = net | 536870912 }  /* DRAINING/QUARANTINED  DRAINED  FAILED/NONE */
    :: d_step { r == 11 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 11 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 11 && net & 2 -> r = 16; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 11 && net & 8 -> r = 17; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 11 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 11 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 11 && net & 65536 -> r = 12; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 11 && net & 262144 -> r = 13; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 11 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 12 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 12 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 12 && net & 2 -> r = 3; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 12 && net & 8 -> r = 21; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 12 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 12 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 12 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 12 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 12 && net & 524288 -> r = 31; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 13 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 13 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 13 && net & 2 -> r = 20; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 13 && net & 8 -> r = 22; assert(s0 && s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 13 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 13 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 13 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 13 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 13 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 14 && net & 32 -> r = 15; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; open = 0; gone = 1; over2 = 1; net = net | 16384 }  /* DRAINING/QUARANTINED  DRAINED  FAILED/NONE */
    :: d_step { r == 14 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DRAINING/QUARANTINED  DRAINED */
    :: d_step { r == 15 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  REQ */
    :: d_step { r == 15 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 15 && net & 8 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  NOTE_STAGED */
    :: d_step { r == 15 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 15 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  REQ */
    :: d_step { r == 15 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 15 && net & 262144 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  NOTE_STAGED */
    :: d_step { r == 15 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 15 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 15 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 16 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 16 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 16 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 16 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 16 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 16 && net & 65536 -> r = 3; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 16 && net & 262144 -> r = 20; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 16 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 16 && net & 16 -> r = 32; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 17 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 17 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 17 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 17 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 17 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 17 && net & 65536 -> r = 21; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 17 && net & 262144 -> r = 22; assert(s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 17 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 17 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 18 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 18 && net & 1 -> r = 12; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 18 && net & 2 -> r = 3; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 18 && net & 8 -> r = 21; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 18 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 18 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 18 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 18 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 18 && net & 524288 -> r = 33; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 19 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 19 && net & 1 -> r = 13; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 19 && net & 2 -> r = 20; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 19 && net & 8 -> r = 22; assert(s0 && s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 19 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 19 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 19 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 19 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 19 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 20 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 20 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 20 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 20 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 20 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 20 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 20 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 20 && net & 16 -> r = 22; assert(p0 && !s0 && s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 20 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 21 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 21 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 21 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 21 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 21 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 21 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 21 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 21 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 21 && net & 524288 -> r = 22; assert(s0 && p1 && !s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 22 -> r = 23; failed = 1; net = net | 268443648 }  /* OPEN/SCATTERING  abort  DRAINING/SCATTERING */
    :: d_step { r == 22 -> r = 24; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 22 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; failed = 1; net = net | 268443648 }  /* OPEN/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 22 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 22 && net & 32 -> r = 25; failed = 1; net = net | 268460032 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 22 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 22 && net & 1048576 -> r = 26; failed = 1; net = net | 805314560 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 22 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 22 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 23 -> r = 1; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 23 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 23 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 23 && net & 32 -> r = 25; net = net | 16384 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 23 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 23 && net & 1048576 -> r = 26; net = net | 536870912 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 23 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 23 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 24 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 24 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 24 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 24 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 24 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 24 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 25 -> r = 4; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 25 -> r = 4; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 25 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 25 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 25 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 25 && net & 1048576 -> r = 27; net = net | 536870912 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 25 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 25 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 26 -> r = 6; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 26 -> r = 6; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 26 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 26 && net & 32 -> r = 27; net = net | 16384 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 26 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 26 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 26 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 26 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 27 -> r = 15; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scattered  FAILED/NONE */
    :: d_step { r == 27 -> r = 15; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scatter failed  FAILED/NONE */
    :: d_step { r == 27 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 27 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 27 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 27 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 27 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 27 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 28 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 28 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 28 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 28 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 28 && net & 32 -> r = 4; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 28 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 28 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 28 && net & 524288 -> r = 24; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 28 && net & 1048576 -> r = 6; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 29 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 29 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 29 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 29 && net & 16 -> r = 24; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 29 && net & 32 -> r = 4; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 29 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 29 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 29 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 29 && net & 1048576 -> r = 6; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 30 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 30 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 30 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 30 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 30 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 30 && net & 32768 -> r = 32; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 30 && net & 65536 -> r = 28; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 30 && net & 262144 -> r = 22; assert(p0 && !s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 30 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 31 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 31 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 31 && net & 2 -> r = 29; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 31 && net & 8 -> r = 22; assert(s0 && p1 && !s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 31 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 31 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 31 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 31 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 31 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 32 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 32 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 32 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 32 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 32 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 32 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 32 && net & 65536 -> r = 28; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 32 && net & 262144 -> r = 22; assert(p0 && !s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 32 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 33 -> r = 7; failed = 1; net = net | 268443648 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 33 && net & 1 -> r = 31; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 33 && net & 2 -> r = 29; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 33 && net & 8 -> r = 22; assert(s0 && p1 && !s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 33 && net & 32 -> r = 10; failed = 1; net = net | 268460032 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 33 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 33 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 33 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 33 && net & 1048576 -> r = 14; failed = 1; net = net | 805314560 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    od
}

