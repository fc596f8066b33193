//! The command line: parses arguments, and prints results.
//!
//! Programs are run by `vramfit-runner`, and the results are computed in `vramfit-analysis`. Both the plain binary and
//! the console script of the Python package call [`run`].

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;

use clap::ColorChoice;
use vramfit_analysis::{Error, ErrorKind};
use vramfit_base::error::EXIT_CODE;
use vramfit_runner::interruption;

mod args;
mod ascii;
mod command_line;
mod commands;
mod files;
mod metrics_logs;
mod output;
mod status;
mod trace_progress;
mod usage;

use output::Output;

pub use vramfit_runner::Context;

/// Runs one command line, program name first, and returns the exit code.
///
/// Never panics and never prints a backtrace: a bug becomes an `internal` error.
pub fn run(args: impl IntoIterator<Item = OsString>, context: &Context) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    catch_panic(|| run_parsed(&args, context))
}

/// Turns a panic into an error like any other.
fn catch_panic(work: impl FnOnce() -> u8) -> u8 {
    // The default hook prints a backtrace note in the middle of the user's terminal.
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = std::panic::catch_unwind(AssertUnwindSafe(work));
    std::panic::set_hook(default_hook);
    result.unwrap_or_else(|payload| {
        let cause = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message");
        let error = Error::new(ErrorKind::Internal, "internal error (a bug in vramfit)")
            .cause(cause)
            .hint("please report it with the command line and the lines above");
        Output::plain(ColorChoice::Auto).error(&error);
        EXIT_CODE
    })
}

fn run_parsed(args: &[OsString], context: &Context) -> u8 {
    // Help and errors in the command line follow its `--color`, too.
    let color = args::color_choice(args);
    let cli = match args::parse(args, color) {
        Ok(cli) => cli,
        Err(error) => return usage::render_help_or_error(&error, args, color),
    };
    let context = &Context { arguments: args.iter().skip(1).cloned().collect(), ..context.clone() };
    let mut output = Output::new(cli.output_options());
    match cli.run(context, &mut output) {
        Ok(status) => status.code(),
        Err(error) => {
            output.error(&error);
            interruption::exit_code()
                .filter(|_| error.kind() == ErrorKind::Interrupted)
                .unwrap_or(EXIT_CODE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        assert_eq!(catch_panic(|| 7), 7);
        // Prints `internal` on standard error.
        assert_eq!(catch_panic(|| panic!("provoked by a test")), EXIT_CODE);
    }
}
