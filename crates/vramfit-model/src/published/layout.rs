//! How what a process publishes lies in its file.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0–8 | `VRAMFIT` and the version of this layout, 1 |
//! | 8–12 | length of the header |
//! | 12–16 | where the live part begins, a multiple of 64 |
//! | 16–20 | 64-bit words of a device's record |
//! | 20–24 | number of records |
//! | 24– | the header, as JSON |
//! | live part | words: sequence, heartbeat, samples, spent, then the records |
//!
//! All numbers are little-endian. Everything before the live part is complete before the file has its
//! name, and never changes. The live part is a seqlock: the sequence is odd while it is written, and
//! has changed when it was written meanwhile. A record may grow at its end; its length is told.

use crate::published::{DeviceSample, LiveStats, StatsHeader, StatsStatus};
use crate::{Error, ErrorKind, Result};

const MAGIC: &[u8; 8] = b"VRAMFIT\x01";
const HEAD_BYTES: usize = 24;
const LIVE_WORDS: usize = 4;
const RECORD_WORDS: usize = 10;
/// More than any machine has; what is beyond is not a file of ours.
const MAX_DEVICES: usize = 1024;
const MAX_BYTES: usize = 1 << 20;

/// Where the parts of one file lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where the live part begins.
    pub live_offset: usize,
    /// Number of records.
    pub devices: usize,
    record_words: usize,
}

impl Layout {
    /// Lays out a new file and returns its first contents: nothing was sampled yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for more than a file can hold.
    pub fn new_file(header: &StatsHeader) -> Result<(Layout, Vec<u8>)> {
        let text = serde_json::to_vec(header).map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot write the header").cause(error)
        })?;
        let live_offset = (HEAD_BYTES + text.len()).next_multiple_of(64);
        let layout =
            Layout { live_offset, devices: header.devices.len(), record_words: RECORD_WORDS };
        if layout.devices > MAX_DEVICES || layout.total_bytes() > MAX_BYTES {
            return Err(Error::invalid_argument(format!(
                "{} devices are too many for a statistics file",
                layout.devices
            )));
        }
        let mut file = Vec::with_capacity(layout.total_bytes());
        file.extend_from_slice(MAGIC);
        for number in [text.len(), live_offset, RECORD_WORDS, layout.devices] {
            file.extend_from_slice(&(number as u32).to_le_bytes());
        }
        file.extend_from_slice(&text);
        file.resize(layout.total_bytes(), 0);
        Ok((layout, file))
    }

    /// Reads everything of a file but its live part.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] for what is no file, or one of another version.
    pub fn parse(file: &[u8]) -> Result<(StatsHeader, Layout)> {
        let invalid = |what: &str| Error::invalid_file(format!("not a statistics file: {what}"));
        let head = file.get(..HEAD_BYTES).ok_or_else(|| invalid("too short"))?;
        if head[..7] != MAGIC[..7] {
            return Err(invalid("wrong magic number"));
        }
        if head[7] != MAGIC[7] {
            return Err(invalid(&format!("unsupported version {}", head[7])));
        }
        let number = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_le_bytes(bytes) as usize
        };
        let layout =
            Layout { live_offset: number(12), record_words: number(16), devices: number(20) };
        let header_end = HEAD_BYTES + number(8);
        let sane = header_end <= layout.live_offset
            && layout.live_offset.is_multiple_of(64)
            && (RECORD_WORDS..=64).contains(&layout.record_words)
            && layout.devices <= MAX_DEVICES
            && layout.live_offset <= MAX_BYTES;
        if !sane || layout.total_bytes() > file.len() {
            return Err(invalid("inconsistent offsets"));
        }
        let header: StatsHeader = serde_json::from_slice(&file[HEAD_BYTES..header_end])
            .map_err(|error| invalid("invalid header").cause(error))?;
        if header.devices.len() != layout.devices {
            return Err(invalid("wrong number of records"));
        }
        Ok((header, layout))
    }

    /// Returns how long the file is.
    pub fn total_bytes(&self) -> usize {
        self.live_offset + self.live_words() * size_of::<u64>()
    }

    /// Returns how many words the live part has.
    pub fn live_words(&self) -> usize {
        LIVE_WORDS + self.devices * self.record_words
    }

    /// Writes a look into the words of the live part, except for the first, which is the sequence.
    pub fn encode(&self, live: &LiveStats, words: &mut Vec<u64>) {
        words.clear();
        words.extend([0, live.heartbeat_ns, live.samples, live.sampling_ns]);
        for sample in &live.devices {
            let values = values(sample);
            let mask = (0..).zip(values).map(|(bit, value)| u64::from(value.is_some()) << bit);
            words.extend([encode_status(sample.status), mask.sum()]);
            words.extend(values.map(Option::unwrap_or_default));
        }
        words.resize(self.live_words(), 0);
    }

    /// Reads the live part; its bytes were copied while the sequence did not change.
    pub fn decode(&self, bytes: &[u8]) -> LiveStats {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| words.get(at).copied().map_or(0, u64::from_le_bytes);
        let devices = (0..self.devices).map(|device| {
            let first = LIVE_WORDS + device * self.record_words;
            let value = |slot: usize| {
                let is_there = word(first + 1) >> slot & 1 == 1;
                is_there.then(|| word(first + 2 + slot))
            };
            DeviceSample {
                status: decode_status(word(first)),
                in_use_bytes: value(0),
                peak_bytes: value(1),
                pool_bytes: value(2),
                peak_pool_bytes: value(3),
                largest_free_block_bytes: value(4),
                limit_bytes: value(5),
                allocations: value(6),
                driver_bytes: value(7),
            }
        });
        LiveStats {
            heartbeat_ns: word(1),
            samples: word(2),
            sampling_ns: word(3),
            devices: devices.collect(),
        }
    }
}

fn values(sample: &DeviceSample) -> [Option<u64>; 8] {
    [
        sample.in_use_bytes,
        sample.peak_bytes,
        sample.pool_bytes,
        sample.peak_pool_bytes,
        sample.largest_free_block_bytes,
        sample.limit_bytes,
        sample.allocations,
        sample.driver_bytes,
    ]
}

fn encode_status(status: StatsStatus) -> u64 {
    match status {
        StatsStatus::Pending => 0,
        StatsStatus::Available => 1,
        StatsStatus::Unsupported => 2,
        StatsStatus::Failed(code) => 3 | u64::from(code) << 32,
    }
}

fn decode_status(word: u64) -> StatsStatus {
    match word & 0xffff_ffff {
        1 => StatsStatus::Available,
        2 => StatsStatus::Unsupported,
        3 => StatsStatus::Failed((word >> 32) as u32),
        _ => StatsStatus::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::PublishedDevice;

    fn header(devices: usize) -> StatsHeader {
        StatsHeader {
            pid: 41,
            started_ticks: 900,
            command: "python train.py --name \"a b\"".to_owned(),
            jax: Some("0.10.2".to_owned()),
            interval_ms: 100,
            devices: vec![PublishedDevice::default(); devices],
            ..StatsHeader::default()
        }
    }

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let header = header(2);
        let (layout, file) = Layout::new_file(&header).expect("two devices");
        assert_eq!(file.len(), layout.total_bytes());
        assert_eq!(Layout::parse(&file).expect("just made"), (header, layout));

        let first = DeviceSample {
            status: StatsStatus::Available,
            in_use_bytes: Some(12),
            largest_free_block_bytes: Some(0),
            driver_bytes: Some(u64::MAX),
            ..DeviceSample::default()
        };
        let second = DeviceSample { status: StatsStatus::Failed(13), ..DeviceSample::default() };
        let live =
            LiveStats { heartbeat_ns: 7, samples: 2, sampling_ns: 9, devices: vec![first, second] };
        let mut words = Vec::new();
        layout.encode(&live, &mut words);
        assert_eq!(layout.decode(&bytes_of(&words)), live);
    }

    #[test]
    fn a_page_without_a_sample_says_so() {
        let (layout, file) = Layout::new_file(&header(1)).expect("one device");
        let live = layout.decode(&file[layout.live_offset..]);
        assert_eq!(live.samples, 0);
        assert_eq!(live.devices, [DeviceSample::default()]);
    }

    #[test]
    fn no_file_that_is_cut_or_changed_makes_it_fall_over() {
        let (_, file) = Layout::new_file(&header(3)).expect("three devices");
        for length in 0..file.len() {
            assert!(Layout::parse(&file[..length]).is_err(), "{length} bytes");
        }
        for at in 0..HEAD_BYTES {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = file.clone();
                changed[at] = value;
                if let Ok((header, layout)) = Layout::parse(&changed) {
                    assert_eq!(header.devices.len(), layout.devices);
                    assert!(layout.total_bytes() <= changed.len());
                }
            }
        }
        let mut newer = file;
        newer[7] = 2;
        let error = Layout::parse(&newer).unwrap_err();
        assert_eq!(error.message(), "not a statistics file: unsupported version 2");
    }

    #[test]
    fn too_many_devices_are_refused() {
        assert!(Layout::new_file(&header(MAX_DEVICES + 1)).is_err());
    }
}
