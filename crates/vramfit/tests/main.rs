//! The integration tests of the command line, as one program: the binary itself, without Python.

mod cli;
mod doctor;
mod errors;
mod hold;
mod missing_files;
mod run_on_gpus;
