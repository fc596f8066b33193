//! Runs every recorded command line in `cli/` and compares what it says and its exit code.
//!
//! These run the plain binary, without Python: what needs JAX is tested in `tests/test_cli.py`.
//! After an intended change, `make golden` records the new output.

#[test]
fn recorded_command_lines() {
    trycmd::TestCases::new()
        // Sixty columns more or less, or a colour, must not depend on who runs the tests.
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .env("LC_ALL", "C")
        // No driver, also where there is one: a recorded line must not touch a card.
        .env("VRAMFIT_NVML", "/nonexistent/libnvidia-ml.so.1")
        .env("VRAMFIT_CUDA", "/nonexistent/libcuda.so.1")
        .case("tests/cli/*.trycmd")
        // What the pages show is what the command says.
        .case("../../docs/commands/gpus.md")
        .case("../../docs/errors.md");
}
