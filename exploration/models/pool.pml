/* The transition relation of the reference pool, written once more and independently, to be
   explored by SPIN: as in Pool.tla. Sizes come from the command line:

       spin -DBLOCKS=4 -DHASHES=2 -DREFERENCES=2 -a pool.pml

   up to 8 blocks and 3 hashes. SPIN erases no ids: it counts states, and one more, the one in
   which the queue has not been filled yet. */

byte references[BLOCKS];
byte hash[BLOCKS];      /* 0: none */
byte queue[BLOCKS];     /* ids from 1, head first; 0 behind the end */
byte length;
hidden byte i, j, seen;

inline leave_queue(block) {
  i = 0; j = 0;
  do
  :: i < length ->
     if :: queue[i] != block -> queue[j] = queue[i]; j++ :: else fi;
     i++
  :: else -> break
  od;
  length = j;
  do :: j < BLOCKS -> queue[j] = 0; j++ :: else -> break od
}

/* I1 in both directions, and no block stands in the queue twice. */
inline check() {
  i = 0;
  do
  :: i < BLOCKS ->
     seen = 0; j = 0;
     do
     :: j < length -> if :: queue[j] == i + 1 -> seen++ :: else fi; j++
     :: else -> break
     od;
     assert((references[i] == 0 && seen == 1) || (references[i] > 0 && seen == 0));
     i++
  :: else -> break
  od;
  seen = 0   /* a d_step may not end with the end of a loop */
}

inline forget_all() {
  i = 0;
  do :: i < BLOCKS -> hash[i] = 0; i++ :: else -> break od
}

#define CACHE(b, h) \
  :: d_step { references[b] > 0 && hash[b] != h -> hash[b] = h; check() }

#if HASHES == 1
#define CACHES(b) CACHE(b, 1)
#elif HASHES == 2
#define CACHES(b) CACHE(b, 1) CACHE(b, 2)
#elif HASHES == 3
#define CACHES(b) CACHE(b, 1) CACHE(b, 2) CACHE(b, 3)
#endif

#define BLOCK(b) \
  :: d_step { (references[b] > 0 || hash[b] != 0) && references[b] < REFERENCES -> \
       if :: references[b] == 0 -> leave_queue(b + 1) :: else fi; \
       references[b]++; check() } \
  :: d_step { references[b] > 0 -> references[b]--; \
       if :: references[b] == 0 -> queue[length] = b + 1; length++ :: else fi; check() } \
  :: d_step { hash[b] != 0 -> hash[b] = 0; check() } \
  CACHES(b)

#define HASHED(b) hash[b] != 0

init {
  d_step {
    length = BLOCKS; i = 0;
    do :: i < BLOCKS -> queue[i] = i + 1; i++ :: else -> break od
  }
  do
  :: d_step { length > 0 -> i = queue[0] - 1; references[i] = 1; hash[i] = 0;
       seen = queue[0]; leave_queue(seen); check() }
  :: d_step { length == BLOCKS && (HASHED(0)
#if BLOCKS > 1
       || HASHED(1)
#endif
#if BLOCKS > 2
       || HASHED(2)
#endif
#if BLOCKS > 3
       || HASHED(3)
#endif
#if BLOCKS > 4
       || HASHED(4)
#endif
#if BLOCKS > 5
       || HASHED(5)
#endif
#if BLOCKS > 6
       || HASHED(6)
#endif
#if BLOCKS > 7
       || HASHED(7)
#endif
     ) -> forget_all(); check() }
  BLOCK(0)
#if BLOCKS > 1
  BLOCK(1)
#endif
#if BLOCKS > 2
  BLOCK(2)
#endif
#if BLOCKS > 3
  BLOCK(3)
#endif
#if BLOCKS > 4
  BLOCK(4)
#endif
#if BLOCKS > 5
  BLOCK(5)
#endif
#if BLOCKS > 6
  BLOCK(6)
#endif
#if BLOCKS > 7
  BLOCK(7)
#endif
  od
}
