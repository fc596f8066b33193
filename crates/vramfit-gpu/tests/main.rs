//! The integration tests of the crate, as one program, against a fake driver.

mod driver;
mod host;
