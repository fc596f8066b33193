//! Streams HDF5: files larger than memory, at the speed of the disk, in an order that can be resumed.
//!
//! No libhdf5 and none of its lock: the file's own structure is read once, and then its bytes.
//!
//! | room | question it answers |
//! | --- | --- |
//! | [`source`] | how are the bytes of a file reached, and is it still the same file? |
//! | [`hdf5`] | what is in the file, and where is each chunk? |
//! | [`filter`] | what were the bytes of a chunk before it was stored? |
//! | [`read`] | which elements do these rows have? |
//! | [`inspect`] | what is in a file, what does it cost, and what will be slow? |
//! | [`order`] | which row comes when, as a pure function of a seed and a position? |
//! | [`sample`] | which rows of which column belong to one sample? |
//! | [`load`] | how do rows become batches, ahead of who uses them, in bounded memory? |
//! | [`statistics`] | what are mean and deviation of all rows? |
//! | [`mod@write`] | how is a file made? |
//! | [`generate`] | which data is there to try things with? |

mod digest;
pub mod filter;
pub mod generate;
pub mod hdf5;
pub mod inspect;
pub mod load;
mod natural_order;
pub mod order;
pub mod read;
pub mod sample;
pub mod source;
mod splitmix;
pub mod statistics;
pub mod write;
