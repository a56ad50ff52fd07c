//! The engine of `engine.rs` as a program that Poolproof certifies.
//!
//!     poolproof certify 'cmd:./fcfs-engine'
//!     poolproof certify 'cmd:./fcfs-engine --bug preempts-the-first'     is refused

mod engine;

use engine::FcfsEngine;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let preempts_the_first = arguments == ["--bug", "preempts-the-first"];
    if !preempts_the_first && !arguments.is_empty() {
        eprintln!("usage: fcfs-engine [--bug preempts-the-first]");
        return ExitCode::from(2);
    }
    let create = |num_blocks, block_size, caching| {
        FcfsEngine::new(num_blocks, block_size, caching, preempts_the_first)
    };
    match poolproof::serve_engine(create) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
