//! The order of the processes on the screen.

use super::snapshot::ProcessRow;

/// The order of the processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortOrder {
    /// Those of one GPU together.
    #[default]
    Gpu,
    Driver,
    Reserved,
    InUse,
    Peak,
    LargestFree,
}

impl SortOrder {
    const ALL: [SortOrder; 6] = [
        SortOrder::Gpu,
        SortOrder::Driver,
        SortOrder::Reserved,
        SortOrder::InUse,
        SortOrder::Peak,
        SortOrder::LargestFree,
    ];

    /// Returns the order by the next column.
    pub(super) fn next(self) -> Self {
        let at = SortOrder::ALL.iter().position(|order| *order == self);
        SortOrder::ALL[(at.unwrap_or(0) + 1) % SortOrder::ALL.len()]
    }

    /// Returns the heading of the column that decides; `None` where GPUs do.
    pub(super) fn column(self) -> Option<&'static str> {
        Some(match self {
            SortOrder::Gpu => return None,
            SortOrder::Driver => "DRIVER",
            SortOrder::Reserved => "RESERVED",
            SortOrder::InUse => "IN USE",
            SortOrder::Peak => "PEAK",
            SortOrder::LargestFree => "LRG FREE",
        })
    }

    /// Returns what a process is sorted by.
    pub(super) fn bytes(self, row: &ProcessRow) -> Option<u64> {
        match self {
            SortOrder::Gpu => None,
            // Without a driver the pools are all that is known.
            SortOrder::Driver => row.driver.bytes().or(row.reserved.bytes()),
            SortOrder::Reserved => row.reserved.bytes(),
            SortOrder::InUse => row.in_use.bytes(),
            SortOrder::Peak => row.peak.bytes(),
            SortOrder::LargestFree => row.largest_free.bytes(),
        }
    }
}
