//! An engine over the manager of `lru-manager`: first come, first served.
//!
//! A prompt is computed in chunks, as far as the budget of a step goes. Where a request needs a slot
//! and no block is free, the last one that runs gives way: it loses its blocks, and goes back to the
//! head of those that wait, to be computed anew, with what it was given since. Requests run in the
//! order in which they came, so the first one always gets on.
//!
//! A block can be found by others once the step that computed it is answered, which is when the
//! manager hears of the step. Not covered: several steps in flight, drafts, priorities.

use lru_manager::LruManager;
use poolproof::{Admission, Engine, ExtraKey, Manager, Output, Part, Plan};
use std::collections::VecDeque;

/// The most positions, and the most requests, of a step: what `PROFILE` says.
const MOST_TOKENS: usize = 16;
const MOST_RUNNING: usize = 4;

/// A request ends where this is sampled.
const STOP_TOKEN: i64 = 0;

struct Request {
    id: i64,
    tokens: Vec<i64>,
    /// It ends when it has so many.
    most_tokens: usize,
    extra_keys: Vec<ExtraKey>,
    /// Of its tokens, those that the manager has slots for, and those that are computed.
    slots: usize,
    computed: usize,
}

/// What the step in flight computes of a request.
struct Planned {
    id: i64,
    count: usize,
    samples: bool,
}

pub struct FcfsEngine {
    manager: LruManager,
    create_manager: Box<dyn Fn() -> LruManager>,
    /// In the order in which they came, all of `running` before all of `waiting`.
    running: Vec<Request>,
    waiting: VecDeque<Request>,
    in_flight: Vec<Planned>,
    /// The planted bug: the first one gives way, of which this step computes something already. Its
    /// blocks go to another, and both are computed into them.
    preempts_the_first: bool,
}

impl FcfsEngine {
    pub fn new(
        num_blocks: usize,
        block_size: usize,
        caching: bool,
        preempts_the_first: bool,
    ) -> Self {
        let create_manager = move || LruManager::new(num_blocks, block_size, caching, false);
        Self {
            manager: create_manager(),
            create_manager: Box::new(create_manager),
            running: Vec::new(),
            waiting: VecDeque::new(),
            in_flight: Vec::new(),
            preempts_the_first,
        }
    }

    /// The running requests go on, the first ones first.
    fn go_on(&mut self, plan: &mut Plan, budget: &mut usize) {
        let ids: Vec<i64> = self.running.iter().map(|request| request.id).collect();
        for id in ids {
            if *budget > 0 && self.make_room(id, plan) {
                self.compute(id, plan, budget);
            }
        }
    }

    /// Slots for all tokens of a request, at the cost of those behind it; false: it gave way itself,
    /// or had done so before.
    fn make_room(&mut self, id: i64, plan: &mut Plan) -> bool {
        while let Some(request) = self.running.iter_mut().find(|request| request.id == id) {
            if self.manager.append(id, &request.tokens[request.slots..]) {
                request.slots = request.tokens.len();
                return true;
            }
            self.preempt(plan);
        }
        false
    }

    /// The last running request gives its blocks back, and waits before all others.
    fn preempt(&mut self, plan: &mut Plan) {
        let last = self.running.len() - 1;
        let victim = if self.preempts_the_first { 0 } else { last };
        let mut request = self.running.remove(victim);
        self.manager.finish(request.id);
        request.slots = 0;
        request.computed = 0;
        plan.preempted.push(request.id);
        self.waiting.push_front(request);
    }

    /// As many positions of a running request as the budget allows.
    fn compute(&mut self, id: i64, plan: &mut Plan, budget: &mut usize) {
        let Some(request) = self.running.iter().find(|request| request.id == id) else {
            return;
        };
        let count = (request.tokens.len() - request.computed).min(*budget);
        *budget -= count;
        self.in_flight.push(Planned {
            id,
            count,
            samples: request.computed + count == request.tokens.len(),
        });
        plan.compute.push(Part {
            request_id: id,
            first: request.computed,
            count,
            blocks: self.manager.block_table(id).to_vec(),
        });
    }

    /// Those that wait begin, in order, while there are seats, blocks and positions for them.
    fn admit(&mut self, plan: &mut Plan, budget: &mut usize) {
        while self.running.len() < MOST_RUNNING && *budget > 0 {
            let Some(mut request) = self.waiting.pop_front() else {
                return;
            };
            let manager = &mut self.manager;
            let Admission::Cached(cached) =
                manager.admit(request.id, &request.tokens, &request.extra_keys)
            else {
                self.waiting.push_front(request);
                return;
            };
            request.slots = request.tokens.len();
            request.computed = cached;
            let id = request.id;
            self.running.push(request);
            self.compute(id, plan, budget);
        }
    }

    /// What a request was given: up to the stop token, and up to its limit.
    fn give(&mut self, id: i64, sampled: &[i64]) -> Option<Output> {
        let all = self.running.iter_mut().chain(&mut self.waiting);
        let request = all.into_iter().find(|request| request.id == id)?;
        let room = request.most_tokens - request.tokens.len();
        let stop = sampled.iter().position(|token| *token == STOP_TOKEN);
        let given = sampled.len().min(room).min(stop.map_or(room, |at| at + 1));
        let tokens = sampled[..given].to_vec();
        request.tokens.extend(&tokens);
        let is_full = request.tokens.len() == request.most_tokens;
        let ended = is_full || tokens.last() == Some(&STOP_TOKEN);
        Some(Output {
            request_id: id,
            tokens,
            ended,
        })
    }
}

impl Engine for FcfsEngine {
    const NAME: &'static str = "fcfs-engine-rust";
    const VERSION: &'static str = "1";
    const PROFILE: &'static str = r#"{"policy":"fcfs","max_batch_tokens":16,"max_running":4}"#;

    fn submit(
        &mut self,
        request_id: i64,
        tokens: Vec<i64>,
        max_new_tokens: usize,
        extra_keys: Vec<ExtraKey>,
    ) {
        self.waiting.push_back(Request {
            id: request_id,
            most_tokens: tokens.len() + max_new_tokens,
            tokens,
            extra_keys,
            slots: 0,
            computed: 0,
        });
    }

    fn plan(&mut self) -> Plan {
        let (mut plan, mut budget) = (Plan::default(), MOST_TOKENS);
        self.go_on(&mut plan, &mut budget);
        // What the preempted gave back is for those who go on.
        if plan.preempted.is_empty() {
            self.admit(&mut plan, &mut budget);
        }
        plan
    }

    fn answer(&mut self, sampled: &[(i64, Vec<i64>)]) -> Vec<Output> {
        let mut outputs = Vec::new();
        for planned in std::mem::take(&mut self.in_flight) {
            let of_it = |request: &&mut Request| request.id == planned.id;
            if let Some(request) = self.running.iter_mut().find(of_it) {
                request.computed += planned.count;
                self.manager.step(&[(planned.id, planned.count)]);
            }
            let found = sampled.iter().find(|(id, _)| *id == planned.id);
            let Some((_, tokens)) = found.filter(|_| planned.samples) else {
                continue;
            };
            // Without an output its user has gone meanwhile.
            outputs.extend(self.give(planned.id, tokens));
        }
        for output in outputs.iter().filter(|output| output.ended) {
            self.cancel(output.request_id);
        }
        outputs
    }

    fn cancel(&mut self, request_id: i64) {
        self.manager.finish(request_id);
        self.running.retain(|request| request.id != request_id);
        self.waiting.retain(|request| request.id != request_id);
    }

    fn reset(&mut self) -> bool {
        let is_idle = self.running.is_empty();
        if is_idle {
            self.manager = (self.create_manager)();
        }
        is_idle
    }

    fn num_free(&self) -> usize {
        self.manager.num_free()
    }

    fn unfinished(&self) -> Vec<i64> {
        let all = self.running.iter().chain(&self.waiting);
        all.map(|request| request.id).collect()
    }
}
