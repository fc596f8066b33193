//! The order of the processes on the screen.

use super::snapshot::ProcessRow;

/// The order of the processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Those of one GPU together.
    #[default]
    Gpu,
    Driver,
    Reserved,
    InUse,
    Peak,
    LargestFree,
}

impl Order {
    const ALL: [Order; 6] = [
        Order::Gpu,
        Order::Driver,
        Order::Reserved,
        Order::InUse,
        Order::Peak,
        Order::LargestFree,
    ];

    /// Returns the order by the next column.
    pub(super) fn next(self) -> Self {
        let at = Order::ALL.iter().position(|order| *order == self);
        Order::ALL[(at.unwrap_or(0) + 1) % Order::ALL.len()]
    }

    /// Returns the heading of the column that decides; `None` where GPUs do.
    pub(super) fn column(self) -> Option<&'static str> {
        Some(match self {
            Order::Gpu => return None,
            Order::Driver => "DRIVER",
            Order::Reserved => "RESERVED",
            Order::InUse => "IN USE",
            Order::Peak => "PEAK",
            Order::LargestFree => "LRG FREE",
        })
    }

    /// Returns what a process is sorted by.
    pub(super) fn bytes(self, row: &ProcessRow) -> Option<u64> {
        match self {
            Order::Gpu => None,
            // Without a driver the pools are all that is known.
            Order::Driver => row.driver.bytes().or(row.reserved.bytes()),
            Order::Reserved => row.reserved.bytes(),
            Order::InUse => row.in_use.bytes(),
            Order::Peak => row.peak.bytes(),
            Order::LargestFree => row.largest_free.bytes(),
        }
    }
}
