/* Made from the tables by python -m witness.promela: do not edit.
   One chunk, two writers, one decode rank; the ring is ahead, and nothing fails.
   22 and 22 values of the writers, 46 of the decode rank; 539 rows. */

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
    :: d_step { w0 == 0 && net & 64 -> w0 = 3 }  /* OPEN/ASKING  RSP_WAIT  OPEN/WAITING */
    :: d_step { w0 == 0 && net & 64 -> w0 = 3 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/WAITING */
    :: d_step { w0 == 0 && net & 128 -> w0 = 4 }  /* OPEN/ASKING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w0 == 0 && net & 128 -> w0 = 4 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w0 == 0 && net & 512 -> w0 = 5; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 0 && net & 2048 -> w0 = 6 }  /* OPEN/ASKING  MARK  OPEN/ASKING */
    :: d_step { w0 == 0 && net & 2048 -> w0 = 6 }  /* OPEN/ASKING  MARK late  OPEN/ASKING */
    :: d_step { w0 == 1 -> w0 = 2; net = net | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 1 && net & 64 -> w0 = 7 }  /* OPEN/ASKING  RSP_WAIT  OPEN/WAITING */
    :: d_step { w0 == 1 && net & 64 -> w0 = 7 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/WAITING */
    :: d_step { w0 == 1 && net & 128 -> w0 = 8 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 1 && net & 128 -> w0 = 9; net = net | 2 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net & 512 -> w0 = 2; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 1 && net & 2048 -> w0 = 10 }  /* OPEN/ASKING  MARK  OPEN/ASKING */
    :: d_step { w0 == 1 && net & 2048 -> w0 = 10 }  /* OPEN/ASKING  MARK late  OPEN/ASKING */
    :: d_step { w0 == 2 && net & 128 -> w0 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w0 == 2 && net & 128 -> w0 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 2 && net & 1024 -> w0 = 11; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w0 == 2 && net & 1024 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 2 && net & 2048 -> w0 = 9 }  /* OPEN/ASKING_PAGES  MARK  OPEN/ASKING_PAGES */
    :: d_step { w0 == 2 && net & 2048 -> w0 = 9 }  /* OPEN/ASKING_PAGES  MARK late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 3 -> w0 = 7 }  /* OPEN/WAITING  produce  OPEN/WAITING */
    :: d_step { w0 == 3 -> w0 = 7 }  /* OPEN/WAITING  produce late  OPEN/WAITING */
    :: d_step { w0 == 3 && (net & 4) != 4 -> net = net | 4 }  /* OPEN/WAITING  timer */
    :: d_step { w0 == 3 && (net & 4) != 4 -> net = net | 4 }  /* OPEN/WAITING  beat */
    :: d_step { w0 == 3 && net & 128 -> w0 = 4 }  /* OPEN/WAITING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w0 == 3 && net & 128 -> w0 = 4 }  /* OPEN/WAITING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w0 == 3 && net & 2048 -> w0 = 4 }  /* OPEN/WAITING  MARK  OPEN/NO_KV */
    :: d_step { w0 == 3 && net & 2048 -> w0 = 4 }  /* OPEN/WAITING  MARK late  OPEN/NO_KV */
    :: d_step { w0 == 4 -> w0 = 8 }  /* OPEN/NO_KV  produce  OPEN/GATHERING */
    :: d_step { w0 == 4 -> w0 = 9; net = net | 2 }  /* OPEN/NO_KV  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 4 -> w0 = 12; net = net | 2 }  /* OPEN/NO_KV  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 4 -> w0 = 12; net = net | 2 }  /* OPEN/NO_KV  beat  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 2 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 -> w0 = 2 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 && net & 128 -> w0 = 12 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 && net & 128 -> w0 = 12 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 && net & 1024 -> w0 = 13 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 5 && net & 1024 -> w0 = 13 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 5 && net & 2048 -> w0 = 12 }  /* OPEN/ASKING_PAGES  MARK  OPEN/ASKING_PAGES */
    :: d_step { w0 == 5 && net & 2048 -> w0 = 12 }  /* OPEN/ASKING_PAGES  MARK late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 6 -> w0 = 10 }  /* OPEN/ASKING  produce  OPEN/ASKING */
    :: d_step { w0 == 6 -> w0 = 10 }  /* OPEN/ASKING  produce late  OPEN/ASKING */
    :: d_step { w0 == 6 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  timer */
    :: d_step { w0 == 6 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 6 && net & 64 -> w0 = 4 }  /* OPEN/ASKING  RSP_WAIT  OPEN/NO_KV */
    :: d_step { w0 == 6 && net & 64 -> w0 = 4 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/NO_KV */
    :: d_step { w0 == 6 && net & 128 -> w0 = 4 }  /* OPEN/ASKING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w0 == 6 && net & 128 -> w0 = 4 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w0 == 6 && net & 512 -> w0 = 12; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 -> w0 = 2; net = net | 2 }  /* OPEN/WAITING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 && (net & 4) != 4 -> net = net | 4 }  /* OPEN/WAITING  beat */
    :: d_step { w0 == 7 && net & 128 -> w0 = 8 }  /* OPEN/WAITING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 7 && net & 128 -> w0 = 9; net = net | 2 }  /* OPEN/WAITING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 7 && net & 2048 -> w0 = 8 }  /* OPEN/WAITING  MARK  OPEN/GATHERING */
    :: d_step { w0 == 7 && net & 2048 -> w0 = 9; net = net | 2 }  /* OPEN/WAITING  MARK late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 8 -> w0 = 14; assert(m0 == STILL); m0 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w0 == 8 -> w0 = 9; net = net | 2 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 9 && net & 1024 -> w0 = 15; assert(m0 == STILL); m0 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w0 == 9 && net & 1024 && (net & 2) != 2 -> net = net | 2 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w0 == 10 -> w0 = 9; net = net | 2 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w0 == 10 && (net & 1) != 1 -> net = net | 1 }  /* OPEN/ASKING  beat */
    :: d_step { w0 == 10 && net & 64 -> w0 = 8 }  /* OPEN/ASKING  RSP_WAIT  OPEN/GATHERING */
    :: d_step { w0 == 10 && net & 64 -> w0 = 9; net = net | 2 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 10 && net & 128 -> w0 = 8 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w0 == 10 && net & 128 -> w0 = 9; net = net | 2 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 10 && net & 512 -> w0 = 9; net = net | 2 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w0 == 11 && net & 128 -> w0 = 15 }  /* OPEN/SLICING  RSP_OPEN  OPEN/SLICING */
    :: d_step { w0 == 11 && net & 128 -> w0 = 15 }  /* OPEN/SLICING  RSP_OPEN late  OPEN/SLICING */
    :: d_step { w0 == 11 && net & 2048 -> w0 = 15 }  /* OPEN/SLICING  MARK  OPEN/SLICING */
    :: d_step { w0 == 11 && net & 2048 -> w0 = 15 }  /* OPEN/SLICING  MARK late  OPEN/SLICING */
    :: d_step { w0 == 11 && (m0 == LANDED) -> m0 = STILL; w0 = 16; net = net | 16 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w0 == 12 -> w0 = 9 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w0 == 12 -> w0 = 9 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 12 && net & 1024 -> w0 = 17 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 12 && net & 1024 -> w0 = 17 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 13 -> w0 = 11; assert(m0 == STILL); m0 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w0 == 13 -> w0 = 2; net = net | 2 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 13 && net & 128 -> w0 = 17 }  /* OPEN/NO_KV_FOR_PAGES  RSP_OPEN  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 13 && net & 128 -> w0 = 17 }  /* OPEN/NO_KV_FOR_PAGES  RSP_OPEN late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 13 && net & 2048 -> w0 = 17 }  /* OPEN/NO_KV_FOR_PAGES  MARK  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 13 && net & 2048 -> w0 = 17 }  /* OPEN/NO_KV_FOR_PAGES  MARK late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w0 == 14 && (m0 == LANDED) -> m0 = STILL; w0 = 18; net = net | 8 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w0 == 15 && (m0 == LANDED) -> m0 = STILL; w0 = 19; net = net | 16 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w0 == 16 && net & 128 -> w0 = 19 }  /* OPEN/TELLING  RSP_OPEN  OPEN/TELLING */
    :: d_step { w0 == 16 && net & 128 -> w0 = 19 }  /* OPEN/TELLING  RSP_OPEN late  OPEN/TELLING */
    :: d_step { w0 == 16 && net & 2048 -> w0 = 19 }  /* OPEN/TELLING  MARK  OPEN/TELLING */
    :: d_step { w0 == 16 && net & 2048 -> w0 = 19 }  /* OPEN/TELLING  MARK late  OPEN/TELLING */
    :: d_step { w0 == 16 && net & 4096 -> w0 = 20; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 17 -> w0 = 15; assert(m0 == STILL); m0 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w0 == 17 -> w0 = 9; net = net | 2 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w0 == 18 && net & 4096 -> w0 = 21; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 19 && net & 4096 -> w0 = 21; assert(!FLYING(m0))  /* S4 */; assert(m0 == STILL && (failed || s0 || p0))  /* S6 */; over0 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w0 == 20 && net & 128 -> w0 = 21 }  /* DONE/NONE  RSP_OPEN  DONE/NONE */
    :: d_step { w0 == 20 && net & 128 -> w0 = 21 }  /* DONE/NONE  RSP_OPEN late  DONE/NONE */
    :: d_step { w0 == 20 && net & 2048 -> w0 = 21 }  /* DONE/NONE  MARK  DONE/NONE */
    :: d_step { w0 == 20 && net & 2048 -> w0 = 21 }  /* DONE/NONE  MARK late  DONE/NONE */
    od
}

active proctype writer1() {
    do
    :: d_step { FLYING(m1) -> LAND(m1, s1, p1, 0) }
    :: d_step { w1 == 0 -> w1 = 1 }  /* OPEN/ASKING  produce  OPEN/ASKING */
    :: d_step { w1 == 0 -> w1 = 1 }  /* OPEN/ASKING  produce late  OPEN/ASKING */
    :: d_step { w1 == 0 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  timer */
    :: d_step { w1 == 0 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 0 && net & 2097152 -> w1 = 3 }  /* OPEN/ASKING  RSP_WAIT  OPEN/WAITING */
    :: d_step { w1 == 0 && net & 2097152 -> w1 = 3 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/WAITING */
    :: d_step { w1 == 0 && net & 4194304 -> w1 = 4 }  /* OPEN/ASKING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w1 == 0 && net & 4194304 -> w1 = 4 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w1 == 0 && net & 16777216 -> w1 = 5; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 0 && net & 67108864 -> w1 = 6 }  /* OPEN/ASKING  MARK  OPEN/ASKING */
    :: d_step { w1 == 0 && net & 67108864 -> w1 = 6 }  /* OPEN/ASKING  MARK late  OPEN/ASKING */
    :: d_step { w1 == 1 -> w1 = 2; net = net | 65536 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 1 && net & 2097152 -> w1 = 7 }  /* OPEN/ASKING  RSP_WAIT  OPEN/WAITING */
    :: d_step { w1 == 1 && net & 2097152 -> w1 = 7 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/WAITING */
    :: d_step { w1 == 1 && net & 4194304 -> w1 = 8 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 1 && net & 4194304 -> w1 = 9; net = net | 65536 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net & 16777216 -> w1 = 2; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 1 && net & 67108864 -> w1 = 10 }  /* OPEN/ASKING  MARK  OPEN/ASKING */
    :: d_step { w1 == 1 && net & 67108864 -> w1 = 10 }  /* OPEN/ASKING  MARK late  OPEN/ASKING */
    :: d_step { w1 == 2 && net & 4194304 -> w1 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w1 == 2 && net & 4194304 -> w1 = 9 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 2 && net & 33554432 -> w1 = 11; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w1 == 2 && net & 33554432 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 2 && net & 67108864 -> w1 = 9 }  /* OPEN/ASKING_PAGES  MARK  OPEN/ASKING_PAGES */
    :: d_step { w1 == 2 && net & 67108864 -> w1 = 9 }  /* OPEN/ASKING_PAGES  MARK late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 3 -> w1 = 7 }  /* OPEN/WAITING  produce  OPEN/WAITING */
    :: d_step { w1 == 3 -> w1 = 7 }  /* OPEN/WAITING  produce late  OPEN/WAITING */
    :: d_step { w1 == 3 && (net & 131072) != 131072 -> net = net | 131072 }  /* OPEN/WAITING  timer */
    :: d_step { w1 == 3 && (net & 131072) != 131072 -> net = net | 131072 }  /* OPEN/WAITING  beat */
    :: d_step { w1 == 3 && net & 4194304 -> w1 = 4 }  /* OPEN/WAITING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w1 == 3 && net & 4194304 -> w1 = 4 }  /* OPEN/WAITING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w1 == 3 && net & 67108864 -> w1 = 4 }  /* OPEN/WAITING  MARK  OPEN/NO_KV */
    :: d_step { w1 == 3 && net & 67108864 -> w1 = 4 }  /* OPEN/WAITING  MARK late  OPEN/NO_KV */
    :: d_step { w1 == 4 -> w1 = 8 }  /* OPEN/NO_KV  produce  OPEN/GATHERING */
    :: d_step { w1 == 4 -> w1 = 9; net = net | 65536 }  /* OPEN/NO_KV  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 4 -> w1 = 12; net = net | 65536 }  /* OPEN/NO_KV  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 4 -> w1 = 12; net = net | 65536 }  /* OPEN/NO_KV  beat  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 2 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 -> w1 = 2 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 && net & 4194304 -> w1 = 12 }  /* OPEN/ASKING_PAGES  RSP_OPEN  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 && net & 4194304 -> w1 = 12 }  /* OPEN/ASKING_PAGES  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 && net & 33554432 -> w1 = 13 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 5 && net & 33554432 -> w1 = 13 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 5 && net & 67108864 -> w1 = 12 }  /* OPEN/ASKING_PAGES  MARK  OPEN/ASKING_PAGES */
    :: d_step { w1 == 5 && net & 67108864 -> w1 = 12 }  /* OPEN/ASKING_PAGES  MARK late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 6 -> w1 = 10 }  /* OPEN/ASKING  produce  OPEN/ASKING */
    :: d_step { w1 == 6 -> w1 = 10 }  /* OPEN/ASKING  produce late  OPEN/ASKING */
    :: d_step { w1 == 6 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  timer */
    :: d_step { w1 == 6 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 6 && net & 2097152 -> w1 = 4 }  /* OPEN/ASKING  RSP_WAIT  OPEN/NO_KV */
    :: d_step { w1 == 6 && net & 2097152 -> w1 = 4 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/NO_KV */
    :: d_step { w1 == 6 && net & 4194304 -> w1 = 4 }  /* OPEN/ASKING  RSP_OPEN  OPEN/NO_KV */
    :: d_step { w1 == 6 && net & 4194304 -> w1 = 4 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/NO_KV */
    :: d_step { w1 == 6 && net & 16777216 -> w1 = 12; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 -> w1 = 2; net = net | 65536 }  /* OPEN/WAITING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 && (net & 131072) != 131072 -> net = net | 131072 }  /* OPEN/WAITING  beat */
    :: d_step { w1 == 7 && net & 4194304 -> w1 = 8 }  /* OPEN/WAITING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 7 && net & 4194304 -> w1 = 9; net = net | 65536 }  /* OPEN/WAITING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 7 && net & 67108864 -> w1 = 8 }  /* OPEN/WAITING  MARK  OPEN/GATHERING */
    :: d_step { w1 == 7 && net & 67108864 -> w1 = 9; net = net | 65536 }  /* OPEN/WAITING  MARK late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 8 -> w1 = 14; assert(m1 == STILL); m1 = STAGED }  /* OPEN/GATHERING  gathered  OPEN/WRITING */
    :: d_step { w1 == 8 -> w1 = 9; net = net | 65536 }  /* OPEN/GATHERING  gathered late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 9 && net & 33554432 -> w1 = 15; assert(m1 == STILL); m1 = PAGED }  /* OPEN/ASKING_PAGES  PAGES  OPEN/SLICING */
    :: d_step { w1 == 9 && net & 33554432 && (net & 65536) != 65536 -> net = net | 65536 }  /* OPEN/ASKING_PAGES  PAGES late */
    :: d_step { w1 == 10 -> w1 = 9; net = net | 65536 }  /* OPEN/ASKING  timer  OPEN/ASKING_PAGES */
    :: d_step { w1 == 10 && (net & 32768) != 32768 -> net = net | 32768 }  /* OPEN/ASKING  beat */
    :: d_step { w1 == 10 && net & 2097152 -> w1 = 8 }  /* OPEN/ASKING  RSP_WAIT  OPEN/GATHERING */
    :: d_step { w1 == 10 && net & 2097152 -> w1 = 9; net = net | 65536 }  /* OPEN/ASKING  RSP_WAIT late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 10 && net & 4194304 -> w1 = 8 }  /* OPEN/ASKING  RSP_OPEN  OPEN/GATHERING */
    :: d_step { w1 == 10 && net & 4194304 -> w1 = 9; net = net | 65536 }  /* OPEN/ASKING  RSP_OPEN late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 10 && net & 16777216 -> w1 = 9; net = net | 65536 }  /* OPEN/ASKING  DENIED  OPEN/ASKING_PAGES */
    :: d_step { w1 == 11 && net & 4194304 -> w1 = 15 }  /* OPEN/SLICING  RSP_OPEN  OPEN/SLICING */
    :: d_step { w1 == 11 && net & 4194304 -> w1 = 15 }  /* OPEN/SLICING  RSP_OPEN late  OPEN/SLICING */
    :: d_step { w1 == 11 && net & 67108864 -> w1 = 15 }  /* OPEN/SLICING  MARK  OPEN/SLICING */
    :: d_step { w1 == 11 && net & 67108864 -> w1 = 15 }  /* OPEN/SLICING  MARK late  OPEN/SLICING */
    :: d_step { w1 == 11 && (m1 == LANDED) -> m1 = STILL; w1 = 16; net = net | 524288 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w1 == 12 -> w1 = 9 }  /* OPEN/ASKING_PAGES  produce  OPEN/ASKING_PAGES */
    :: d_step { w1 == 12 -> w1 = 9 }  /* OPEN/ASKING_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 12 && net & 33554432 -> w1 = 17 }  /* OPEN/ASKING_PAGES  PAGES  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 12 && net & 33554432 -> w1 = 17 }  /* OPEN/ASKING_PAGES  PAGES late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 13 -> w1 = 11; assert(m1 == STILL); m1 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w1 == 13 -> w1 = 2; net = net | 65536 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 13 && net & 4194304 -> w1 = 17 }  /* OPEN/NO_KV_FOR_PAGES  RSP_OPEN  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 13 && net & 4194304 -> w1 = 17 }  /* OPEN/NO_KV_FOR_PAGES  RSP_OPEN late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 13 && net & 67108864 -> w1 = 17 }  /* OPEN/NO_KV_FOR_PAGES  MARK  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 13 && net & 67108864 -> w1 = 17 }  /* OPEN/NO_KV_FOR_PAGES  MARK late  OPEN/NO_KV_FOR_PAGES */
    :: d_step { w1 == 14 && (m1 == LANDED) -> m1 = STILL; w1 = 18; net = net | 262144 }  /* OPEN/WRITING  completed  OPEN/TELLING */
    :: d_step { w1 == 15 && (m1 == LANDED) -> m1 = STILL; w1 = 19; net = net | 524288 }  /* OPEN/SLICING  completed  OPEN/TELLING */
    :: d_step { w1 == 16 && net & 4194304 -> w1 = 19 }  /* OPEN/TELLING  RSP_OPEN  OPEN/TELLING */
    :: d_step { w1 == 16 && net & 4194304 -> w1 = 19 }  /* OPEN/TELLING  RSP_OPEN late  OPEN/TELLING */
    :: d_step { w1 == 16 && net & 67108864 -> w1 = 19 }  /* OPEN/TELLING  MARK  OPEN/TELLING */
    :: d_step { w1 == 16 && net & 67108864 -> w1 = 19 }  /* OPEN/TELLING  MARK late  OPEN/TELLING */
    :: d_step { w1 == 16 && net & 134217728 -> w1 = 20; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 17 -> w1 = 15; assert(m1 == STILL); m1 = PAGED }  /* OPEN/NO_KV_FOR_PAGES  produce  OPEN/SLICING */
    :: d_step { w1 == 17 -> w1 = 9; net = net | 65536 }  /* OPEN/NO_KV_FOR_PAGES  produce late  OPEN/ASKING_PAGES */
    :: d_step { w1 == 18 && net & 134217728 -> w1 = 21; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 19 && net & 134217728 -> w1 = 21; assert(!FLYING(m1))  /* S4 */; assert(m1 == STILL && (failed || s1 || p1))  /* S6 */; over1 = 1 }  /* OPEN/TELLING  ACK  DONE/NONE */
    :: d_step { w1 == 20 && net & 4194304 -> w1 = 21 }  /* DONE/NONE  RSP_OPEN  DONE/NONE */
    :: d_step { w1 == 20 && net & 4194304 -> w1 = 21 }  /* DONE/NONE  RSP_OPEN late  DONE/NONE */
    :: d_step { w1 == 20 && net & 67108864 -> w1 = 21 }  /* DONE/NONE  MARK  DONE/NONE */
    :: d_step { w1 == 20 && net & 67108864 -> w1 = 21 }  /* DONE/NONE  MARK late  DONE/NONE */
    od
}

active proctype reader() {
    do
    :: d_step { over0 && over1 && over2 -> skip }
    :: d_step { r == 0 -> r = 1 }  /* OPEN/NONE  other freed  OPEN/NONE */
    :: d_step { r == 0 && net & 1 -> r = 2; net = net | 64 }  /* OPEN/NONE  REQ  OPEN/FILLING */
    :: d_step { r == 0 && net & 2 -> r = 3; net = net | 1024 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 0 && net & 32768 -> r = 4; net = net | 2097152 }  /* OPEN/NONE  REQ  OPEN/FILLING */
    :: d_step { r == 0 && net & 65536 -> r = 3; net = net | 33554432 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 1 && net & 1 -> r = 5; open = 1; net = net | 128 }  /* OPEN/NONE  REQ  OPEN/FILLING */
    :: d_step { r == 1 && net & 2 -> r = 6; net = net | 1024 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 1 && net & 32768 -> r = 7; open = 1; net = net | 4194304 }  /* OPEN/NONE  REQ  OPEN/FILLING */
    :: d_step { r == 1 && net & 65536 -> r = 6; net = net | 33554432 }  /* OPEN/NONE  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 1 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/NONE  MARK_REQ */
    :: d_step { r == 1 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/NONE  MARK_REQ */
    :: d_step { r == 2 -> r = 5; open = 1; net = net | 2048 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 2 && net & 1 && (net & 64) != 64 -> net = net | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 2 && net & 2 -> r = 8; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 2 && net & 32768 -> r = 9; net = net | 2097152 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 2 && net & 65536 -> r = 10; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 2 && net & 8 -> r = 18; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 2 && net & 262144 -> r = 19; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 3 -> r = 6 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 3 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 3 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 3 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 3 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 3 && net & 16 -> r = 20; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 3 && net & 524288 -> r = 21; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 4 -> r = 7; open = 1; net = net | 67108864 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 4 && net & 1 -> r = 9; net = net | 64 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 4 && net & 2 -> r = 11; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 4 && net & 32768 && (net & 2097152) != 2097152 -> net = net | 2097152 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 4 && net & 65536 -> r = 12; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 4 && net & 8 -> r = 22; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 4 && net & 262144 -> r = 23; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 5 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 5 && net & 2 -> r = 13; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 5 && net & 32768 -> r = 14; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 5 && net & 65536 -> r = 15; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 5 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 5 && net & 8 -> r = 24; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 5 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 5 && net & 262144 -> r = 25; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 6 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 6 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 6 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 6 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 6 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 6 && net & 16 -> r = 26; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 6 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 6 && net & 524288 -> r = 27; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  OPEN/FILLING_PAGES */
    :: d_step { r == 7 && net & 1 -> r = 14; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 7 && net & 2 -> r = 16; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 7 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 7 && net & 65536 -> r = 17; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 7 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 7 && net & 8 -> r = 28; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 7 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 7 && net & 262144 -> r = 29; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 8 -> r = 13; open = 1 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 8 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 8 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 8 && net & 32768 -> r = 11; net = net | 2097152 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 8 && net & 65536 -> r = 3; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 8 && net & 16 -> r = 30; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 8 && net & 262144 -> r = 31; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 9 -> r = 14; open = 1; net = net | 67110912 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 9 && net & 1 && (net & 64) != 64 -> net = net | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 9 && net & 2 -> r = 11; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 9 && net & 32768 && (net & 2097152) != 2097152 -> net = net | 2097152 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 9 && net & 65536 -> r = 10; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 9 && net & 8 -> r = 22; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 9 && net & 262144 -> r = 19; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 10 -> r = 15; open = 1; net = net | 2048 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 10 && net & 1 && (net & 64) != 64 -> net = net | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 10 && net & 2 -> r = 3; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 10 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 10 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 10 && net & 8 -> r = 32; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 10 && net & 524288 -> r = 33; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 11 -> r = 16; open = 1; net = net | 67108864 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 11 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 11 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 11 && net & 32768 && (net & 2097152) != 2097152 -> net = net | 2097152 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 11 && net & 65536 -> r = 3; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 11 && net & 16 -> r = 34; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 11 && net & 262144 -> r = 31; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 12 -> r = 17; open = 1 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 12 && net & 1 -> r = 10; net = net | 64 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 12 && net & 2 -> r = 3; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 12 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 12 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 12 && net & 8 -> r = 32; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 12 && net & 524288 -> r = 35; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 13 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 13 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 13 && net & 32768 -> r = 16; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 13 && net & 65536 -> r = 6; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 13 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 13 && net & 16 -> r = 36; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 13 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 13 && net & 262144 -> r = 37; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 14 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 14 && net & 2 -> r = 16; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 14 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 14 && net & 65536 -> r = 15; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 14 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 14 && net & 8 -> r = 28; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 14 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 14 && net & 262144 -> r = 25; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 15 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 15 && net & 2 -> r = 6; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 15 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 15 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 15 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 15 && net & 8 -> r = 38; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 15 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 15 && net & 524288 -> r = 39; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 16 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 16 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 16 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 16 && net & 65536 -> r = 6; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 16 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 16 && net & 16 -> r = 40; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 16 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 16 && net & 262144 -> r = 37; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 17 && net & 1 -> r = 15; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 17 && net & 2 -> r = 6; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 17 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 17 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 17 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 17 && net & 8 -> r = 38; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/FILLING */
    :: d_step { r == 17 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 17 && net & 524288 -> r = 41; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/FILLING */
    :: d_step { r == 18 -> r = 24; open = 1 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 18 && net & 1 && (net & 64) != 64 -> net = net | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 18 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 18 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 18 && net & 32768 -> r = 22; net = net | 2097152 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 18 && net & 65536 -> r = 32; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 18 && net & 262144 -> r = 42; assert(s0 && s1)  /* S3 */; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 19 -> r = 25; open = 1; net = net | 2048 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 19 && net & 1 && (net & 64) != 64 -> net = net | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 19 && net & 2 -> r = 31; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 19 && net & 8 -> r = 42; assert(s0 && s1)  /* S3 */; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 19 && net & 32768 && (net & 2097152) != 2097152 -> net = net | 2097152 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 19 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 19 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 20 -> r = 26 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 20 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 20 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 20 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 20 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 20 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 20 && net & 524288 -> r = 43; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 21 -> r = 27 }  /* OPEN/FILLING_PAGES  other freed  OPEN/FILLING_PAGES */
    :: d_step { r == 21 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 21 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 21 && net & 16 -> r = 43; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 21 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 21 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 21 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 22 -> r = 28; open = 1; net = net | 67108864 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 22 && net & 1 && (net & 64) != 64 -> net = net | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 22 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 22 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 22 && net & 32768 && (net & 2097152) != 2097152 -> net = net | 2097152 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 22 && net & 65536 -> r = 32; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 22 && net & 262144 -> r = 42; assert(s0 && s1)  /* S3 */; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 23 -> r = 29; open = 1 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 23 && net & 1 -> r = 19; net = net | 64 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 23 && net & 2 -> r = 31; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 23 && net & 8 -> r = 42; assert(s0 && s1)  /* S3 */; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 23 && net & 32768 && (net & 2097152) != 2097152 -> net = net | 2097152 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 23 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 23 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 24 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 24 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 24 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 24 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 24 && net & 32768 -> r = 28; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 24 && net & 65536 -> r = 38; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 24 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 24 && net & 262144 -> r = 44; assert(s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 25 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 25 && net & 2 -> r = 37; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 25 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 25 && net & 8 -> r = 44; assert(s0 && s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 25 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 25 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 25 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 25 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 26 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 26 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 26 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 26 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 26 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 26 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 26 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 26 && net & 524288 -> r = 45; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 27 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 27 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING_PAGES  PAGES_REQ */
    :: d_step { r == 27 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 27 && net & 16 -> r = 45; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1; net = net | 4096 }  /* OPEN/FILLING_PAGES  NOTE_PAGES  DONE/NONE */
    :: d_step { r == 27 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING_PAGES  REQ */
    :: d_step { r == 27 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING_PAGES  MARK_REQ */
    :: d_step { r == 27 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_STAGED */
    :: d_step { r == 27 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING_PAGES  NOTE_PAGES */
    :: d_step { r == 28 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 28 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 28 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 28 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 28 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 28 && net & 65536 -> r = 38; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 28 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 28 && net & 262144 -> r = 44; assert(s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 29 && net & 1 -> r = 25; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 29 && net & 2 -> r = 37; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING */
    :: d_step { r == 29 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 29 && net & 8 -> r = 44; assert(s0 && s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 29 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 29 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 29 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 29 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 30 -> r = 36; open = 1 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 30 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 30 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 30 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 30 && net & 32768 -> r = 34; net = net | 2097152 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 30 && net & 65536 -> r = 20; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 30 && net & 262144 -> r = 42; assert(p0 && !s0 && s1)  /* S3 */; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 31 -> r = 37; open = 1 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 31 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 31 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 31 && net & 16 -> r = 42; assert(p0 && !s0 && s1)  /* S3 */; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 31 && net & 32768 && (net & 2097152) != 2097152 -> net = net | 2097152 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 31 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 31 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 32 -> r = 38; open = 1 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 32 && net & 1 && (net & 64) != 64 -> net = net | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 32 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 32 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 32 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 32 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 32 && net & 524288 -> r = 42; assert(s0 && p1 && !s1)  /* S3 */; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 33 -> r = 39; open = 1; net = net | 2048 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 33 && net & 1 && (net & 64) != 64 -> net = net | 64 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 33 && net & 2 -> r = 21; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 33 && net & 8 -> r = 42; assert(s0 && p1 && !s1)  /* S3 */; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 33 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 33 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 33 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 34 -> r = 40; open = 1; net = net | 67108864 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 34 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 34 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 34 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 34 && net & 32768 && (net & 2097152) != 2097152 -> net = net | 2097152 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 34 && net & 65536 -> r = 20; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 34 && net & 262144 -> r = 42; assert(p0 && !s0 && s1)  /* S3 */; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 35 -> r = 41; open = 1 }  /* OPEN/FILLING  other freed  OPEN/FILLING */
    :: d_step { r == 35 && net & 1 -> r = 33; net = net | 64 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 35 && net & 2 -> r = 21; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 35 && net & 8 -> r = 42; assert(s0 && p1 && !s1)  /* S3 */; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 35 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 35 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 35 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 36 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 36 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 36 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 36 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 36 && net & 32768 -> r = 40; net = net | 4194304 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 36 && net & 65536 -> r = 26; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 36 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 36 && net & 262144 -> r = 44; assert(p0 && !s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 37 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 37 && net & 2 && (net & 1024) != 1024 -> net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 37 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 37 && net & 16 -> r = 44; assert(p0 && !s0 && s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 37 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 37 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 37 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 37 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 38 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 38 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 38 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 38 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 38 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 38 && net & 65536 && (net & 33554432) != 33554432 -> net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ */
    :: d_step { r == 38 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 38 && net & 524288 -> r = 44; assert(s0 && p1 && !s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES  OPEN/SCATTERING */
    :: d_step { r == 39 && net & 1 && (net & 128) != 128 -> net = net | 128 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 39 && net & 2 -> r = 27; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 39 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 39 && net & 8 -> r = 44; assert(s0 && p1 && !s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 39 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 39 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 39 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 39 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 40 && net & 1 && (net & 512) != 512 -> net = net | 512 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 40 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 40 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 40 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 40 && net & 32768 && (net & 4194304) != 4194304 -> net = net | 4194304 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 40 && net & 65536 -> r = 26; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 33554432 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 40 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 40 && net & 262144 -> r = 44; assert(p0 && !s0 && s1)  /* S3 */; open = 0; net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 41 && net & 1 -> r = 39; net = net | 128 }  /* OPEN/FILLING  REQ  OPEN/FILLING */
    :: d_step { r == 41 && net & 2 -> r = 27; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; open = 0; net = net | 1024 }  /* OPEN/FILLING  PAGES_REQ  OPEN/FILLING_PAGES */
    :: d_step { r == 41 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 41 && net & 8 -> r = 44; assert(s0 && p1 && !s1)  /* S3 */; open = 0; net = net | 4096 }  /* OPEN/FILLING  NOTE_STAGED  OPEN/SCATTERING */
    :: d_step { r == 41 && net & 32768 && (net & 16777216) != 16777216 -> net = net | 16777216 }  /* OPEN/FILLING  REQ */
    :: d_step { r == 41 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/FILLING  MARK_REQ */
    :: d_step { r == 41 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_STAGED */
    :: d_step { r == 41 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/FILLING  NOTE_PAGES */
    :: d_step { r == 42 -> r = 44 }  /* OPEN/SCATTERING  other freed  OPEN/SCATTERING */
    :: d_step { r == 42 -> r = 43; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 42 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 42 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 42 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 42 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 43 -> r = 45 }  /* DONE/NONE  other freed  DONE/NONE */
    :: d_step { r == 43 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 43 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 43 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 43 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 44 -> r = 45; p0 = p0 | s0; p1 = p1 | s1; assert(!TO_RING(m0) && !TO_RING(m1))  /* S4 */; s0 = 0; s1 = 0; assert(!FLYING(m0) && !FLYING(m1))  /* S4 */; assert(p0 && p1)  /* S5 */; over2 = 1 }  /* OPEN/SCATTERING  scattered  DONE/NONE */
    :: d_step { r == 44 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 44 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 44 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 44 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* OPEN/SCATTERING  MARK_REQ */
    :: d_step { r == 44 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/SCATTERING  NOTE_STAGED */
    :: d_step { r == 44 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* OPEN/SCATTERING  NOTE_PAGES */
    :: d_step { r == 45 && net & 4 && (net & 2048) != 2048 -> net = net | 2048 }  /* DONE/NONE  MARK_REQ */
    :: d_step { r == 45 && net & 8 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 45 && net & 16 && (net & 4096) != 4096 -> net = net | 4096 }  /* DONE/NONE  NOTE_PAGES */
    :: d_step { r == 45 && net & 131072 && (net & 67108864) != 67108864 -> net = net | 67108864 }  /* DONE/NONE  MARK_REQ */
    :: d_step { r == 45 && net & 262144 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_STAGED */
    :: d_step { r == 45 && net & 524288 && (net & 134217728) != 134217728 -> net = net | 134217728 }  /* DONE/NONE  NOTE_PAGES */
    od
}

