/* Made from the tables by python -m witness.promela: do not edit.
   One chunk, two writers, one decode rank; the ring is small.
   11 and 11 values of the writers, 9 of the decode rank; 170 rows. */

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
    :: d_step { w0 == 0 && net & 512 -> w0 = 5; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 0 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 1 -> w0 = 3; net = net | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 1 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w0 == 1 && net & 512 -> w0 = 3; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 2 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w0 == 2 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w0 == 2 && net & 16384 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 3 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 3 && net & 1024 -> w0 = 6; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w0 == 3 && net & 1024 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 3 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 4 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* FAILED/NONE  ABORT */
    :: d_step { w0 == 5 -> w0 = 3 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 3 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 5 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 5 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 5 && net & 1024 -> w0 = 7 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 5 && net & 1024 -> w0 = 7 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 5 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 6 -> w0 = 8 }  /* OPEN/SLICING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 6 -> w0 = 8 }  /* OPEN/SLICING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 6 -> w0 = 8 }  /* OPEN/SLICING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 6 && net & 8192 -> w0 = 8 }  /* OPEN/SLICING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 6 && (m0 == LANDED) -> m0 = STILL; w0 = 9; net = net | 16 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w0 == 6 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/SLICING  failed  UNNOTED/NONE */
    :: d_step { w0 == 6 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 8 }  /* OPEN/SLICING  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 7 -> w0 = 6; assert(m0 == STILL); m0 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w0 == 7 -> w0 = 3; net = net | 2 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV_FOR_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 7 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/NO_KV_FOR_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 8 && (m0 == LANDED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w0 == 8 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w0 == 8 && (m0 == STAGED_DOUBT || m0 == PAGED_DOUBT) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w0 == 8 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w0 == 9 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w0 == 9 && (net & 16) != 16 -> net = net | 16 }  /* OPEN/TELLING  beat */
    :: d_step { w0 == 9 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w0 == 9 && net & 8192 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net = net | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 9 && net & 4096 -> w0 = 10; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 10 && net & 8192 && (net & 32) != 32 -> net = net | 32 }  /* DONE/NONE  ABORT */
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
    :: d_step { w1 == 0 && net & 16777216 -> w1 = 5; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 0 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 1 -> w1 = 3; net = net | 65536 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 1 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w1 == 1 && net & 16777216 -> w1 = 3; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 2 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w1 == 2 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w1 == 2 && net & 536870912 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 3 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 3 && net & 33554432 -> w1 = 6; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w1 == 3 && net & 33554432 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 3 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 4 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* FAILED/NONE  ABORT */
    :: d_step { w1 == 5 -> w1 = 3 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 3 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 5 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 5 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 5 && net & 33554432 -> w1 = 7 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 5 && net & 33554432 -> w1 = 7 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 5 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 6 -> w1 = 8 }  /* OPEN/SLICING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 6 -> w1 = 8 }  /* OPEN/SLICING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 6 -> w1 = 8 }  /* OPEN/SLICING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 6 && net & 268435456 -> w1 = 8 }  /* OPEN/SLICING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 6 && (m1 == LANDED) -> m1 = STILL; w1 = 9; net = net | 524288 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w1 == 6 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/SLICING  failed  UNNOTED/NONE */
    :: d_step { w1 == 6 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 8 }  /* OPEN/SLICING  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 7 -> w1 = 6; assert(m1 == STILL); m1 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w1 == 7 -> w1 = 3; net = net | 65536 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV_FOR_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 7 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/NO_KV_FOR_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 8 && (m1 == LANDED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w1 == 8 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w1 == 8 && (m1 == STAGED_DOUBT || m1 == PAGED_DOUBT) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w1 == 8 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w1 == 9 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w1 == 9 && (net & 524288) != 524288 -> net = net | 524288 }  /* OPEN/TELLING  beat */
    :: d_step { w1 == 9 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w1 == 9 && net & 268435456 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net = net | 1048576 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 9 && net & 134217728 -> w1 = 10; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 10 && net & 268435456 && (net & 1048576) != 1048576 -> net = net | 1048576 }  /* DONE/NONE  ABORT */
    od
}

active proctype reader() {
    do
    :: d_step { over0 && over1 && over2 -> skip }
    :: d_step { r == 0 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/NONE  abort  DRAINING/NONE */
    :: d_step { r == 0 && net & 1 -> r = 2; net = net | 512 }  /* OPEN/NONE  REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 0 && net & 2 -> r = 2; net = net | 1024 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 0 && net & 32 -> r = 3; failed = 1; net = net | 268460032 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 0 && net & 32768 -> r = 2; net = net | 16777216 }  /* OPEN/NONE  REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 0 && net & 65536 -> r = 2; net = net | 33554432 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 0 && net & 1048576 -> r = 4; failed = 1; net = net | 805314560 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 1 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 1 && net & 32 -> r = 3; net = net | 16384 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 1 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 1 && net & 1048576 -> r = 4; net = net | 536870912 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 1 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 2 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 2 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 2 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 2 && net & 32 -> r = 3; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 2 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 2 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 2 && net & 1048576 -> r = 4; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 2 && net & 16 -> r = 6; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 2 && net & 524288 -> r = 7; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 3 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 3 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 3 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 3 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 3 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 3 && net & 1048576 -> r = 5; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net = net | 536870912 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 3 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 3 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 4 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 4 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 4 && net & 32 -> r = 5; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net = net | 16384 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 4 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 4 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 4 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 4 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 4 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 5 && net & 1 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  REQ */
    :: d_step { r == 5 && net & 2 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 5 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 5 && net & 32768 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  REQ */
    :: d_step { r == 5 && net & 65536 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 5 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 5 && net & 16 && (net & 8192) != 8192 -> net = net | 8192 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 5 && net & 524288 && (net & 268435456) != 268435456 -> net = net | 268435456 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 6 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 6 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 6 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 6 && net & 32 -> r = 3; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 6 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 6 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 6 && net & 524288 -> r = 8; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 6 && net & 1048576 -> r = 4; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 7 -> r = 1; failed = 1; net = net | 268443648 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 7 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 7 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 7 && net & 16 -> r = 8; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 7 && net & 32 -> r = 3; failed = 1; net = net | 268460032 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 7 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 7 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 7 && net & 1048576 -> r = 4; failed = 1; net = net | 805314560 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 8 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 8 && net & 32 && (net & 16384) != 16384 -> net = net | 16384 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 8 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 8 && net & 1048576 && (net & 536870912) != 536870912 -> net = net | 536870912 }  /* DONE/NONE  DRAINED */
    od
}

