// A block pool: a linked list of free blocks in the order of their last use, and a prefix index.
//
//     poolproof certify 'cmd:node lru_pool.mjs'
//     poolproof certify 'cmd:node lru_pool.mjs --bug two-loops'     is refused

import { argv, exit } from "node:process";

import { Refusal, serve } from "./poolproof_serve.mjs";

const NOWHERE = -1;

/**
 * With `freesInTwoLoops` one call that names a block twice queues it twice: the planted bug, which
 * vLLM had (#42571).
 */
class LruPool {
  constructor(numBlocks, enableCaching, freesInTwoLoops) {
    this.ring = numBlocks; // stands between the tail of the free queue and its head
    this.enableCaching = enableCaching;
    this.freesInTwoLoops = freesInTwoLoops;
    this.numFreeBlocks = 0;
    this.references = new Int32Array(numBlocks);
    this.before = new Int32Array(numBlocks + 1).fill(NOWHERE);
    this.after = new Int32Array(numBlocks + 1).fill(NOWHERE);
    this.before[this.ring] = this.after[this.ring] = this.ring;
    this.hashes = new Array(numBlocks).fill(null);
    this.carriers = new Map(); // from a hash to the set of blocks that carry it
    for (let id = 0; id < numBlocks; id += 1) this.joinAtTail(id);
  }

  joinAtTail(id) {
    const last = this.before[this.ring];
    this.before[id] = last;
    this.after[id] = this.ring;
    this.after[last] = this.before[this.ring] = id;
    this.numFreeBlocks += 1;
  }

  leaveQueue(id) {
    this.after[this.before[id]] = this.after[id];
    this.before[this.after[id]] = this.before[id];
    this.before[id] = this.after[id] = NOWHERE;
    this.numFreeBlocks -= 1;
  }

  dropHash(id) {
    const hash = this.hashes[id];
    if (hash === null) return;
    const carriers = this.carriers.get(hash);
    carriers.delete(id);
    if (carriers.size === 0) this.carriers.delete(hash);
    this.hashes[id] = null;
  }

  requireExisting(ids) {
    for (const id of ids) {
      if (!(id >= 0 && id < this.ring)) throw new Refusal(`there is no block ${id}`);
    }
  }

  allocate(count) {
    if (count < 0) throw new Refusal(`cannot allocate ${count} blocks`);
    if (count > this.numFreeBlocks) throw new Refusal(`${count} blocks wanted, ${this.numFreeBlocks} free`);
    const taken = [];
    while (taken.length < count) {
      const id = this.after[this.ring];
      this.leaveQueue(id);
      this.dropHash(id);
      this.references[id] = 1;
      taken.push(id);
    }
    return taken;
  }

  touch(ids) {
    this.requireExisting(ids);
    for (const id of ids) {
      if (this.references[id] === 0) this.leaveQueue(id);
      this.references[id] += 1;
    }
  }

  free(ids) {
    this.requireExisting(ids);
    const times = new Map();
    for (const id of ids) times.set(id, (times.get(id) ?? 0) + 1);
    for (const [id, count] of times) {
      if (count > this.references[id]) throw new Refusal(`block ${id} is held less often`);
    }
    if (this.freesInTwoLoops) {
      for (const id of ids) this.references[id] -= 1;
      for (const id of ids) if (this.references[id] === 0) this.joinAtTail(id);
      return;
    }
    for (const id of ids) {
      this.references[id] -= 1;
      if (this.references[id] === 0) this.joinAtTail(id);
    }
  }

  cache(ids, hashes) {
    if (!this.enableCaching) return;
    if (ids.length !== hashes.length) throw new Refusal("lists of unequal length");
    this.requireExisting(ids);
    if (new Set(ids).size < ids.length) throw new Refusal("a block twice");
    if (ids.some((id) => this.references[id] === 0)) throw new Refusal("nobody holds a block");
    ids.forEach((id, place) => {
      const hash = hashes[place];
      if (this.hashes[id] === hash) return;
      this.dropHash(id);
      this.hashes[id] = hash;
      if (!this.carriers.has(hash)) this.carriers.set(hash, new Set());
      this.carriers.get(hash).add(id);
    });
  }

  lookup(hash) {
    for (const id of this.carriers.get(hash) ?? []) return id;
    return null;
  }

  evict(ids) {
    if (!this.enableCaching) return;
    this.requireExisting(ids);
    for (const id of ids) this.dropHash(id);
  }

  reset() {
    if (this.numFreeBlocks !== this.ring) return false;
    for (let id = 0; id < this.ring; id += 1) this.dropHash(id);
    return true;
  }

  numFree() {
    return this.numFreeBlocks;
  }

  /** Follows one link more than there are blocks, in case the list is broken. */
  freeOrder() {
    const order = [];
    for (let id = this.after[this.ring]; id !== this.ring && id !== NOWHERE; id = this.after[id]) {
      if (order.push(id) > this.ring) break;
    }
    return order;
  }

  refCount(id) {
    return this.references[id];
  }

  blockHash(id) {
    return this.hashes[id];
  }

  freeNeighbours(id) {
    if (this.before[id] === NOWHERE) return null;
    return [this.before[id], this.after[id]].map((other) => (other === this.ring ? null : other));
  }
}

const planted = argv.slice(2).join(" ");
if (planted !== "" && planted !== "--bug two-loops") {
  console.error("usage: lru_pool.mjs [--bug two-loops]");
  exit(2);
}
const profile = { eviction: "lru", duplicates: "kept", recache: "replace", misuse: "raises" };
serve(
  { name: "lru-pool-javascript", version: "1", profile },
  (numBlocks, enableCaching) => new LruPool(numBlocks, enableCaching, planted !== ""),
);
