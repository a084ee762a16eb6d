/* Made from the tables by python -m witness.promela: do not edit.
   One chunk, two writers, one decode rank; the ring is empty, and staged writes carry their notification.
   17 and 17 values of the writers, 52 of the decode rank; 636 rows. */

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
    :: d_step { FLYING(m0) -> LAND(m0, s0, p0, net0, 8) }
    :: d_step { w0 == 0 -> w0 = 1; net0 = net0 | 1 }  /* OPEN/NO_KV  produce  OPEN/ASKING */
    :: d_step { w0 == 0 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/NO_KV  abort  UNNOTED/NONE */
    :: d_step { w0 == 0 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/NO_KV  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 1 -> w0 = 3; net0 = net0 | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 1 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w0 == 1 && net0 & 128 -> w0 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 1 && net0 & 128 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/ASKING  RSP_OPEN late */
    :: d_step { w0 == 1 && net0 & 256 -> w0 = 6 }  /* OPEN/ASKING  EARLY  OPEN/OTHERS */
    :: d_step { w0 == 1 && net0 & 2048 -> w0 = 3; net0 = net0 | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 2 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w0 == 2 && net0 & 32768 && ((net0 & 32) != 32) -> net0 = net0 | 32 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w0 == 2 && net0 & 65536 -> w0 = 4; over0 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 3 && ((net0 & 2) != 2) -> net0 = net0 | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 3 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 3 && net0 & 4096 -> w0 = 7; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w0 == 3 && net0 & 4096 && ((net0 & 2) != 2) -> net0 = net0 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 3 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 4 && net0 & 32768 && ((net0 & 32) != 32) -> net0 = net0 | 32 }  /* FAILED/NONE  ABORT */
    :: d_step { w0 == 5 -> w0 = 8 }  /* OPEN/GATHERING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 5 -> w0 = 8 }  /* OPEN/GATHERING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 5 -> w0 = 9; assert(m0 == STILL); m0 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w0 == 5 -> w0 = 1; net0 = net0 | 1 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING */
    :: d_step { w0 == 5 -> w0 = 8 }  /* OPEN/GATHERING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 5 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/GATHERING  gather failed  UNNOTED/NONE */
    :: d_step { w0 == 5 && net0 & 32768 -> w0 = 8 }  /* OPEN/GATHERING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 6 -> w0 = 3; net0 = net0 | 2 }  /* OPEN/OTHERS  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 6 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/OTHERS  beat */
    :: d_step { w0 == 6 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/OTHERS  abort  UNNOTED/NONE */
    :: d_step { w0 == 6 && net0 & 128 -> w0 = 5 }  /* OPEN/OTHERS  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 6 && net0 & 128 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/OTHERS  RSP_OPEN late */
    :: d_step { w0 == 6 && net0 & 2048 -> w0 = 3; net0 = net0 | 2 }  /* OPEN/OTHERS  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 6 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/OTHERS  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 7 -> w0 = 10 }  /* OPEN/WRITING_PAGES  timer  DRAINING/STOPPING */
    :: d_step { w0 == 7 -> w0 = 10 }  /* OPEN/WRITING_PAGES  beat  DRAINING/STOPPING */
    :: d_step { w0 == 7 -> w0 = 10 }  /* OPEN/WRITING_PAGES  abort  DRAINING/STOPPING */
    :: d_step { w0 == 7 && net0 & 32768 -> w0 = 10 }  /* OPEN/WRITING_PAGES  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 7 && (m0 == LANDED) -> m0 = STILL; w0 = 11; net0 = net0 | 16 }  /* OPEN/WRITING_PAGES  completed  OPEN/TELLING */
    :: d_step { w0 == 7 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/WRITING_PAGES  failed  UNNOTED/NONE */
    :: d_step { w0 == 7 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 10 }  /* OPEN/WRITING_PAGES  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 8 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  gathered  UNNOTED/NONE */
    :: d_step { w0 == 8 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  gathered late  UNNOTED/NONE */
    :: d_step { w0 == 8 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  gather failed  UNNOTED/NONE */
    :: d_step { w0 == 9 -> w0 = 12 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 9 -> w0 = 12 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 9 -> w0 = 12 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 9 && net0 & 16384 -> w0 = 13 }  /* OPEN/WRITING  ACK  OPEN/WRITING */
    :: d_step { w0 == 9 && net0 & 32768 -> w0 = 12 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 9 && (m0 == LANDED) -> m0 = STILL; w0 = 14 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w0 == 9 && (m0 == STAGED || m0 == PAGED || m0 == LANDED) -> m0 = STILL; w0 = 15; net0 = net0 | 2 }  /* OPEN/WRITING  failed  OPEN/ASKING_PAGES */
    :: d_step { w0 == 9 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 12 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 10 && (m0 == LANDED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w0 == 10 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w0 == 10 && (m0 == STAGED_DOUBT || m0 == PAGED_DOUBT) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w0 == 10 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w0 == 11 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w0 == 11 && ((net0 & 16) != 16) -> net0 = net0 | 16 }  /* OPEN/TELLING  beat */
    :: d_step { w0 == 11 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w0 == 11 && net0 & 16384 -> w0 = 16; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 11 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 12 && (m0 == LANDED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w0 == 12 && (m0 == STAGED || m0 == PAGED) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w0 == 12 && (m0 == STAGED_DOUBT || m0 == PAGED_DOUBT) -> m0 = STILL; w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w0 == 12 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w0 == 13 -> w0 = 12 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w0 == 13 -> w0 = 12 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w0 == 13 -> w0 = 12 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w0 == 13 && net0 & 32768 -> w0 = 12 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w0 == 13 && (m0 == LANDED) -> m0 = STILL; w0 = 16; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/WRITING  completed  DONE/NONE */
    :: d_step { w0 == 13 && (m0 == STAGED || m0 == PAGED || m0 == LANDED) -> m0 = STILL; w0 = 16; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/WRITING  failed  DONE/NONE */
    :: d_step { w0 == 13 && (m0 == STAGED || m0 == PAGED) -> m0 = m0 + 2; w0 = 12 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w0 == 14 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w0 == 14 && ((net0 & 8) != 8) -> net0 = net0 | 8 }  /* OPEN/TELLING  beat */
    :: d_step { w0 == 14 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w0 == 14 && net0 & 16384 -> w0 = 16; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 14 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 15 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w0 == 15 && ((net0 & 2) != 2) -> net0 = net0 | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w0 == 15 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w0 == 15 && net0 & 4096 -> w0 = 7; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w0 == 15 && net0 & 4096 && ((net0 & 2) != 2) -> net0 = net0 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 15 && net0 & 16384 -> w0 = 16; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/ASKING_PAGES  ACK  DONE/NONE */
    :: d_step { w0 == 15 && net0 & 32768 -> w0 = 2; assert(!FLYING(m0))  /* S4 */; net0 = net0 | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w0 == 16 && net0 & 32768 && ((net0 & 32) != 32) -> net0 = net0 | 32 }  /* DONE/NONE  ABORT */
    od
}

active proctype writer1() {
    do
    :: d_step { FLYING(m1) -> LAND(m1, s1, p1, net1, 8) }
    :: d_step { w1 == 0 -> w1 = 1; net1 = net1 | 1 }  /* OPEN/NO_KV  produce  OPEN/ASKING */
    :: d_step { w1 == 0 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/NO_KV  abort  UNNOTED/NONE */
    :: d_step { w1 == 0 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/NO_KV  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 1 -> w1 = 3; net1 = net1 | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 1 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING  abort  UNNOTED/NONE */
    :: d_step { w1 == 1 && net1 & 128 -> w1 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 1 && net1 & 128 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/ASKING  RSP_OPEN late */
    :: d_step { w1 == 1 && net1 & 256 -> w1 = 6 }  /* OPEN/ASKING  EARLY  OPEN/OTHERS */
    :: d_step { w1 == 1 && net1 & 2048 -> w1 = 3; net1 = net1 | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 2 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  give up  FAILED/NONE */
    :: d_step { w1 == 2 && net1 & 32768 && ((net1 & 32) != 32) -> net1 = net1 | 32 }  /* UNNOTED/NONE  ABORT */
    :: d_step { w1 == 2 && net1 & 65536 -> w1 = 4; over1 = 1 }  /* UNNOTED/NONE  NOTED  FAILED/NONE */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 3 && ((net1 & 2) != 2) -> net1 = net1 | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 3 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 3 && net1 & 4096 -> w1 = 7; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w1 == 3 && net1 & 4096 && ((net1 & 2) != 2) -> net1 = net1 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 3 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 4 && net1 & 32768 && ((net1 & 32) != 32) -> net1 = net1 | 32 }  /* FAILED/NONE  ABORT */
    :: d_step { w1 == 5 -> w1 = 8 }  /* OPEN/GATHERING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 5 -> w1 = 8 }  /* OPEN/GATHERING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 5 -> w1 = 9; assert(m1 == STILL); m1 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w1 == 5 -> w1 = 1; net1 = net1 | 1 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING */
    :: d_step { w1 == 5 -> w1 = 8 }  /* OPEN/GATHERING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 5 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/GATHERING  gather failed  UNNOTED/NONE */
    :: d_step { w1 == 5 && net1 & 32768 -> w1 = 8 }  /* OPEN/GATHERING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 6 -> w1 = 3; net1 = net1 | 2 }  /* OPEN/OTHERS  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 6 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/OTHERS  beat */
    :: d_step { w1 == 6 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/OTHERS  abort  UNNOTED/NONE */
    :: d_step { w1 == 6 && net1 & 128 -> w1 = 5 }  /* OPEN/OTHERS  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 6 && net1 & 128 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/OTHERS  RSP_OPEN late */
    :: d_step { w1 == 6 && net1 & 2048 -> w1 = 3; net1 = net1 | 2 }  /* OPEN/OTHERS  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 6 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/OTHERS  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 7 -> w1 = 10 }  /* OPEN/WRITING_PAGES  timer  DRAINING/STOPPING */
    :: d_step { w1 == 7 -> w1 = 10 }  /* OPEN/WRITING_PAGES  beat  DRAINING/STOPPING */
    :: d_step { w1 == 7 -> w1 = 10 }  /* OPEN/WRITING_PAGES  abort  DRAINING/STOPPING */
    :: d_step { w1 == 7 && net1 & 32768 -> w1 = 10 }  /* OPEN/WRITING_PAGES  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 7 && (m1 == LANDED) -> m1 = STILL; w1 = 11; net1 = net1 | 16 }  /* OPEN/WRITING_PAGES  completed  OPEN/TELLING */
    :: d_step { w1 == 7 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/WRITING_PAGES  failed  UNNOTED/NONE */
    :: d_step { w1 == 7 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 10 }  /* OPEN/WRITING_PAGES  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 8 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  gathered  UNNOTED/NONE */
    :: d_step { w1 == 8 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  gathered late  UNNOTED/NONE */
    :: d_step { w1 == 8 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  gather failed  UNNOTED/NONE */
    :: d_step { w1 == 9 -> w1 = 12 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 9 -> w1 = 12 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 9 -> w1 = 12 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 9 && net1 & 16384 -> w1 = 13 }  /* OPEN/WRITING  ACK  OPEN/WRITING */
    :: d_step { w1 == 9 && net1 & 32768 -> w1 = 12 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 9 && (m1 == LANDED) -> m1 = STILL; w1 = 14 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w1 == 9 && (m1 == STAGED || m1 == PAGED || m1 == LANDED) -> m1 = STILL; w1 = 15; net1 = net1 | 2 }  /* OPEN/WRITING  failed  OPEN/ASKING_PAGES */
    :: d_step { w1 == 9 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 12 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 10 && (m1 == LANDED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w1 == 10 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w1 == 10 && (m1 == STAGED_DOUBT || m1 == PAGED_DOUBT) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w1 == 10 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w1 == 11 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w1 == 11 && ((net1 & 16) != 16) -> net1 = net1 | 16 }  /* OPEN/TELLING  beat */
    :: d_step { w1 == 11 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w1 == 11 && net1 & 16384 -> w1 = 16; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 11 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 12 && (m1 == LANDED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  completed  UNNOTED/NONE */
    :: d_step { w1 == 12 && (m1 == STAGED || m1 == PAGED) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  failed  UNNOTED/NONE */
    :: d_step { w1 == 12 && (m1 == STAGED_DOUBT || m1 == PAGED_DOUBT) -> m1 = STILL; w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* DRAINING/STOPPING  settled  UNNOTED/NONE */
    :: d_step { w1 == 12 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2 }  /* DRAINING/STOPPING  doubted */
    :: d_step { w1 == 13 -> w1 = 12 }  /* OPEN/WRITING  timer  DRAINING/STOPPING */
    :: d_step { w1 == 13 -> w1 = 12 }  /* OPEN/WRITING  beat  DRAINING/STOPPING */
    :: d_step { w1 == 13 -> w1 = 12 }  /* OPEN/WRITING  abort  DRAINING/STOPPING */
    :: d_step { w1 == 13 && net1 & 32768 -> w1 = 12 }  /* OPEN/WRITING  ABORT  DRAINING/STOPPING */
    :: d_step { w1 == 13 && (m1 == LANDED) -> m1 = STILL; w1 = 16; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/WRITING  completed  DONE/NONE */
    :: d_step { w1 == 13 && (m1 == STAGED || m1 == PAGED || m1 == LANDED) -> m1 = STILL; w1 = 16; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/WRITING  failed  DONE/NONE */
    :: d_step { w1 == 13 && (m1 == STAGED || m1 == PAGED) -> m1 = m1 + 2; w1 = 12 }  /* OPEN/WRITING  doubted  DRAINING/STOPPING */
    :: d_step { w1 == 14 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/TELLING  timer  UNNOTED/NONE */
    :: d_step { w1 == 14 && ((net1 & 8) != 8) -> net1 = net1 | 8 }  /* OPEN/TELLING  beat */
    :: d_step { w1 == 14 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/TELLING  abort  UNNOTED/NONE */
    :: d_step { w1 == 14 && net1 & 16384 -> w1 = 16; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 14 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/TELLING  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 15 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING_PAGES  timer  UNNOTED/NONE */
    :: d_step { w1 == 15 && ((net1 & 2) != 2) -> net1 = net1 | 2 }  /* OPEN/ASKING_PAGES  beat */
    :: d_step { w1 == 15 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING_PAGES  abort  UNNOTED/NONE */
    :: d_step { w1 == 15 && net1 & 4096 -> w1 = 7; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w1 == 15 && net1 & 4096 && ((net1 & 2) != 2) -> net1 = net1 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 15 && net1 & 16384 -> w1 = 16; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/ASKING_PAGES  ACK  DONE/NONE */
    :: d_step { w1 == 15 && net1 & 32768 -> w1 = 2; assert(!FLYING(m1))  /* S4 */; net1 = net1 | 32 }  /* OPEN/ASKING_PAGES  ABORT  UNNOTED/NONE */
    :: d_step { w1 == 16 && net1 & 32768 && ((net1 & 32) != 32) -> net1 = net1 | 32 }  /* DONE/NONE  ABORT */
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
    :: d_step { r == 1 && net0 & 8 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 1 && net0 & 32 -> r = 4; net0 = net0 | 65536 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net1 & 1 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 1 && net1 & 2 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 1 && net1 & 8 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 1 && net1 & 32 -> r = 7; net1 = net1 | 65536 }  /* DRAINING/NONE  DRAINED  DRAINING/NONE */
    :: d_step { r == 1 && net0 & 16 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 1 && net1 & 16 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 2 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 2 && net0 & 1 && ((net0 & 256) != 256) -> net0 = net0 | 256 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 2 && net0 & 2 -> r = 3; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 2 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 2 && net1 & 1 -> r = 8; open = 1; net0 = net0 | 128; net1 = net1 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 2 && net1 & 2 -> r = 9; s1 = 0; open = 1; net0 = net0 | 128; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 2 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 3 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 3 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 3 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 && net1 & 1 -> r = 10; open = 1; net1 = net1 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 3 && net1 & 2 -> r = 11; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 3 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 3 && net0 & 16 -> r = 36; net0 = net0 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES  OPEN/OTHERS */
    :: d_step { r == 4 && net0 & 1 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 4 && net0 & 2 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 4 && net0 & 8 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 4 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 4 && net1 & 1 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 4 && net1 & 2 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 4 && net1 & 8 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 4 && net1 & 32 -> r = 12; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net1 = net1 | 65536 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 4 && net0 & 16 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 4 && net1 & 16 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 5 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 5 && net0 & 1 -> r = 8; open = 1; net0 = net0 | 128; net1 = net1 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 5 && net0 & 2 -> r = 10; s0 = 0; open = 1; net0 = net0 | 4096; net1 = net1 | 128 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 5 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 5 && net1 & 1 && ((net1 & 256) != 256) -> net1 = net1 | 256 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 5 && net1 & 2 -> r = 6; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 5 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 6 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 6 && net0 & 1 -> r = 9; open = 1; net0 = net0 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 6 && net0 & 2 -> r = 11; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 6 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 6 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 6 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 6 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 6 && net1 & 16 -> r = 37; net1 = net1 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES  OPEN/OTHERS */
    :: d_step { r == 7 && net0 & 1 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 7 && net0 & 2 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 7 && net0 & 8 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 7 && net0 & 32 -> r = 12; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1; net0 = net0 | 65536 }  /* DRAINING/NONE  DRAINED  FAILED/NONE */
    :: d_step { r == 7 && net1 & 1 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  REQ */
    :: d_step { r == 7 && net1 & 2 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  PAGES_REQ */
    :: d_step { r == 7 && net1 & 8 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  NOTE_STAGED */
    :: d_step { r == 7 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DRAINING/NONE  DRAINED */
    :: d_step { r == 7 && net0 & 16 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 7 && net1 & 16 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* DRAINING/NONE  NOTE_PAGES */
    :: d_step { r == 8 -> r = 13; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 8 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 8 && net0 & 2 -> r = 10; s0 = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 8 && net0 & 8 -> r = 14; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 8 && net0 & 32 -> r = 15; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 8 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 8 && net1 & 2 -> r = 9; s1 = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 8 && net1 & 8 -> r = 16; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 8 && net1 & 32 -> r = 17; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 9 -> r = 13; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 9 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 9 && net0 & 2 -> r = 11; s0 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 9 && net0 & 8 -> r = 18; assert(s0 && !s1)  /* S3 */; open = 0; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 9 && net0 & 32 -> r = 15; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 9 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 9 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 9 && net1 & 32 -> r = 17; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 9 && net1 & 16 -> r = 38; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 10 -> r = 13; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 10 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 10 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 10 && net0 & 32 -> r = 15; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 10 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 10 && net1 & 2 -> r = 11; s1 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 10 && net1 & 8 -> r = 19; assert(!s0 && s1)  /* S3 */; open = 0; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 10 && net1 & 32 -> r = 17; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 10 && net0 & 16 -> r = 39; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 11 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 11 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 11 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 11 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 11 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 11 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 11 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 11 && net0 & 16 -> r = 40; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 11 && net1 & 16 -> r = 41; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 12 && net0 & 1 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* FAILED/NONE  REQ */
    :: d_step { r == 12 && net0 & 2 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 12 && net0 & 8 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* FAILED/NONE  NOTE_STAGED */
    :: d_step { r == 12 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 12 && net1 & 1 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* FAILED/NONE  REQ */
    :: d_step { r == 12 && net1 & 2 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* FAILED/NONE  PAGES_REQ */
    :: d_step { r == 12 && net1 & 8 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* FAILED/NONE  NOTE_STAGED */
    :: d_step { r == 12 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* FAILED/NONE  DRAINED */
    :: d_step { r == 12 && net0 & 16 && ((net0 & 32768) != 32768) -> net0 = net0 | 32768 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 12 && net1 & 16 && ((net1 & 32768) != 32768) -> net1 = net1 | 32768 }  /* FAILED/NONE  NOTE_PAGES */
    :: d_step { r == 13 && net0 & 32 -> r = 15; net0 = net0 | 65536 }  /* DRAINING/QUARANTINED  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 13 && net1 & 32 -> r = 17; net1 = net1 | 65536 }  /* DRAINING/QUARANTINED  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 14 -> r = 13; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 14 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 14 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 14 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 14 && net0 & 32 -> r = 15; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 14 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 14 && net1 & 2 -> r = 18; s1 = 0; assert(s0 && !s1)  /* S3 */; open = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/SCATTERING */
    :: d_step { r == 14 && net1 & 8 -> r = 20; assert(s0 && s1)  /* S3 */; open = 0; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 14 && net1 & 32 -> r = 17; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 14 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 15 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DRAINING/QUARANTINED  DRAINED */
    :: d_step { r == 15 && net1 & 32 -> r = 12; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; open = 0; gone = 1; over2 = 1; net1 = net1 | 65536 }  /* DRAINING/QUARANTINED  DRAINED  FAILED/NONE */
    :: d_step { r == 16 -> r = 13; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 16 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 16 && net0 & 2 -> r = 19; s0 = 0; assert(!s0 && s1)  /* S3 */; open = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/SCATTERING */
    :: d_step { r == 16 && net0 & 8 -> r = 20; assert(s0 && s1)  /* S3 */; open = 0; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 16 && net0 & 32 -> r = 15; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 16 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 16 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 16 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 16 && net1 & 32 -> r = 17; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 16 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 17 && net0 & 32 -> r = 12; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; open = 0; gone = 1; over2 = 1; net0 = net0 | 65536 }  /* DRAINING/QUARANTINED  DRAINED  FAILED/NONE */
    :: d_step { r == 17 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DRAINING/QUARANTINED  DRAINED */
    :: d_step { r == 18 -> r = 21; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  abort  DRAINING/SCATTERING */
    :: d_step { r == 18 -> r = 22; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* OPEN/SCATTERING  scattered  OPEN/FILLING_PAGES */
    :: d_step { r == 18 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 18 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 18 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 18 && net0 & 32 -> r = 23; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 18 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 18 && net1 & 32 -> r = 24; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 18 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 18 && net1 & 16 -> r = 42; net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 19 -> r = 25; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  abort  DRAINING/SCATTERING */
    :: d_step { r == 19 -> r = 26; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* OPEN/SCATTERING  scattered  OPEN/FILLING_PAGES */
    :: d_step { r == 19 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 19 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 19 && net0 & 32 -> r = 27; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 19 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 19 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 19 && net1 & 32 -> r = 28; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 19 && net0 & 16 -> r = 43; net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 19 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 20 -> r = 29; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  abort  DRAINING/SCATTERING */
    :: d_step { r == 20 -> r = 30; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 20 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 20 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 20 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 20 && net0 & 32 -> r = 31; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 20 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 20 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 20 && net1 & 32 -> r = 32; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 20 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 20 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 21 -> r = 1; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 21 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 21 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 21 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 21 && net0 & 32 -> r = 23; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 21 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 21 && net1 & 32 -> r = 24; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 21 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 21 && net1 & 16 -> r = 44; net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES  DRAINING/SCATTERING */
    :: d_step { r == 22 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 22 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 22 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 22 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 22 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 22 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 22 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 22 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 22 && net1 & 16 -> r = 30; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 23 -> r = 4; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 23 -> r = 4; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 23 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 23 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 23 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 23 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 23 && net1 & 32 -> r = 33; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 23 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 23 && net1 & 16 -> r = 45; net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES  DRAINING/SCATTERING */
    :: d_step { r == 24 -> r = 7; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 24 -> r = 7; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 24 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 24 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 24 && net0 & 32 -> r = 33; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 24 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 24 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 24 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 24 && net1 & 16 -> r = 46; net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES  DRAINING/SCATTERING */
    :: d_step { r == 25 -> r = 1; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 25 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 25 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 25 && net0 & 32 -> r = 27; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 25 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 25 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 25 && net1 & 32 -> r = 28; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 25 && net0 & 16 -> r = 47; net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES  DRAINING/SCATTERING */
    :: d_step { r == 25 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 26 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 26 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 26 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 26 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 26 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 26 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 26 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 26 && net0 & 16 -> r = 30; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 26 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 27 -> r = 4; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 27 -> r = 4; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 27 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 27 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 27 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 27 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 27 && net1 & 32 -> r = 34; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 27 && net0 & 16 -> r = 48; net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES  DRAINING/SCATTERING */
    :: d_step { r == 27 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 28 -> r = 7; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 28 -> r = 7; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 28 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 28 && net0 & 32 -> r = 34; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 28 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 28 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 28 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 28 && net0 & 16 -> r = 49; net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES  DRAINING/SCATTERING */
    :: d_step { r == 28 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 29 -> r = 1; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 29 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 29 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 29 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 29 && net0 & 32 -> r = 31; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 29 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 29 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 29 && net1 & 32 -> r = 32; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 29 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 29 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 30 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  PAGES_REQ */
    :: d_step { r == 30 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 30 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 30 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  PAGES_REQ */
    :: d_step { r == 30 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 30 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DONE/NONE  DRAINED */
    :: d_step { r == 30 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 30 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 31 -> r = 4; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 31 -> r = 4; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 31 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 31 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 31 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 31 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 31 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 31 && net1 & 32 -> r = 35; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 31 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 31 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 32 -> r = 7; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 32 -> r = 7; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 32 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 32 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 32 && net0 & 32 -> r = 35; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 32 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 32 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 32 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 32 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 32 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 33 -> r = 12; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scattered  FAILED/NONE */
    :: d_step { r == 33 -> r = 12; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scatter failed  FAILED/NONE */
    :: d_step { r == 33 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 33 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 33 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 33 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 33 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 33 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 33 && net1 & 16 -> r = 50; net1 = net1 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES  SETTLING/SCATTERING */
    :: d_step { r == 34 -> r = 12; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scattered  FAILED/NONE */
    :: d_step { r == 34 -> r = 12; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scatter failed  FAILED/NONE */
    :: d_step { r == 34 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 34 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 34 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 34 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 34 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 34 && net0 & 16 -> r = 51; net0 = net0 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES  SETTLING/SCATTERING */
    :: d_step { r == 34 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 35 -> r = 12; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scattered  FAILED/NONE */
    :: d_step { r == 35 -> r = 12; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scatter failed  FAILED/NONE */
    :: d_step { r == 35 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 35 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 35 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 35 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 35 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 35 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 35 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 35 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 36 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 36 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 36 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 36 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES */
    :: d_step { r == 36 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 36 && net1 & 1 -> r = 39; open = 1; net1 = net1 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 36 && net1 & 2 -> r = 40; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 36 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 37 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/OTHERS  abort  DRAINING/NONE */
    :: d_step { r == 37 && net0 & 1 -> r = 38; open = 1; net0 = net0 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 37 && net0 & 2 -> r = 41; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 37 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 37 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 37 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 37 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES */
    :: d_step { r == 37 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/OTHERS  DRAINED  DRAINING/NONE */
    :: d_step { r == 38 -> r = 13; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 38 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 38 && net0 & 2 -> r = 41; s0 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 38 && net0 & 8 -> r = 42; assert(s0 && !s1)  /* S3 */; open = 0; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 38 && net0 & 32 -> r = 15; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 38 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 38 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 38 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 38 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 38 && net1 & 32 -> r = 17; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 39 -> r = 13; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING  abort  DRAINING/QUARANTINED */
    :: d_step { r == 39 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 39 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 39 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 39 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 39 && net0 & 32 -> r = 15; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 39 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 39 && net1 & 2 -> r = 40; s1 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 39 && net1 & 8 -> r = 43; assert(!s0 && s1)  /* S3 */; open = 0; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 39 && net1 & 32 -> r = 17; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING  DRAINED  DRAINING/QUARANTINED */
    :: d_step { r == 40 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 40 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 40 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 40 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 40 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 40 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 40 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 40 && net1 & 16 -> r = 30; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 40 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 41 -> r = 1; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  abort  DRAINING/NONE */
    :: d_step { r == 41 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 41 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 41 && net0 & 16 -> r = 30; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 41 && net0 & 32 -> r = 4; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 41 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 41 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 41 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 41 && net1 & 32 -> r = 7; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/FILLING_PAGES  DRAINED  DRAINING/NONE */
    :: d_step { r == 42 -> r = 44; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  abort  DRAINING/SCATTERING */
    :: d_step { r == 42 -> r = 30; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 42 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 42 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 42 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 42 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 42 && net0 & 32 -> r = 45; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 42 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 42 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 42 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 42 && net1 & 32 -> r = 46; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 43 -> r = 47; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  abort  DRAINING/SCATTERING */
    :: d_step { r == 43 -> r = 30; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 43 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; failed = 1; net0 = net0 | 32768; net1 = net1 | 32768 }  /* OPEN/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 43 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 43 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 43 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 43 && net0 & 32 -> r = 48; failed = 1; net0 = net0 | 98304; net1 = net1 | 32768 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 43 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 43 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 43 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 43 && net1 & 32 -> r = 49; failed = 1; net0 = net0 | 32768; net1 = net1 | 98304 }  /* OPEN/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 44 -> r = 1; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 44 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 44 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 44 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 44 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 44 && net0 & 32 -> r = 45; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 44 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 44 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 44 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 44 && net1 & 32 -> r = 46; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 45 -> r = 4; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 45 -> r = 4; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 45 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 45 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 45 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 45 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 45 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 45 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 45 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 45 && net1 & 32 -> r = 50; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 46 -> r = 7; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 46 -> r = 7; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 46 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 46 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 46 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 46 && net0 & 32 -> r = 50; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 46 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 46 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 46 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 46 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 47 -> r = 1; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 47 -> r = 1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 47 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 47 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 47 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 47 && net0 & 32 -> r = 48; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 47 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 47 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 47 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 47 && net1 & 32 -> r = 49; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  DRAINING/SCATTERING */
    :: d_step { r == 48 -> r = 4; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 48 -> r = 4; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 48 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 48 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 48 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 48 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 48 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 48 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 48 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 48 && net1 & 32 -> r = 51; net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 49 -> r = 7; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scattered  DRAINING/NONE */
    :: d_step { r == 49 -> r = 7; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* DRAINING/SCATTERING  scatter failed  DRAINING/NONE */
    :: d_step { r == 49 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 49 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 49 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 49 && net0 & 32 -> r = 51; net0 = net0 | 65536 }  /* DRAINING/SCATTERING  DRAINED  SETTLING/SCATTERING */
    :: d_step { r == 49 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  PAGES_REQ */
    :: d_step { r == 49 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 49 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DRAINING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 49 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* DRAINING/SCATTERING  DRAINED */
    :: d_step { r == 50 -> r = 12; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scattered  FAILED/NONE */
    :: d_step { r == 50 -> r = 12; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scatter failed  FAILED/NONE */
    :: d_step { r == 50 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 50 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 50 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 50 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 50 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 50 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 50 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 50 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 51 -> r = 12; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scattered  FAILED/NONE */
    :: d_step { r == 51 -> r = 12; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; gone = 1; over2 = 1 }  /* SETTLING/SCATTERING  scatter failed  FAILED/NONE */
    :: d_step { r == 51 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 51 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 51 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 51 && net0 & 32 && ((net0 & 65536) != 65536) -> net0 = net0 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    :: d_step { r == 51 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  PAGES_REQ */
    :: d_step { r == 51 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  NOTE_STAGED */
    :: d_step { r == 51 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* SETTLING/SCATTERING  NOTE_PAGES */
    :: d_step { r == 51 && net1 & 32 && ((net1 & 65536) != 65536) -> net1 = net1 | 65536 }  /* SETTLING/SCATTERING  DRAINED */
    od
}

