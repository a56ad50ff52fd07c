// Serves a block allocator written in JavaScript to `poolproof certify 'cmd:node program.mjs'`.
//
// Call serve(description, create): commands are read from standard input and answered on standard
// output, one JSON object a line (docs/protocol.md).  What the allocator itself wants to say
// belongs on standard error (console.error).  A verb refuses by throwing a Refusal; whatever else
// it throws is told as an error of the command.

const PROTOCOL = 1;

/** Thrown by a verb that refuses; then nothing may have changed. */
export class Refusal extends Error {}

/** What the contract calls verbs and observers, as methods of this language. */
const VERBS = {
  allocate: (pool, command) => pool.allocate(command.count),
  touch: (pool, command) => pool.touch(command.block_ids),
  free: (pool, command) => pool.free(command.block_ids),
  cache: (pool, command) => pool.cache(command.block_ids, command.hashes),
  lookup: (pool, command) => pool.lookup(command.block_hash),
  evict: (pool, command) => pool.evict(command.block_ids),
  reset: (pool) => pool.reset(),
};
const OBSERVERS = {
  free_order: (pool) => pool.freeOrder(),
  ref_count: (pool, command) => pool.refCount(command.block_id),
  block_hash: (pool, command) => pool.blockHash(command.block_id),
  free_neighbours: (pool, command) => pool.freeNeighbours(command.block_id),
};
const PARTS = {
  ref_counts: (pool, id) => pool.refCount(id),
  block_hashes: (pool, id) => pool.blockHash(id),
  neighbours: (pool, id) => pool.freeNeighbours(id),
};

/** One instance, with what was shown of it last. */
class Run {
  constructor(pool, message) {
    this.pool = pool;
    this.blocks = Array.from({ length: message.num_blocks }, (_, id) => id);
    this.showsState = message.show === "state";
    this.shown = {};
    this.named = new Set();
  }

  /** The parts of the state that are not as they were when they were shown last. */
  changes() {
    if (!this.showsState) return {};
    const state = { num_free: this.pool.numFree(), free_order: this.pool.freeOrder() };
    for (const [name, show] of Object.entries(PARTS)) {
      state[name] = this.blocks.map((id) => show(this.pool, id));
    }
    state.lookups = [...this.named].map((hash) => this.pool.lookup(hash));
    const changes = {};
    for (const [name, value] of Object.entries(state)) {
      const text = JSON.stringify(value);
      if (this.shown[name] === text) continue;
      this.shown[name] = text;
      changes[name] = value;
    }
    return changes;
  }

  answer(command) {
    if (command.do === "num_free") return { result: this.pool.numFree() };
    const question = OBSERVERS[command.do];
    if (question) return { result: question(this.pool, command) };
    const verb = VERBS[command.do];
    if (!verb) return { skipped: `this program has no ${command.do}` };
    for (const hash of command.hashes ?? []) this.named.add(hash);
    if (command.block_hash) this.named.add(command.block_hash);
    try {
      const result = verb(this.pool, command);
      return { ...(result === undefined ? {} : { result }), ...this.changes() };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return { refused: error.message, ...this.changes() };
    }
  }

  answers(commands) {
    const answers = [];
    for (const command of commands) {
      try {
        answers.push(this.answer(command));
      } catch (error) {
        console.error(error);
        answers.push({ error: String(error) });
        break; // what it does from here on means nothing
      }
    }
    return answers;
  }
}

/** Serve the allocators that create(numBlocks, enableCaching) makes. */
export function serve(description, create) {
  let run = null;
  const messages = {
    start: (message) => ({
      protocol: PROTOCOL,
      // Whoever speaks a later version understands this one, too.
      ...(message.protocol >= PROTOCOL
        ? {
            level: "pool",
            verbs: Object.keys(VERBS),
            observers: Object.keys(OBSERVERS),
            ...description,
          }
        : { error: `this program speaks protocol ${PROTOCOL}` }),
    }),
    run: (message) => {
      run = new Run(create(message.num_blocks, message.enable_caching), message);
      const state = run.showsState ? { state: run.changes() } : {};
      return { ...state, answers: run.answers(message.commands) };
    },
    continue: (message) => ({ answers: run.answers(message.commands) }),
    stop: () => ({}),
  };
  const answer = (line) => {
    const message = JSON.parse(line);
    let found;
    try {
      found = messages[message.do](message);
    } catch (error) {
      console.error(error);
      found = { error: String(error) };
    }
    process.stdout.write(`${JSON.stringify({ seq: message.seq, ...found })}\n`);
    if (message.do === "stop") process.stdin.destroy();
  };
  let rest = "";
  process.stdin.setEncoding("utf8");
  process.stdin.on("data", (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    lines.forEach(answer);
  });
}
