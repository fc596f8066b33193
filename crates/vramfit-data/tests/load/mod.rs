//! The loader: every row once an epoch, in one order for any number of processes, resumed anywhere, in a
//! budget. Rows of the files say which they are, so that a batch can be checked by itself.

mod files;
mod memory;
mod order;
mod refusals;
