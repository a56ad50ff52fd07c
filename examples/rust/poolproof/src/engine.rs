//! Serves an engine that plans steps: version 3 of the protocol.
//!
//! Not covered: several cache groups, drafts, copies, transfers, priorities.

use crate::json::{list, quoted, Json};
use crate::manager::{extra_keys, ExtraKey};
use crate::messages::{enables_caching, integers, number, numbers, serve_runs, size, Run};
use std::io;

const PROTOCOL: i64 = 3;
const VERBS: &str = r#"["submit","plan","answer","cancel","reset"]"#;
const OBSERVERS: &str = r#"["num_free","unfinished"]"#;

/// Positions `first` to `first` + `count` - 1 of a request, computed through its whole table.
pub struct Part {
    pub request_id: i64,
    pub first: usize,
    pub count: usize,
    pub blocks: Vec<usize>,
}

/// What a step computes, and the requests that lost their blocks while it was planned.
#[derive(Default)]
pub struct Plan {
    pub compute: Vec<Part>,
    pub preempted: Vec<i64>,
}

/// What the user of a request is given.
pub struct Output {
    pub request_id: i64,
    pub tokens: Vec<i64>,
    pub ended: bool,
}

/// An engine; docs/engines.md says what each operation means.
pub trait Engine {
    /// How the program introduces itself.
    const NAME: &'static str;
    const VERSION: &'static str;
    /// The rows of the profile, as a JSON object.
    const PROFILE: &'static str;

    fn submit(
        &mut self,
        request_id: i64,
        tokens: Vec<i64>,
        max_new_tokens: usize,
        extra_keys: Vec<ExtraKey>,
    );
    fn plan(&mut self) -> Plan;
    /// Of each request that sampled in the oldest step that was not answered, what it sampled.
    fn answer(&mut self, sampled: &[(i64, Vec<i64>)]) -> Vec<Output>;
    fn cancel(&mut self, request_id: i64);
    /// Whether the prefix cache was emptied.
    fn reset(&mut self) -> bool;

    fn num_free(&self) -> usize;
    fn unfinished(&self) -> Vec<i64>;
}

/// Serves engines that `create(num_blocks, block_size, enable_caching)` makes, until the other side
/// is done.
///
/// # Errors
/// Standard input or output that fails, and a line that is not JSON.
pub fn serve_engine<E: Engine>(create: impl Fn(usize, usize, bool) -> E) -> io::Result<()> {
    serve_runs(introduce::<E>, |message| {
        let num_blocks = size(number(message, "num_blocks"));
        let block_size = size(number(message, "block_size"));
        EngineRun {
            engine: create(num_blocks, block_size, enables_caching(message)),
        }
    })
}

fn introduce<E: Engine>(message: &Json) -> String {
    if number(message, "protocol") < PROTOCOL {
        return format!(r#""protocol":{PROTOCOL},"error":"engines need version {PROTOCOL}""#);
    }
    format!(
        r#""protocol":{PROTOCOL},"name":{},"version":{},"level":"engine","verbs":{VERBS},"observers":{OBSERVERS},"profile":{}"#,
        quoted(E::NAME),
        quoted(E::VERSION),
        E::PROFILE,
    )
}

struct EngineRun<E: Engine> {
    engine: E,
}

impl<E: Engine> Run for EngineRun<E> {
    fn answer(&mut self, command: &Json) -> Vec<String> {
        let result = self.result(command);
        result
            .map(|value| format!(r#""result":{value}"#))
            .into_iter()
            .collect()
    }

    /// An engine is asked; nothing is shown of it.
    fn shows_state(&self) -> bool {
        false
    }

    fn changes(&mut self) -> Vec<String> {
        Vec::new()
    }
}

impl<E: Engine> EngineRun<E> {
    /// Do a command: its result as JSON, if it has one.
    fn result(&mut self, command: &Json) -> Option<String> {
        let engine = &mut self.engine;
        let request_id = number(command, "request_id");
        match command.get("do").and_then(Json::text).unwrap_or("") {
            "submit" => engine.submit(
                request_id,
                integers(command.get("tokens")),
                size(number(command, "max_new_tokens")),
                extra_keys(command.get("extra_keys").map_or(&[][..], Json::list)),
            ),
            "cancel" => engine.cancel(request_id),
            "plan" => return Some(plan_text(&engine.plan())),
            "answer" => {
                let pairs = command.get("tokens").map_or(&[][..], Json::list).iter();
                let sampled: Vec<(i64, Vec<i64>)> = pairs.map(by_request).collect();
                return Some(outputs_text(&engine.answer(&sampled)));
            }
            "reset" => return Some(engine.reset().to_string()),
            "num_free" => return Some(engine.num_free().to_string()),
            "unfinished" => return Some(integers_text(&engine.unfinished())),
            _ => return Some("null".to_string()),
        }
        None
    }
}

/// A request, and the tokens that are said of it.
fn by_request(pair: &Json) -> (i64, Vec<i64>) {
    let parts = pair.list();
    (parts[0].integer().unwrap_or(0), integers(parts.get(1)))
}

fn plan_text(plan: &Plan) -> String {
    let parts = plan.compute.iter().map(|part| {
        format!(
            r#"{{"request":{},"first":{},"count":{},"blocks":[{}]}}"#,
            part.request_id,
            part.first,
            part.count,
            numbers(&part.blocks), // a list for each cache group, and there is one
        )
    });
    let preempted = integers_text(&plan.preempted);
    format!(r#"{{"compute":{},"preempted":{preempted}}}"#, list(parts))
}

fn outputs_text(outputs: &[Output]) -> String {
    list(outputs.iter().map(|output| {
        let tokens = integers_text(&output.tokens);
        format!("[{},{tokens},{}]", output.request_id, output.ended)
    }))
}

fn integers_text(values: &[i64]) -> String {
    list(values.iter().map(i64::to_string))
}
