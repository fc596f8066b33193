//! Arrays on the devices, and their contents.
//!
//! | file | subject |
//! | --- | --- |
//! | `device_buffer` | `PJRT_Buffer_*`: shape, memory and value of an array |
//! | `host_transfers` | arrays from the host, to the host, and between memories |
//! | `async_transfers` | `PJRT_AsyncHostToDeviceTransferManager_*` |
//! | `strides` | copying between strided and row-major arrays |
//! | `value` | contents: known, computed when they are read, or unknown |
//! | `output_values` | contents of what a call of a program returns |
//! | `host_exchange` | arguments on the devices of other hosts |
//! | `host_data` | contents that are kept in host memory |
//! | `host_reads` | reading contents; unknown ones are recorded |
//! | `fill` | what unknown contents read as |
//! | `origin` | where the content of an array comes from |

pub(crate) mod async_transfers;
pub(crate) mod device_buffer;
mod fill;
mod host_data;
mod host_exchange;
pub(crate) mod host_reads;
pub(crate) mod host_transfers;
pub(crate) mod origin;
pub(crate) mod output_values;
pub(crate) mod strides;
pub(crate) mod value;
