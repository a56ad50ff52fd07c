-------------------------------- MODULE Pool --------------------------------
(* The transition relation of the reference pool, written once more and      *)
(* independently, to be explored by TLC: one block a command, least recently *)
(* used eviction, several carriers of a hash, another hash replaces the old. *)
(* A command that would change nothing is not a step.                        *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Blocks, Hashes, MaxReferences, None

VARIABLES references, hash, queue
vars == <<references, hash, queue>>

Symmetry == Permutations(Blocks) \cup Permutations(Hashes)

Orders == {order \in [1..Cardinality(Blocks) -> Blocks] :
             \A i, j \in DOMAIN order : i # j => order[i] # order[j]}

Init == /\ references = [block \in Blocks |-> 0]
        /\ hash = [block \in Blocks |-> None]
        /\ queue = CHOOSE order \in Orders : TRUE

Without(block) == SelectSeq(queue, LAMBDA other : other # block)

Allocate == /\ Len(queue) > 0
            /\ references' = [references EXCEPT ![Head(queue)] = 1]
            /\ hash' = [hash EXCEPT ![Head(queue)] = None]
            /\ queue' = Tail(queue)

(* No disjunction and no quantifier over blocks in a condition: TLC would     *)
(* count the step once for each way to satisfy it.                           *)
Touch(block) == /\ references[block] = 0 => hash[block] # None
                /\ references[block] < MaxReferences
                /\ references' = [references EXCEPT ![block] = @ + 1]
                /\ queue' = IF references[block] = 0 THEN Without(block) ELSE queue
                /\ UNCHANGED hash

Free(block) == /\ references[block] > 0
               /\ references' = [references EXCEPT ![block] = @ - 1]
               /\ queue' = IF references[block] = 1 THEN Append(queue, block) ELSE queue
               /\ UNCHANGED hash

Cache(block, new) == /\ references[block] > 0
                     /\ hash[block] # new
                     /\ hash' = [hash EXCEPT ![block] = new]
                     /\ UNCHANGED <<references, queue>>

Evict(block) == /\ hash[block] # None
                /\ hash' = [hash EXCEPT ![block] = None]
                /\ UNCHANGED <<references, queue>>

Reset == /\ Len(queue) = Cardinality(Blocks)
         /\ hash # [block \in Blocks |-> None]
         /\ hash' = [block \in Blocks |-> None]
         /\ UNCHANGED <<references, queue>>

Next == \/ Allocate
        \/ Reset
        \/ \E block \in Blocks : \/ Touch(block)
                                 \/ Free(block)
                                 \/ Evict(block)
                                 \/ \E new \in Hashes : Cache(block, new)

Spec == Init /\ [][Next]_vars

Queued(block) == \E place \in DOMAIN queue : queue[place] = block

(* I1 in both directions, and no block stands in the queue twice. *)
Invariant == /\ \A block \in Blocks : references[block] = 0 <=> Queued(block)
             /\ \A i, j \in DOMAIN queue : i # j => queue[i] # queue[j]
=============================================================================
