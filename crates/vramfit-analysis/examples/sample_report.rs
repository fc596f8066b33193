//! Prints the page of a made-up report: `cargo run --example sample_report 100000 > report.html`.
//! Instead of a number of buffers, `hostile` gives everything a name that tries to break out, and
//! `nothing` leaves every picture empty.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

#[path = "../tests/samples/mod.rs"]
mod samples;

fn main() -> Result<(), std::num::ParseIntError> {
    let wanted = std::env::args().nth(1).unwrap_or_else(|| "200".to_owned());
    let report = match wanted.as_str() {
        "hostile" => samples::hostile(),
        "nothing" => samples::nothing(),
        buffers => samples::sample(buffers.parse()?),
    };
    print!("{}", report.to_html());
    Ok(())
}
