//! The plain binary: the same command line as the one the Python package installs.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(vramfit::run(std::env::args_os(), &vramfit::Context::from_environment()))
}
