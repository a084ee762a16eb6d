/* Made from the tables by python -m witness.promela: do not edit.
   One chunk, two writers, one decode rank; the ring is ahead, and nothing fails.
   18 and 18 values of the writers, 50 of the decode rank; 553 rows. */

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
    :: d_step { w0 == 0 && net0 & 128 -> w0 = 3 }  /* OPEN/NO_KV  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w0 == 0 && net0 & 128 -> w0 = 3 }  /* OPEN/NO_KV  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w0 == 0 && net0 & 512 -> w0 = 3 }  /* OPEN/NO_KV  EARLY_MARK  OPEN/NO_KV */
    :: d_step { w0 == 0 && net0 & 512 -> w0 = 3 }  /* OPEN/NO_KV  EARLY_MARK late  OPEN/NO_KV */
    :: d_step { w0 == 0 && net0 & 8192 -> w0 = 3 }  /* OPEN/NO_KV  MARK  OPEN/NO_KV */
    :: d_step { w0 == 0 && net0 & 8192 -> w0 = 3 }  /* OPEN/NO_KV  MARK late  OPEN/NO_KV */
    :: d_step { w0 == 1 -> w0 = 2; net0 = net0 | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 1 && net0 & 64 -> w0 = 4 }  /* OPEN/ASKING  RSP_WAIT  OPEN/WAITING */
    :: d_step { w0 == 1 && net0 & 64 -> w0 = 4 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/WAITING */
    :: d_step { w0 == 1 && net0 & 128 -> w0 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 1 && net0 & 128 -> w0 = 6; net0 = net0 | 1 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING */
    :: d_step { w0 == 1 && net0 & 256 -> w0 = 7 }  /* OPEN/ASKING  EARLY  OPEN/OTHERS */
    :: d_step { w0 == 1 && net0 & 512 -> w0 = 8 }  /* OPEN/ASKING  EARLY_MARK  OPEN/OTHERS */
    :: d_step { w0 == 1 && net0 & 512 -> w0 = 8 }  /* OPEN/ASKING  EARLY_MARK late  OPEN/OTHERS */
    :: d_step { w0 == 1 && net0 & 2048 -> w0 = 2; net0 = net0 | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net0 & 8192 -> w0 = 6 }  /* OPEN/ASKING  MARK  OPEN/ASKING */
    :: d_step { w0 == 1 && net0 & 8192 -> w0 = 6 }  /* OPEN/ASKING  MARK late  OPEN/ASKING */
    :: d_step { w0 == 2 && net0 & 128 -> w0 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w0 == 2 && net0 & 128 -> w0 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 2 && net0 & 512 -> w0 = 9 }  /* OPEN/ASKING_PAGES  EARLY_MARK  OPEN/ASKING_PAGES */
    :: d_step { w0 == 2 && net0 & 512 -> w0 = 9 }  /* OPEN/ASKING_PAGES  EARLY_MARK late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 2 && net0 & 4096 -> w0 = 10; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w0 == 2 && net0 & 4096 && ((net0 & 2) != 2) -> net0 = net0 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 2 && net0 & 8192 -> w0 = 9 }  /* OPEN/ASKING_PAGES  MARK  OPEN/ASKING_PAGES */
    :: d_step { w0 == 2 && net0 & 8192 -> w0 = 9 }  /* OPEN/ASKING_PAGES  MARK late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 3 -> w0 = 6; net0 = net0 | 1 }  /* OPEN/NO_KV  produce  OPEN/ASKING */
    :: d_step { w0 == 4 -> w0 = 2; net0 = net0 | 2 }  /* OPEN/WAITING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 4 && ((net0 & 4) != 4) -> net0 = net0 | 4 }  /* OPEN/WAITING  beat */
    :: d_step { w0 == 4 && net0 & 128 -> w0 = 5 }  /* OPEN/WAITING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 4 && net0 & 128 -> w0 = 6; net0 = net0 | 1 }  /* OPEN/WAITING  RSP_OPEN late  OPEN/ASKING */
    :: d_step { w0 == 4 && net0 & 512 -> w0 = 5 }  /* OPEN/WAITING  EARLY_MARK  OPEN/GATHERING */
    :: d_step { w0 == 4 && net0 & 512 -> w0 = 6; net0 = net0 | 1 }  /* OPEN/WAITING  EARLY_MARK late  OPEN/ASKING */
    :: d_step { w0 == 4 && net0 & 8192 -> w0 = 5 }  /* OPEN/WAITING  MARK  OPEN/GATHERING */
    :: d_step { w0 == 4 && net0 & 8192 -> w0 = 6; net0 = net0 | 1 }  /* OPEN/WAITING  MARK late  OPEN/ASKING */
    :: d_step { w0 == 5 -> w0 = 11; assert(m0 == STILL); m0 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w0 == 5 -> w0 = 6; net0 = net0 | 1 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING */
    :: d_step { w0 == 6 -> w0 = 9; net0 = net0 | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 6 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 6 && net0 & 64 -> w0 = 5 }  /* OPEN/ASKING  RSP_WAIT  OPEN/GATHERING */
    :: d_step { w0 == 6 && net0 & 64 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/ASKING  RSP_WAIT late */
    :: d_step { w0 == 6 && net0 & 128 -> w0 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 6 && net0 & 128 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/ASKING  RSP_OPEN late */
    :: d_step { w0 == 6 && net0 & 256 -> w0 = 8 }  /* OPEN/ASKING  EARLY  OPEN/OTHERS */
    :: d_step { w0 == 6 && net0 & 512 -> w0 = 8 }  /* OPEN/ASKING  EARLY_MARK  OPEN/OTHERS */
    :: d_step { w0 == 6 && net0 & 512 -> w0 = 8 }  /* OPEN/ASKING  EARLY_MARK late  OPEN/OTHERS */
    :: d_step { w0 == 6 && net0 & 2048 -> w0 = 9; net0 = net0 | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 -> w0 = 2; net0 = net0 | 2 }  /* OPEN/OTHERS  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/OTHERS  beat */
    :: d_step { w0 == 7 && net0 & 64 -> w0 = 4 }  /* OPEN/OTHERS  RSP_WAIT  OPEN/WAITING */
    :: d_step { w0 == 7 && net0 & 64 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/OTHERS  RSP_WAIT late */
    :: d_step { w0 == 7 && net0 & 128 -> w0 = 5 }  /* OPEN/OTHERS  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 7 && net0 & 128 -> w0 = 8; net0 = net0 | 1 }  /* OPEN/OTHERS  RSP_OPEN late  OPEN/OTHERS */
    :: d_step { w0 == 7 && net0 & 512 -> w0 = 8 }  /* OPEN/OTHERS  EARLY_MARK  OPEN/OTHERS */
    :: d_step { w0 == 7 && net0 & 512 -> w0 = 8 }  /* OPEN/OTHERS  EARLY_MARK late  OPEN/OTHERS */
    :: d_step { w0 == 7 && net0 & 2048 -> w0 = 2; net0 = net0 | 2 }  /* OPEN/OTHERS  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 && net0 & 8192 -> w0 = 8 }  /* OPEN/OTHERS  MARK  OPEN/OTHERS */
    :: d_step { w0 == 7 && net0 & 8192 -> w0 = 8 }  /* OPEN/OTHERS  MARK late  OPEN/OTHERS */
    :: d_step { w0 == 8 -> w0 = 9; net0 = net0 | 2 }  /* OPEN/OTHERS  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 8 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/OTHERS  beat */
    :: d_step { w0 == 8 && net0 & 64 -> w0 = 5 }  /* OPEN/OTHERS  RSP_WAIT  OPEN/GATHERING */
    :: d_step { w0 == 8 && net0 & 64 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/OTHERS  RSP_WAIT late */
    :: d_step { w0 == 8 && net0 & 128 -> w0 = 5 }  /* OPEN/OTHERS  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 8 && net0 & 128 && ((net0 & 1) != 1) -> net0 = net0 | 1 }  /* OPEN/OTHERS  RSP_OPEN late */
    :: d_step { w0 == 8 && net0 & 2048 -> w0 = 9; net0 = net0 | 2 }  /* OPEN/OTHERS  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 9 && net0 & 4096 -> w0 = 12; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w0 == 9 && net0 & 4096 && ((net0 & 2) != 2) -> net0 = net0 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 10 && net0 & 128 -> w0 = 12 }  /* OPEN/WRITING_PAGES  RSP_OPEN  OPEN/WRITING_PAGES */
    :: d_step { w0 == 10 && net0 & 128 -> w0 = 12 }  /* OPEN/WRITING_PAGES  RSP_OPEN late  OPEN/WRITING_PAGES */
    :: d_step { w0 == 10 && net0 & 512 -> w0 = 12 }  /* OPEN/WRITING_PAGES  EARLY_MARK  OPEN/WRITING_PAGES */
    :: d_step { w0 == 10 && net0 & 512 -> w0 = 12 }  /* OPEN/WRITING_PAGES  EARLY_MARK late  OPEN/WRITING_PAGES */
    :: d_step { w0 == 10 && net0 & 8192 -> w0 = 12 }  /* OPEN/WRITING_PAGES  MARK  OPEN/WRITING_PAGES */
    :: d_step { w0 == 10 && net0 & 8192 -> w0 = 12 }  /* OPEN/WRITING_PAGES  MARK late  OPEN/WRITING_PAGES */
    :: d_step { w0 == 10 && (m0 == LANDED) -> m0 = STILL; w0 = 13; net0 = net0 | 16 }  /* OPEN/WRITING_PAGES  completed  OPEN/TELLING */
    :: d_step { w0 == 11 && (m0 == LANDED) -> m0 = STILL; w0 = 14; net0 = net0 | 8 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w0 == 12 && (m0 == LANDED) -> m0 = STILL; w0 = 15; net0 = net0 | 16 }  /* OPEN/WRITING_PAGES  completed  OPEN/TELLING */
    :: d_step { w0 == 13 && net0 & 128 -> w0 = 15 }  /* OPEN/TELLING  RSP_OPEN  OPEN/TELLING */
    :: d_step { w0 == 13 && net0 & 128 -> w0 = 15 }  /* OPEN/TELLING  RSP_OPEN late  OPEN/TELLING */
    :: d_step { w0 == 13 && net0 & 512 -> w0 = 15 }  /* OPEN/TELLING  EARLY_MARK  OPEN/TELLING */
    :: d_step { w0 == 13 && net0 & 512 -> w0 = 15 }  /* OPEN/TELLING  EARLY_MARK late  OPEN/TELLING */
    :: d_step { w0 == 13 && net0 & 8192 -> w0 = 15 }  /* OPEN/TELLING  MARK  OPEN/TELLING */
    :: d_step { w0 == 13 && net0 & 8192 -> w0 = 15 }  /* OPEN/TELLING  MARK late  OPEN/TELLING */
    :: d_step { w0 == 13 && net0 & 16384 -> w0 = 16; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 14 && net0 & 16384 -> w0 = 17; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 15 && net0 & 16384 -> w0 = 17; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 16 && net0 & 128 -> w0 = 17 }  /* DONE/NONE  RSP_OPEN  DONE/NONE */
    :: d_step { w0 == 16 && net0 & 128 -> w0 = 17 }  /* DONE/NONE  RSP_OPEN late  DONE/NONE */
    :: d_step { w0 == 16 && net0 & 512 -> w0 = 17 }  /* DONE/NONE  EARLY_MARK  DONE/NONE */
    :: d_step { w0 == 16 && net0 & 512 -> w0 = 17 }  /* DONE/NONE  EARLY_MARK late  DONE/NONE */
    :: d_step { w0 == 16 && net0 & 8192 -> w0 = 17 }  /* DONE/NONE  MARK  DONE/NONE */
    :: d_step { w0 == 16 && net0 & 8192 -> w0 = 17 }  /* DONE/NONE  MARK late  DONE/NONE */
    od
}

active proctype writer1() {
    do
    :: d_step { FLYING(m1) -> LAND(m1, s1, p1, net1, 0) }
    :: d_step { w1 == 0 -> w1 = 1; net1 = net1 | 1 }  /* OPEN/NO_KV  produce  OPEN/ASKING */
    :: d_step { w1 == 0 && net1 & 128 -> w1 = 3 }  /* OPEN/NO_KV  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w1 == 0 && net1 & 128 -> w1 = 3 }  /* OPEN/NO_KV  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w1 == 0 && net1 & 512 -> w1 = 3 }  /* OPEN/NO_KV  EARLY_MARK  OPEN/NO_KV */
    :: d_step { w1 == 0 && net1 & 512 -> w1 = 3 }  /* OPEN/NO_KV  EARLY_MARK late  OPEN/NO_KV */
    :: d_step { w1 == 0 && net1 & 8192 -> w1 = 3 }  /* OPEN/NO_KV  MARK  OPEN/NO_KV */
    :: d_step { w1 == 0 && net1 & 8192 -> w1 = 3 }  /* OPEN/NO_KV  MARK late  OPEN/NO_KV */
    :: d_step { w1 == 1 -> w1 = 2; net1 = net1 | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 1 && net1 & 64 -> w1 = 4 }  /* OPEN/ASKING  RSP_WAIT  OPEN/WAITING */
    :: d_step { w1 == 1 && net1 & 64 -> w1 = 4 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/WAITING */
    :: d_step { w1 == 1 && net1 & 128 -> w1 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 1 && net1 & 128 -> w1 = 6; net1 = net1 | 1 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING */
    :: d_step { w1 == 1 && net1 & 256 -> w1 = 7 }  /* OPEN/ASKING  EARLY  OPEN/OTHERS */
    :: d_step { w1 == 1 && net1 & 512 -> w1 = 8 }  /* OPEN/ASKING  EARLY_MARK  OPEN/OTHERS */
    :: d_step { w1 == 1 && net1 & 512 -> w1 = 8 }  /* OPEN/ASKING  EARLY_MARK late  OPEN/OTHERS */
    :: d_step { w1 == 1 && net1 & 2048 -> w1 = 2; net1 = net1 | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net1 & 8192 -> w1 = 6 }  /* OPEN/ASKING  MARK  OPEN/ASKING */
    :: d_step { w1 == 1 && net1 & 8192 -> w1 = 6 }  /* OPEN/ASKING  MARK late  OPEN/ASKING */
    :: d_step { w1 == 2 && net1 & 128 -> w1 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w1 == 2 && net1 & 128 -> w1 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 2 && net1 & 512 -> w1 = 9 }  /* OPEN/ASKING_PAGES  EARLY_MARK  OPEN/ASKING_PAGES */
    :: d_step { w1 == 2 && net1 & 512 -> w1 = 9 }  /* OPEN/ASKING_PAGES  EARLY_MARK late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 2 && net1 & 4096 -> w1 = 10; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w1 == 2 && net1 & 4096 && ((net1 & 2) != 2) -> net1 = net1 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 2 && net1 & 8192 -> w1 = 9 }  /* OPEN/ASKING_PAGES  MARK  OPEN/ASKING_PAGES */
    :: d_step { w1 == 2 && net1 & 8192 -> w1 = 9 }  /* OPEN/ASKING_PAGES  MARK late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 3 -> w1 = 6; net1 = net1 | 1 }  /* OPEN/NO_KV  produce  OPEN/ASKING */
    :: d_step { w1 == 4 -> w1 = 2; net1 = net1 | 2 }  /* OPEN/WAITING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 4 && ((net1 & 4) != 4) -> net1 = net1 | 4 }  /* OPEN/WAITING  beat */
    :: d_step { w1 == 4 && net1 & 128 -> w1 = 5 }  /* OPEN/WAITING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 4 && net1 & 128 -> w1 = 6; net1 = net1 | 1 }  /* OPEN/WAITING  RSP_OPEN late  OPEN/ASKING */
    :: d_step { w1 == 4 && net1 & 512 -> w1 = 5 }  /* OPEN/WAITING  EARLY_MARK  OPEN/GATHERING */
    :: d_step { w1 == 4 && net1 & 512 -> w1 = 6; net1 = net1 | 1 }  /* OPEN/WAITING  EARLY_MARK late  OPEN/ASKING */
    :: d_step { w1 == 4 && net1 & 8192 -> w1 = 5 }  /* OPEN/WAITING  MARK  OPEN/GATHERING */
    :: d_step { w1 == 4 && net1 & 8192 -> w1 = 6; net1 = net1 | 1 }  /* OPEN/WAITING  MARK late  OPEN/ASKING */
    :: d_step { w1 == 5 -> w1 = 11; assert(m1 == STILL); m1 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w1 == 5 -> w1 = 6; net1 = net1 | 1 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING */
    :: d_step { w1 == 6 -> w1 = 9; net1 = net1 | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 6 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 6 && net1 & 64 -> w1 = 5 }  /* OPEN/ASKING  RSP_WAIT  OPEN/GATHERING */
    :: d_step { w1 == 6 && net1 & 64 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/ASKING  RSP_WAIT late */
    :: d_step { w1 == 6 && net1 & 128 -> w1 = 5 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 6 && net1 & 128 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/ASKING  RSP_OPEN late */
    :: d_step { w1 == 6 && net1 & 256 -> w1 = 8 }  /* OPEN/ASKING  EARLY  OPEN/OTHERS */
    :: d_step { w1 == 6 && net1 & 512 -> w1 = 8 }  /* OPEN/ASKING  EARLY_MARK  OPEN/OTHERS */
    :: d_step { w1 == 6 && net1 & 512 -> w1 = 8 }  /* OPEN/ASKING  EARLY_MARK late  OPEN/OTHERS */
    :: d_step { w1 == 6 && net1 & 2048 -> w1 = 9; net1 = net1 | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 -> w1 = 2; net1 = net1 | 2 }  /* OPEN/OTHERS  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/OTHERS  beat */
    :: d_step { w1 == 7 && net1 & 64 -> w1 = 4 }  /* OPEN/OTHERS  RSP_WAIT  OPEN/WAITING */
    :: d_step { w1 == 7 && net1 & 64 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/OTHERS  RSP_WAIT late */
    :: d_step { w1 == 7 && net1 & 128 -> w1 = 5 }  /* OPEN/OTHERS  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 7 && net1 & 128 -> w1 = 8; net1 = net1 | 1 }  /* OPEN/OTHERS  RSP_OPEN late  OPEN/OTHERS */
    :: d_step { w1 == 7 && net1 & 512 -> w1 = 8 }  /* OPEN/OTHERS  EARLY_MARK  OPEN/OTHERS */
    :: d_step { w1 == 7 && net1 & 512 -> w1 = 8 }  /* OPEN/OTHERS  EARLY_MARK late  OPEN/OTHERS */
    :: d_step { w1 == 7 && net1 & 2048 -> w1 = 2; net1 = net1 | 2 }  /* OPEN/OTHERS  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 && net1 & 8192 -> w1 = 8 }  /* OPEN/OTHERS  MARK  OPEN/OTHERS */
    :: d_step { w1 == 7 && net1 & 8192 -> w1 = 8 }  /* OPEN/OTHERS  MARK late  OPEN/OTHERS */
    :: d_step { w1 == 8 -> w1 = 9; net1 = net1 | 2 }  /* OPEN/OTHERS  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 8 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/OTHERS  beat */
    :: d_step { w1 == 8 && net1 & 64 -> w1 = 5 }  /* OPEN/OTHERS  RSP_WAIT  OPEN/GATHERING */
    :: d_step { w1 == 8 && net1 & 64 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/OTHERS  RSP_WAIT late */
    :: d_step { w1 == 8 && net1 & 128 -> w1 = 5 }  /* OPEN/OTHERS  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 8 && net1 & 128 && ((net1 & 1) != 1) -> net1 = net1 | 1 }  /* OPEN/OTHERS  RSP_OPEN late */
    :: d_step { w1 == 8 && net1 & 2048 -> w1 = 9; net1 = net1 | 2 }  /* OPEN/OTHERS  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 9 && net1 & 4096 -> w1 = 12; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/WRITING_PAGES */
    :: d_step { w1 == 9 && net1 & 4096 && ((net1 & 2) != 2) -> net1 = net1 | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 10 && net1 & 128 -> w1 = 12 }  /* OPEN/WRITING_PAGES  RSP_OPEN  OPEN/WRITING_PAGES */
    :: d_step { w1 == 10 && net1 & 128 -> w1 = 12 }  /* OPEN/WRITING_PAGES  RSP_OPEN late  OPEN/WRITING_PAGES */
    :: d_step { w1 == 10 && net1 & 512 -> w1 = 12 }  /* OPEN/WRITING_PAGES  EARLY_MARK  OPEN/WRITING_PAGES */
    :: d_step { w1 == 10 && net1 & 512 -> w1 = 12 }  /* OPEN/WRITING_PAGES  EARLY_MARK late  OPEN/WRITING_PAGES */
    :: d_step { w1 == 10 && net1 & 8192 -> w1 = 12 }  /* OPEN/WRITING_PAGES  MARK  OPEN/WRITING_PAGES */
    :: d_step { w1 == 10 && net1 & 8192 -> w1 = 12 }  /* OPEN/WRITING_PAGES  MARK late  OPEN/WRITING_PAGES */
    :: d_step { w1 == 10 && (m1 == LANDED) -> m1 = STILL; w1 = 13; net1 = net1 | 16 }  /* OPEN/WRITING_PAGES  completed  OPEN/TELLING */
    :: d_step { w1 == 11 && (m1 == LANDED) -> m1 = STILL; w1 = 14; net1 = net1 | 8 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w1 == 12 && (m1 == LANDED) -> m1 = STILL; w1 = 15; net1 = net1 | 16 }  /* OPEN/WRITING_PAGES  completed  OPEN/TELLING */
    :: d_step { w1 == 13 && net1 & 128 -> w1 = 15 }  /* OPEN/TELLING  RSP_OPEN  OPEN/TELLING */
    :: d_step { w1 == 13 && net1 & 128 -> w1 = 15 }  /* OPEN/TELLING  RSP_OPEN late  OPEN/TELLING */
    :: d_step { w1 == 13 && net1 & 512 -> w1 = 15 }  /* OPEN/TELLING  EARLY_MARK  OPEN/TELLING */
    :: d_step { w1 == 13 && net1 & 512 -> w1 = 15 }  /* OPEN/TELLING  EARLY_MARK late  OPEN/TELLING */
    :: d_step { w1 == 13 && net1 & 8192 -> w1 = 15 }  /* OPEN/TELLING  MARK  OPEN/TELLING */
    :: d_step { w1 == 13 && net1 & 8192 -> w1 = 15 }  /* OPEN/TELLING  MARK late  OPEN/TELLING */
    :: d_step { w1 == 13 && net1 & 16384 -> w1 = 16; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 14 && net1 & 16384 -> w1 = 17; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 15 && net1 & 16384 -> w1 = 17; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 16 && net1 & 128 -> w1 = 17 }  /* DONE/NONE  RSP_OPEN  DONE/NONE */
    :: d_step { w1 == 16 && net1 & 128 -> w1 = 17 }  /* DONE/NONE  RSP_OPEN late  DONE/NONE */
    :: d_step { w1 == 16 && net1 & 512 -> w1 = 17 }  /* DONE/NONE  EARLY_MARK  DONE/NONE */
    :: d_step { w1 == 16 && net1 & 512 -> w1 = 17 }  /* DONE/NONE  EARLY_MARK late  DONE/NONE */
    :: d_step { w1 == 16 && net1 & 8192 -> w1 = 17 }  /* DONE/NONE  MARK  DONE/NONE */
    :: d_step { w1 == 16 && net1 & 8192 -> w1 = 17 }  /* DONE/NONE  MARK late  DONE/NONE */
    od
}

active proctype reader() {
    do
    :: d_step { over0 && over1 && over2 -> skip }
    :: d_step { r == 0 -> r = 1 }  /* OPEN/NONE  other freed  OPEN/NONE */
    :: d_step { r == 0 && net0 & 1 -> r = 2; net0 = net0 | 256 }  /* OPEN/NONE  REQ  OPEN/OTHERS */
    :: d_step { r == 0 && net0 & 2 -> r = 3; s0 = 0; net0 = net0 | 4096 }  /* OPEN/NONE  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 0 && net1 & 1 -> r = 4; net1 = net1 | 256 }  /* OPEN/NONE  REQ  OPEN/OTHERS */
    :: d_step { r == 0 && net1 & 2 -> r = 5; s1 = 0; net1 = net1 | 4096 }  /* OPEN/NONE  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 1 && net0 & 1 -> r = 6; net0 = net0 | 512 }  /* OPEN/NONE  REQ  OPEN/OTHERS */
    :: d_step { r == 1 && net0 & 2 -> r = 7; s0 = 0; net0 = net0 | 4096 }  /* OPEN/NONE  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 1 && net1 & 1 -> r = 8; net1 = net1 | 512 }  /* OPEN/NONE  REQ  OPEN/OTHERS */
    :: d_step { r == 1 && net1 & 2 -> r = 9; s1 = 0; net1 = net1 | 4096 }  /* OPEN/NONE  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 1 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/NONE  MARK_REQ */
    :: d_step { r == 1 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/NONE  MARK_REQ */
    :: d_step { r == 2 -> r = 6 }  /* OPEN/OTHERS  other freed  OPEN/OTHERS */
    :: d_step { r == 2 && net0 & 1 && ((net0 & 256) != 256) -> net0 = net0 | 256 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 2 && net0 & 2 -> r = 3; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 2 && net1 & 1 -> r = 10; net0 = net0 | 64; net1 = net1 | 64 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 2 && net1 & 2 -> r = 11; s1 = 0; net0 = net0 | 64; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 3 -> r = 7 }  /* OPEN/OTHERS  other freed  OPEN/OTHERS */
    :: d_step { r == 3 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 3 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 3 && net1 & 1 -> r = 12; net1 = net1 | 64 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 3 && net1 & 2 -> r = 13; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 3 && net0 & 16 -> r = 18; net0 = net0 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES  OPEN/OTHERS */
    :: d_step { r == 4 -> r = 8 }  /* OPEN/OTHERS  other freed  OPEN/OTHERS */
    :: d_step { r == 4 && net0 & 1 -> r = 10; net0 = net0 | 64; net1 = net1 | 64 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 4 && net0 & 2 -> r = 12; s0 = 0; net0 = net0 | 4096; net1 = net1 | 64 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 4 && net1 & 1 && ((net1 & 256) != 256) -> net1 = net1 | 256 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 4 && net1 & 2 -> r = 5; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 5 -> r = 9 }  /* OPEN/OTHERS  other freed  OPEN/OTHERS */
    :: d_step { r == 5 && net0 & 1 -> r = 11; net0 = net0 | 64 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 5 && net0 & 2 -> r = 13; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 5 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 5 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 5 && net1 & 16 -> r = 19; net1 = net1 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES  OPEN/OTHERS */
    :: d_step { r == 6 && net0 & 1 && ((net0 & 512) != 512) -> net0 = net0 | 512 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 6 && net0 & 2 -> r = 7; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 6 && net1 & 1 -> r = 14; open = 1; net0 = net0 | 128; net1 = net1 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 6 && net1 & 2 -> r = 15; s1 = 0; open = 1; net0 = net0 | 128; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 6 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 6 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 7 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 7 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 7 && net1 & 1 -> r = 16; open = 1; net1 = net1 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 7 && net1 & 2 -> r = 17; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 7 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 7 && net0 & 16 -> r = 20; net0 = net0 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES  OPEN/OTHERS */
    :: d_step { r == 7 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 8 && net0 & 1 -> r = 14; open = 1; net0 = net0 | 128; net1 = net1 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 8 && net0 & 2 -> r = 16; s0 = 0; open = 1; net0 = net0 | 4096; net1 = net1 | 128 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 8 && net1 & 1 && ((net1 & 512) != 512) -> net1 = net1 | 512 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 8 && net1 & 2 -> r = 9; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/OTHERS */
    :: d_step { r == 8 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 8 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 9 && net0 & 1 -> r = 15; open = 1; net0 = net0 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 9 && net0 & 2 -> r = 17; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 9 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 9 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 9 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 9 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 9 && net1 & 16 -> r = 21; net1 = net1 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES  OPEN/OTHERS */
    :: d_step { r == 10 -> r = 14; open = 1; net0 = net0 | 8192; net1 = net1 | 8192 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 10 && net0 & 1 && ((net0 & 64) != 64) -> net0 = net0 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 10 && net0 & 2 -> r = 12; s0 = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 10 && net1 & 1 && ((net1 & 64) != 64) -> net1 = net1 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 10 && net1 & 2 -> r = 11; s1 = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 10 && net0 & 8 -> r = 22; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 10 && net1 & 8 -> r = 23; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 11 -> r = 15; open = 1; net0 = net0 | 8192 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 11 && net0 & 1 && ((net0 & 64) != 64) -> net0 = net0 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 11 && net0 & 2 -> r = 13; s0 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 11 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 11 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 11 && net0 & 8 -> r = 24; assert(s0 && !s1)  /* S3 */; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 11 && net1 & 16 -> r = 25; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 12 -> r = 16; open = 1; net1 = net1 | 8192 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 12 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 12 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 12 && net1 & 1 && ((net1 & 64) != 64) -> net1 = net1 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 12 && net1 & 2 -> r = 13; s1 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 12 && net0 & 16 -> r = 26; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 12 && net1 & 8 -> r = 27; assert(!s0 && s1)  /* S3 */; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 13 -> r = 17 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 13 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 13 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 13 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 13 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 13 && net0 & 16 -> r = 28; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 13 && net1 & 16 -> r = 29; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 14 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 14 && net0 & 2 -> r = 16; s0 = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 14 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 14 && net1 & 2 -> r = 15; s1 = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 14 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 14 && net0 & 8 -> r = 30; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 14 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 14 && net1 & 8 -> r = 31; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 15 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 15 && net0 & 2 -> r = 17; s0 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 15 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 15 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 15 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 15 && net0 & 8 -> r = 32; assert(s0 && !s1)  /* S3 */; open = 0; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 15 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 15 && net1 & 16 -> r = 33; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 16 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 16 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 16 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 16 && net1 & 2 -> r = 17; s1 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 16 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 16 && net0 & 16 -> r = 34; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 16 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 16 && net1 & 8 -> r = 35; assert(!s0 && s1)  /* S3 */; open = 0; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 17 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 17 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 17 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 17 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 17 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 17 && net0 & 16 -> r = 36; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 17 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 17 && net1 & 16 -> r = 37; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 18 -> r = 20 }  /* OPEN/OTHERS  other freed  OPEN/OTHERS */
    :: d_step { r == 18 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 18 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 18 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES */
    :: d_step { r == 18 && net1 & 1 -> r = 26; net1 = net1 | 64 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 18 && net1 & 2 -> r = 28; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 19 -> r = 21 }  /* OPEN/OTHERS  other freed  OPEN/OTHERS */
    :: d_step { r == 19 && net0 & 1 -> r = 25; net0 = net0 | 64 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 19 && net0 & 2 -> r = 29; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 19 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 19 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 19 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES */
    :: d_step { r == 20 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 20 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 20 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 20 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES */
    :: d_step { r == 20 && net1 & 1 -> r = 34; open = 1; net1 = net1 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 20 && net1 & 2 -> r = 36; s1 = 0; net1 = net1 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 20 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 21 && net0 & 1 -> r = 33; open = 1; net0 = net0 | 128 }  /* OPEN/OTHERS  REQ  OPEN/FILLING */
    :: d_step { r == 21 && net0 & 2 -> r = 37; s0 = 0; net0 = net0 | 4096 }  /* OPEN/OTHERS  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 21 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 21 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/OTHERS  REQ */
    :: d_step { r == 21 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/OTHERS  PAGES_REQ */
    :: d_step { r == 21 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/OTHERS  MARK_REQ */
    :: d_step { r == 21 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/OTHERS  NOTE_PAGES */
    :: d_step { r == 22 -> r = 30; open = 1; net1 = net1 | 8192 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 22 && net0 & 1 && ((net0 & 64) != 64) -> net0 = net0 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 22 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 22 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 22 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 22 && net1 & 1 && ((net1 & 64) != 64) -> net1 = net1 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 22 && net1 & 2 -> r = 24; s1 = 0; assert(s0 && !s1)  /* S3 */; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/SCATTERING */
    :: d_step { r == 22 && net1 & 8 -> r = 38; assert(s0 && s1)  /* S3 */; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 23 -> r = 31; open = 1; net0 = net0 | 8192 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 23 && net0 & 1 && ((net0 & 64) != 64) -> net0 = net0 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 23 && net0 & 2 -> r = 27; s0 = 0; assert(!s0 && s1)  /* S3 */; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/SCATTERING */
    :: d_step { r == 23 && net0 & 8 -> r = 38; assert(s0 && s1)  /* S3 */; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 23 && net1 & 1 && ((net1 & 64) != 64) -> net1 = net1 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 23 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 23 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 23 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 24 -> r = 32 }  /* OPEN/SCATTERING  other freed  OPEN/SCATTERING */
    :: d_step { r == 24 -> r = 39; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* OPEN/SCATTERING  scattered  OPEN/FILLING_PAGES */
    :: d_step { r == 24 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 24 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 24 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 24 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 24 && net1 & 16 -> r = 40; net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 25 -> r = 33; open = 1; net0 = net0 | 8192 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 25 && net0 & 1 && ((net0 & 64) != 64) -> net0 = net0 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 25 && net0 & 2 -> r = 29; s0 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 25 && net0 & 8 -> r = 40; assert(s0 && !s1)  /* S3 */; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 25 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 25 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 25 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 25 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 26 -> r = 34; open = 1; net1 = net1 | 8192 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 26 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 26 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 26 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 26 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 26 && net1 & 1 && ((net1 & 64) != 64) -> net1 = net1 | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 26 && net1 & 2 -> r = 28; s1 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 26 && net1 & 8 -> r = 41; assert(!s0 && s1)  /* S3 */; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 27 -> r = 35 }  /* OPEN/SCATTERING  other freed  OPEN/SCATTERING */
    :: d_step { r == 27 -> r = 42; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* OPEN/SCATTERING  scattered  OPEN/FILLING_PAGES */
    :: d_step { r == 27 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 27 && net0 & 16 -> r = 41; net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 27 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 27 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 27 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 28 -> r = 36 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 28 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 28 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 28 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 28 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 28 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 28 && net1 & 16 -> r = 43; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 29 -> r = 37 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 29 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 29 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 29 && net0 & 16 -> r = 43; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 29 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 29 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 29 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 30 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 30 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 30 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 30 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 30 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 30 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 30 && net1 & 2 -> r = 32; s1 = 0; assert(s0 && !s1)  /* S3 */; open = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/SCATTERING */
    :: d_step { r == 30 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 30 && net1 & 8 -> r = 44; assert(s0 && s1)  /* S3 */; open = 0; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 31 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 31 && net0 & 2 -> r = 35; s0 = 0; assert(!s0 && s1)  /* S3 */; open = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/SCATTERING */
    :: d_step { r == 31 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 31 && net0 & 8 -> r = 44; assert(s0 && s1)  /* S3 */; open = 0; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 31 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 31 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 31 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 31 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 31 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 32 -> r = 45; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* OPEN/SCATTERING  scattered  OPEN/FILLING_PAGES */
    :: d_step { r == 32 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 32 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 32 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 32 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 32 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 32 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 32 && net1 & 16 -> r = 46; net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 33 && net0 & 1 && ((net0 & 128) != 128) -> net0 = net0 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 33 && net0 & 2 -> r = 37; s0 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net0 = net0 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 33 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 33 && net0 & 8 -> r = 46; assert(s0 && !s1)  /* S3 */; open = 0; net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 33 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 33 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 33 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 33 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 33 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 34 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 34 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 34 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 34 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 34 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 34 && net1 & 1 && ((net1 & 128) != 128) -> net1 = net1 | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 34 && net1 & 2 -> r = 36; s1 = 0; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net1 = net1 | 4096 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 34 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 34 && net1 & 8 -> r = 47; assert(!s0 && s1)  /* S3 */; open = 0; net1 = net1 | 16384 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 35 -> r = 48; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0 }  /* OPEN/SCATTERING  scattered  OPEN/FILLING_PAGES */
    :: d_step { r == 35 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 35 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 35 && net0 & 16 -> r = 47; net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 35 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 35 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 35 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 35 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 36 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 36 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 36 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 36 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 36 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 36 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 36 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 36 && net1 & 16 -> r = 49; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 37 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 37 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 37 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 37 && net0 & 16 -> r = 49; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 37 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 37 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 37 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 37 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 38 -> r = 44 }  /* OPEN/SCATTERING  other freed  OPEN/SCATTERING */
    :: d_step { r == 38 -> r = 43; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 38 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 38 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 38 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 38 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 38 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 38 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 39 -> r = 45 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 39 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 39 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 39 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 39 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 39 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 39 && net1 & 16 -> r = 43; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 40 -> r = 46 }  /* OPEN/SCATTERING  other freed  OPEN/SCATTERING */
    :: d_step { r == 40 -> r = 43; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 40 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 40 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 40 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 40 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 40 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 40 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 41 -> r = 47 }  /* OPEN/SCATTERING  other freed  OPEN/SCATTERING */
    :: d_step { r == 41 -> r = 43; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 41 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 41 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 41 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 41 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 41 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 41 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 42 -> r = 48 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 42 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 42 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 42 && net0 & 16 -> r = 43; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 42 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 42 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 42 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 43 -> r = 49 }  /* DONE/NONE  other freed  DONE/NONE */
    :: d_step { r == 43 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  PAGES_REQ */
    :: d_step { r == 43 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 43 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 43 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  PAGES_REQ */
    :: d_step { r == 43 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 43 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 44 -> r = 49; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 44 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 44 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 44 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 44 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 44 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 44 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 44 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 44 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 45 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 45 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 45 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 45 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 45 && net1 & 1 && ((net1 & 2048) != 2048) -> net1 = net1 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 45 && net1 & 2 && ((net1 & 4096) != 4096) -> net1 = net1 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 45 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 45 && net1 & 16 -> r = 49; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 46 -> r = 49; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 46 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 46 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 46 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 46 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 46 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 46 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 46 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 46 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 47 -> r = 49; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 47 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 47 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 47 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 47 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 47 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  PAGES_REQ */
    :: d_step { r == 47 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 47 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 47 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 48 && net0 & 1 && ((net0 & 2048) != 2048) -> net0 = net0 | 2048 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 48 && net0 & 2 && ((net0 & 4096) != 4096) -> net0 = net0 | 4096 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 48 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 48 && net0 & 16 -> r = 49; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net0 = net0 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 48 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 48 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 48 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 48 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 49 && net0 & 2 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  PAGES_REQ */
    :: d_step { r == 49 && net0 & 4 && ((net0 & 8192) != 8192) -> net0 = net0 | 8192 }  /* DONE/NONE  MARK_REQ */
    :: d_step { r == 49 && net0 & 8 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 49 && net0 & 16 && ((net0 & 16384) != 16384) -> net0 = net0 | 16384 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 49 && net1 & 2 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  PAGES_REQ */
    :: d_step { r == 49 && net1 & 4 && ((net1 & 8192) != 8192) -> net1 = net1 | 8192 }  /* DONE/NONE  MARK_REQ */
    :: d_step { r == 49 && net1 & 8 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 49 && net1 & 16 && ((net1 & 16384) != 16384) -> net1 = net1 | 16384 }  /* DONE/NONE  NOTE_PAGES */
    od
}

