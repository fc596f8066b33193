//! `vramfit completions`: shell completion scripts.

use clap_complete::Shell;
use vramfit_analysis::Result;

use crate::output::Output;
use crate::status::Status;

/// Print the completion script of a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit completions bash > ~/.local/share/bash-completion/completions/vramfit
  vramfit completions zsh > \"${fpath[1]}/_vramfit\"
  vramfit completions fish > ~/.config/fish/completions/vramfit.fish
")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Runs `vramfit completions`.
pub(crate) fn run(args: &Args, mut command: clap::Command, output: &mut Output) -> Result<Status> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "vramfit", &mut script);
    output.data(&String::from_utf8_lossy(&script))?;
    Ok(Status::Yes)
}
