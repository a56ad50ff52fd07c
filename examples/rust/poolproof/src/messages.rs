//! The loop over messages, and the commands of a run: the same for pools and managers.

use crate::json::{list, quoted, read, Json};
use std::io::{self, BufRead, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// One instance, with what was shown of it last.
pub trait Run {
    /// Do a command: the parts of its answer.
    fn answer(&mut self, command: &Json) -> Vec<String>;
    /// The parts of the state that are not as they were when they were shown last.
    fn changes(&mut self) -> Vec<String>;
    /// Whether changes are shown after each command.
    fn shows_state(&self) -> bool;
}

/// Answers messages until the other side is done; `begin` makes the instance of a run.
pub fn serve_runs<R: Run>(
    introduce: impl Fn(&Json) -> String,
    begin: impl Fn(&Json) -> R,
) -> io::Result<()> {
    let mut run: Option<R> = None;
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let message = read(&line?).map_err(io::Error::other)?;
        let what = message.get("do").and_then(Json::text).unwrap_or("");
        let answer = match what {
            "start" => introduce(&message),
            "run" => {
                run = catch_unwind(AssertUnwindSafe(|| begin(&message))).ok();
                run.as_mut().map_or_else(
                    || r#""error":"it panicked while it was built""#.to_string(),
                    |run| format!("{}{}", state(run), answers(run, &message)),
                )
            }
            "continue" => run.as_mut().map_or_else(
                || r#""error":"no run has begun""#.to_string(),
                |run| answers(run, &message),
            ),
            "stop" => String::new(),
            _ => format!(r#""error":{}"#, quoted(&format!("unknown message {what}"))),
        };
        let seq = message.get("seq").and_then(Json::integer).unwrap_or(0);
        let comma = if answer.is_empty() { "" } else { "," };
        writeln!(out, r#"{{"seq":{seq}{comma}{answer}}}"#)?;
        out.flush()?;
        if what == "stop" {
            break;
        }
    }
    Ok(())
}

fn state<R: Run>(run: &mut R) -> String {
    if !run.shows_state() {
        return String::new();
    }
    format!(r#""state":{{{}}},"#, run.changes().join(","))
}

fn answers<R: Run>(run: &mut R, message: &Json) -> String {
    let mut answers = Vec::new();
    for command in message.get("commands").map_or(&[][..], Json::list) {
        match catch_unwind(AssertUnwindSafe(|| run.answer(command))) {
            Ok(parts) => answers.push(format!("{{{}}}", parts.join(","))),
            Err(panic) => {
                answers.push(format!(r#"{{"error":{}}}"#, quoted(&words_of(&*panic))));
                break; // what it does from here on means nothing
            }
        }
    }
    format!(r#""answers":{}"#, list(answers))
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(ToString::to_string);
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", words.unwrap_or_default())
}

/// An integer of a message or command; 0 where it has none.
pub fn number(message: &Json, key: &str) -> i64 {
    message.get(key).and_then(Json::integer).unwrap_or(0)
}

/// A number of blocks, tokens or positions.
pub fn size(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// The integers of a list.
pub fn integers(values: Option<&Json>) -> Vec<i64> {
    let values = values.map_or(&[][..], Json::list);
    values.iter().filter_map(Json::integer).collect()
}

/// Numbers as a JSON list.
pub fn numbers(values: &[usize]) -> String {
    list(values.iter().map(usize::to_string))
}

/// Whether a message asks for the state after each command.
pub fn asks_for_state(message: &Json) -> bool {
    message.get("show").and_then(Json::text) == Some("state")
}

/// Whether the instance of a run is to cache.
pub fn enables_caching(message: &Json) -> bool {
    message.get("enable_caching") == Some(&Json::Boolean(true))
}
