/* Made from the tables by python -m witness.promela: do not edit.
   One chunk, two writers, one decode rank; the ring is small.
   10 and 10 values of the writers, 15 of the decode rank; 198 rows. */

#define STILL 0
#define STAGED 1
#define PAGED 2
#define STAGED_DOUBT 3
#define PAGED_DOUBT 4
#define LANDED 5
#define FLYING(m) ((m) != STILL && (m) != LANDED)
#define TO_RING(m) ((m) == STAGED || (m) == STAGED_DOUBT)

short w0 = 0, w1 = 0, r = 0;  /* the ranks */
int net0 = 0, net1 = 0;         /* messages that were ever sent to or by each writer */
byte m0, m1;                   /* the writers' writes */
bit s0, s1, p0, p1;            /* bytes in the region, in the pages */
bit open, failed, gone;        /* the region may be written; the room has failed; its pages were given back */
bit over0, over1, over2;       /* the ranks' rooms are over */

#define LAND(m, s, p, net, said) \
    assert(!(s || p));                          /* S2 */ \
    if \
    :: TO_RING(m) -> assert(open); s = 1; net = net | said  /* S1 */ \
    :: else -> assert(!gone); p = 1             /* S4 */ \
    fi; \
    m = LANDED

active proctype writer0() {
    do
    :: d_step { FLYING(m0) -> LAND(m0, s0, p0, net0, 0) }
    :: d_step { w0 == 0 -> w0 = 1; net0 = net0 | 1 }  /* OPEN/NO_KV  produce  OPEN/ASKING */
    :: d_step { w0 == 0 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/NO_KV  abort  UNNOTED/NONE */
    :: d_step { w0 == 0 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/NO_KV  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 1 -> w0 = 3; net0 = net0 | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 1 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w0 == 1 && net0 & 256 -> w0 = 5 }  /* OPEN/ASKING  EARLY  OPEN/OTHERS */
    :: d_step { w0 == 1 && net0 & 2048 -> w0 = 3; net0 = net0 | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 2 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w0 == 2 && net0 & 32768 && ((net0 & 32) != 32) -> net0 = net0 | 32 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w0 == 2 && net0 & 65536 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 3 && ((net0 & 2) != 2) -> net0 = net0 | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 3 && net0 & 4096 -> w0 = 6; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w0 == 3 && net0 & 4096 && ((net0 & 2) != 2) -> net0 = net0 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 3 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 4 && net0 & 32768 && ((net0 & 32) != 32) -> net0 = net0 | 32 }  /* FAILED/NONE  ABORT */
    :: d_step { w0 == 5 -> w0 = 3; net0 = net0 | 2 }  /* OPEN/OTHERS  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/OTHERS  beat */
    :: d_step { w0 == 5 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/OTHERS  abort  UNNOTED/NONE */
    :: d_step { w0 == 5 && net0 & 2048 -> w0 = 3; net0 = net0 | 2 }  /* OPEN/OTHERS  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/OTHERS  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 6 -> w0 = 7 }  /* OPEN/WRITING_PAGES  timer  DRAINING/STOPPING */
    :: d_step { w0 == 6 -> w0 = 7 }  /* OPEN/WRITING_PAGES  beat  DRAINING/STOPPING */
    :: d_step { w0 == 6 -> w0 = 7 }  /* OPEN/WRITING_PAGES  abort  DRAINING/STOPPING */
    :: d_step { w0 == 6 && net0 & 32768 -> w0 = 7 }  /* OPEN/WRITING_PAGES  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 6 && (m0 == LANDED) -> m0 = STILL; w0 = 8; net0 = net0 | 16 }  /* OPEN/WRITING_PAGES  completed  OPEN/TELLING */
    :: d_step { w0 == 6 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/WRITING_PAGES  failed  UNNOTED/NONE */
    :: d_step { w0 == 6 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 7 }  /* OPEN/WRITING_PAGES  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 7 && (m0 == LANDED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w0 == 7 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w0 == 7 && (m0 == STAGED_DOUBT || m0 == PAGED_DOUBT) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w0 == 7 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w0 == 8 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w0 == 8 && ((net0 & 16) != 16) -> net0 = net0 | 16 }  /* OPEN/TELLING  beat */
    :: d_step { w0 == 8 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w0 == 8 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 8 && net0 & 16384 -> w0 = 9; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 9 && net0 & 32768 && ((net0 & 32) != 32) -> net0 = net0 | 32 }  /* DONE/NONE  ABORT */
    od
}

active proctype writer1() {
    do
    :: d_step { FLYING(m1) -> LAND(m1, s1, p1, net1, 0) }
    :: d_step { w1 == 0 -> w1 = 1; net1 = net1 | 1 }  /* OPEN/NO_KV  produce  OPEN/ASKING */
    :: d_step { w1 == 0 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/NO_KV  abort  UNNOTED/NONE */
    :: d_step { w1 == 0 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/NO_KV  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 1 -> w1 = 3; net1 = net1 | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 1 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w1 == 1 && net1 & 256 -> w1 = 5 }  /* OPEN/ASKING  EARLY  OPEN/OTHERS */
    :: d_step { w1 == 1 && net1 & 2048 -> w1 = 3; net1 = net1 | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 2 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w1 == 2 && net1 & 32768 && ((net1 & 32) != 32) -> net1 = net1 | 32 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w1 == 2 && net1 & 65536 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 3 && ((net1 & 2) != 2) -> net1 = net1 | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 3 && net1 & 4096 -> w1 = 6; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w1 == 3 && net1 & 4096 && ((net1 & 2) != 2) -> net1 = net1 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 3 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 4 && net1 & 32768 && ((net1 & 32) != 32) -> net1 = net1 | 32 }  /* FAILED/NONE  ABORT */
    :: d_step { w1 == 5 -> w1 = 3; net1 = net1 | 2 }  /* OPEN/OTHERS  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/OTHERS  beat */
    :: d_step { w1 == 5 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/OTHERS  abort  UNNOTED/NONE */
    :: d_step { w1 == 5 && net1 & 2048 -> w1 = 3; net1 = net1 | 2 }  /* OPEN/OTHERS  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/OTHERS  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 6 -> w1 = 7 }  /* OPEN/WRITING_PAGES  timer  DRAINING/STOPPING */
    :: d_step { w1 == 6 -> w1 = 7 }  /* OPEN/WRITING_PAGES  beat  DRAINING/STOPPING */
    :: d_step { w1 == 6 -> w1 = 7 }  /* OPEN/WRITING_PAGES  abort  DRAINING/STOPPING */
    :: d_step { w1 == 6 && net1 & 32768 -> w1 = 7 }  /* OPEN/WRITING_PAGES  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 6 && (m1 == LANDED) -> m1 = STILL; w1 = 8; net1 = net1 | 16 }  /* OPEN/WRITING_PAGES  completed  OPEN/TELLING */
    :: d_step { w1 == 6 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/WRITING_PAGES  failed  UNNOTED/NONE */
    :: d_step { w1 == 6 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 7 }  /* OPEN/WRITING_PAGES  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 7 && (m1 == LANDED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w1 == 7 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w1 == 7 && (m1 == STAGED_DOUBT || m1 == PAGED_DOUBT) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w1 == 7 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w1 == 8 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w1 == 8 && ((net1 & 16) != 16) -> net1 = net1 | 16 }  /* OPEN/TELLING  beat */
    :: d_step { w1 == 8 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w1 == 8 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 8 && net1 & 16384 -> w1 = 9; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 9 && net1 & 32768 && ((net1 & 32) != 32) -> net1 = net1 | 32 }  /* DONE/NONE  ABORT */
    od
}

active proctype reader() {
    do
    :: d_step { over0 && over1 && over2 -> skip }
    :: d_step { r == 0 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/NONE  abort  DRAINING/NONE */
    :: d_step { r == 0 && net0 & 1 -> r = 2; net0 = net0 | 256 }  /* OPEN/NONE  REQ  OPEN/OTHERS */
    :: d_step { r == 0 && net0 & 2 -> r = 3; s0 = 0; net0 = net0 | 4096 }  /* OPEN/NONE  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 0 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 0 && net1 & 1 -> r = 5; net1 = net1 | 256 }  /* OPEN/NONE  REQ  OPEN/OTHERS */
    :: d_step { r == 0 && net1 & 2 -> r = 6; s1 = 0; net1 = net1 | 4096 }  /* OPEN/NONE  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 0 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net0 & 1 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 1 && net0 & 2 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 1 && net0 & 32 -> r = 4; net0 = net0 | 65536 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net1 & 1 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 1 && net1 & 2 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 1 && net1 & 32 -> r = 7; net1 = net1 | 65536 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net0 & 16 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 1 && net1 & 16 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 2 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 2 && net0 & 1 && ((net0 & 256) != 256) -> net0 = net0 | 256 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 2 && net0 & 2 -> r = 3; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 2 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 2 && net1 & 1 -> r = 8; s0 = 0; s1 = 0; net0 = net0 | 2048; net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 2 && net1 & 2 -> r = 8; s0 = 0; s1 = 0; net0 = net0 | 2048; net1 = net1 | 6144 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 2 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 3 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 3 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 3 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 && net1 & 1 -> r = 8; s1 = 0; net0 = net0 | 2048; net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 3 && net1 & 2 -> r = 8; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 3 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 && net0 & 16 -> r = 10; net0 = net0 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES  OPEN/OTHERS */
    :: d_step { r == 4 && net0 & 1 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 4 && net0 & 2 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 4 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 4 && net1 & 1 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 4 && net1 & 2 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 4 && net1 & 32 -> r = 9; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net1 = net1 | 65536 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 4 && net0 & 16 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 4 && net1 & 16 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 5 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 5 && net0 & 1 -> r = 8; s0 = 0; s1 = 0; net0 = net0 | 2048; net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 5 && net0 & 2 -> r = 8; s0 = 0; s1 = 0; net0 = net0 | 6144; net1 = net1 | 2048 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 5 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 5 && net1 & 1 && ((net1 & 256) != 256) -> net1 = net1 | 256 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 5 && net1 & 2 -> r = 6; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 5 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 6 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 6 && net0 & 1 -> r = 8; s0 = 0; net0 = net0 | 2048; net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 6 && net0 & 2 -> r = 8; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 6 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 6 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 6 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 6 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 6 && net1 & 16 -> r = 11; net1 = net1 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES  OPEN/OTHERS */
    :: d_step { r == 7 && net0 & 1 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 7 && net0 & 2 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 7 && net0 & 32 -> r = 9; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net0 = net0 | 65536 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 7 && net1 & 1 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 7 && net1 & 2 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 7 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 7 && net0 & 16 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 7 && net1 & 16 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 8 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 8 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 8 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 8 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 8 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 8 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 8 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 8 && net0 & 16 -> r = 12; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 8 && net1 & 16 -> r = 13; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 9 && net0 & 1 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* FAILED/NONE  REQ */
    :: d_step { r == 9 && net0 & 2 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 9 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 9 && net1 & 1 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* FAILED/NONE  REQ */
    :: d_step { r == 9 && net1 & 2 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 9 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 9 && net0 & 16 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 9 && net1 & 16 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 10 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 10 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 10 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 10 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES */
    :: d_step { r == 10 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 10 && net1 & 1 -> r = 12; s1 = 0; net0 = net0 | 2048; net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 10 && net1 & 2 -> r = 12; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 10 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 11 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 11 && net0 & 1 -> r = 13; s0 = 0; net0 = net0 | 2048; net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 11 && net0 & 2 -> r = 13; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 11 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 11 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 11 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 11 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES */
    :: d_step { r == 11 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 12 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 12 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 12 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 12 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 12 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 12 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 12 && net1 & 16 -> r = 14; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 12 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 13 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 13 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 13 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 13 && net0 & 16 -> r = 14; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 13 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 13 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 13 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 13 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 14 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  PAGES_REQ */
    :: d_step { r == 14 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 14 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 14 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  PAGES_REQ */
    :: d_step { r == 14 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 14 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DONE/NONE  DRAINED */
    od
}

